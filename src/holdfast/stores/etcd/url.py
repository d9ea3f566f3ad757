"""etcd URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from ...drivers.base import Address
from ...errors import Misuse
from ...secret import Secret
from ..kit.url import TLS_FILES, Options, addresses, check_tls, options, seconds, show, split

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "holdfast"

OPTIONS: Options = {
    "timeout": ("timeout", seconds(0.005, 600)),
    **TLS_FILES,
}


class Target(NamedTuple):
    """Where to connect, as whom, and how."""

    addresses: tuple[Address, ...]
    prefix: str = DEFAULT_PREFIX
    username: str = ""
    password: Secret = Secret("")
    tls: bool = False
    ca: str = ""  # the file of certificates to trust; "": the system's
    cert: str = ""  # the client's own certificate, and its key
    cert_key: str = ""
    timeout: float = 3.0  # for one conversation

    def __repr__(self) -> str:
        return f"<{self.shown()}>"

    def shown(self) -> str:
        """Fit to be shown."""
        return ",".join(map(show, self.addresses))


def parse(url: str) -> Target:
    """`etcd[s]://[user:password@]host[:port][,host…][/prefix][?option=value&…]`."""
    scheme, _, username, password, place, query = split(url)
    if bool(username) != bool(password):
        raise Misuse(f"{scheme}://: a login is a user and a password, as in {scheme}://user:password@host")
    hosts, _, path = place.partition("/")
    prefix = unquote(path).strip("/") or DEFAULT_PREFIX
    if not re.fullmatch(r"[A-Za-z0-9_.:/-]{1,128}", prefix):
        raise Misuse(f"{scheme}://…/{prefix}: the prefix of the keys is up to 128 letters, digits and _ . : - /")
    where = addresses(hosts, scheme, DEFAULT_PORT)
    target = Target(where, prefix, username, password, tls=scheme == "etcds")
    target = target._replace(**options(query, OPTIONS, "etcd"))
    check_tls(target, scheme, "etcds")
    return target
