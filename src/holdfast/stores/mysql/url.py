"""MySQL URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from ...errors import Misuse
from ...secret import Secret
from ..kit.url import (
    TLS_FILES,
    Options,
    addresses,
    check_tls,
    either,
    one_of,
    options,
    relaxed,
    seconds,
    show,
    split,
    text,
    whole,
)

DEFAULT_PORT = 3306

OPTIONS: Options = {
    "mode": ("mode", one_of("lease", "session")),
    "durability": ("relaxed", relaxed),
    "timeout": ("timeout", seconds(0.05, 600)),
    "retention": ("retention", seconds(0.1, 30 * 86400)),
    "pool": ("pool", whole(1, 1000)),
    "socket": ("socket", text),
    **TLS_FILES,
    "tls": ("tls", either("yes", "no")),
}


class Target(NamedTuple):
    """Where to connect, as whom, and how."""

    host: str
    port: int
    user: str
    password: Secret
    database: str
    socket: str = ""  # of a Unix socket: its path
    mode: str = "lease"
    relaxed: bool = False
    timeout: float = 3.0  # for one conversation
    retention: float = 3600.0  # how long a name's last token is remembered after its last use
    pool: int = 8  # connections for claims; renewal and waiting have their own
    tls: bool = False
    ca: str = ""
    cert: str = ""
    cert_key: str = ""

    def __repr__(self) -> str:
        return f"<{self.shown()}>"

    def shown(self) -> str:
        """Fit to be shown."""
        return f"{self.socket or show((self.host, self.port))}/{self.database}"


def parse(url: str) -> Target:
    scheme, _, user, password, place, query = split(url)
    host, _, database = place.partition("/")
    if "," in host:
        raise Misuse(f"{scheme}:// takes one host")
    (address,) = addresses(host, scheme, DEFAULT_PORT)
    database = unquote(database)
    if not database or "/" in database or "\0" in database or len(database) > 64:
        raise Misuse(f"{scheme}://{host}/…: name the database that keeps the locks, as in {scheme}://user@{host}/app")
    said = options(query, OPTIONS, "MySQL")
    target = Target(*address, user, password, database)._replace(**said)
    if target.ca or target.cert or target.cert_key:
        target = target._replace(tls=True)
    if said.get("tls") is False and target.tls:
        raise Misuse("ca, cert and cert_key are for TLS, which tls=no switches off: leave out the one or the other")
    check_tls(target, scheme, scheme)
    return target
