"""Consul URLs, read strictly: what is not understood is refused, and the access token is never shown."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from ...drivers.base import Address
from ...errors import Misuse
from ...secret import Secret
from ..kit.url import TLS_FILES, Options, addresses, check_tls, options, seconds, secret, show, split, word

DEFAULT_PORT = 8500
DEFAULT_TLS_PORT = 8501
MOST_LOCK_DELAY = 60.0  # Consul's own limit

OPTIONS: Options = {
    "token": ("token", secret),
    "timeout": ("timeout", seconds(0.05, 600)),
    "lock_delay": ("lock_delay", seconds(0, MOST_LOCK_DELAY)),
    "min_ttl": ("min_ttl", seconds(0.05, 86400)),
    "node": ("node", word),
    "dc": ("datacenter", word),
    **TLS_FILES,
}


class Target(NamedTuple):
    """Where to connect, as whom, and how."""

    addresses: tuple[Address, ...]
    prefix: str = "holdfast"
    token: Secret = Secret("")
    tls: bool = False
    ca: str = ""  # the file of certificates to trust; "": the system's
    cert: str = ""  # the client's own certificate, and its key
    cert_key: str = ""
    timeout: float = 5.0  # for one conversation, an election of a leader included
    lock_delay: float = 0.0
    min_ttl: float = 10.0  # what the agents accept: their session_ttl_min
    node: str = ""  # whose sessions they are; "": the agent's own node
    datacenter: str = ""

    def __repr__(self) -> str:
        return f"<{','.join(map(show, self.addresses))}>"


def parse(url: str) -> Target:
    """`scheme://[:token@]host[:port][,host…][/prefix][?option=value&…]`."""
    scheme, has_login, user, token, place, query = split(url)
    tls = scheme == "consuls"
    hosts, _, prefix = place.partition("/")
    target = Target(addresses(hosts, scheme, DEFAULT_TLS_PORT if tls else DEFAULT_PORT), tls=tls)
    if has_login:
        if user:
            raise Misuse(f"{scheme}:// takes a token and no user: write {scheme}://:TOKEN@host or ?token=TOKEN")
        target = target._replace(token=secret(token.plain, "the token"))
    if prefix:
        target = target._replace(prefix=_prefix(unquote(prefix)))
    target = target._replace(**options(query, OPTIONS, "Consul"))
    check_tls(target, scheme, "consuls")
    return target


def _prefix(text: str) -> str:
    text = text.rstrip("/")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)*", text) or len(text) > 128:
        raise Misuse(f"the prefix {text!r} must be up to 128 letters, digits and _ . : - in parts divided by /")
    return text
