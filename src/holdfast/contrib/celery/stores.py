"""Which store: `app.conf.holdfast_url`; or the broker, if that is a Redis; or what HOLDFAST_URL says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ...connecting import resolve
from ...errors import Misuse
from ...secret import Secret
from ...sync import Locks, connect

_open: dict[Secret, Locks] = {}
_REDIS = ("redis://", "rediss://")
_OF_TLS = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "cert_key"}
_CHECKED = {"ssl_cert_reqs", "ssl_check_hostname"}  # by us, whatever they say


def locks_of(app: Any) -> Locks:
    """Of a Celery application. Workers that were forked have connections of their own."""
    url = _url(app)
    # No mutex, which a fork might find taken: of two that are made at once, one is used, and the other has sent nothing.
    return _open.get(url) or _open.setdefault(url, connect(url, label=app.main or ""))


def _url(app: Any) -> Secret:
    if own := app.conf.get("holdfast_url"):
        return resolve(own)
    broker = app.conf.broker_url
    if isinstance(broker, str) and broker.startswith(_REDIS) and ";" not in broker:
        return Secret(_encrypted(broker, app.conf.get("broker_use_ssl")))
    return resolve(None)


def _encrypted(broker: str, use_ssl: Any) -> str:
    """With TLS if the broker has it, and by the same certificates. Other options are for kombu."""
    address, _, query = broker.partition("?")
    said = dict(parse_qsl(query)) | (dict(use_ssl) if isinstance(use_ssl, Mapping) else {})
    said = {key: value for key, value in said.items() if key.startswith("ssl_") and value is not None}
    unusual = sorted(said.keys() - _OF_TLS.keys() - _CHECKED)
    if unusual:
        raise Misuse(
            f"the broker has {', '.join(unusual)}: say where the locks are, as in app.conf.holdfast_url = 'rediss://…'"
        )
    if use_ssl and address.startswith("redis://"):
        address = f"rediss://{address.removeprefix('redis://')}"
    files = {ours: said[theirs] for theirs, ours in _OF_TLS.items() if said.get(theirs)}
    return address + (f"?{urlencode(files)}" if files else "")
