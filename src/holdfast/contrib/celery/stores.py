"""Which store: `app.conf.holdfast_url`; or the broker, if that is a Redis; or what HOLDFAST_URL says."""

from __future__ import annotations

from typing import Any

from ...connecting import resolve
from ...secret import Secret
from ...sync import Locks, connect

_open: dict[Secret, Locks] = {}
_REDIS = ("redis://", "rediss://")


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
        return Secret(broker.partition("?")[0])  # options are for kombu
    return resolve(None)
