"""Redis URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from ...errors import Misuse
from ...secret import Secret
from ..kit.url import TLS_FILES, Options, addresses, check_tls, options, seconds, split, text, whole
from ..kit.url import show as show_host

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
DATABASES = 0, 2**31
Address = tuple[str, int]  # of a Unix socket: its path and 0


class Target(NamedTuple):
    """Where to connect, as whom, and how."""

    kind: str  # redis, sentinel, cluster
    addresses: tuple[Address, ...]
    service: str = ""  # a Sentinel's name of the master
    username: str = ""
    password: Secret = Secret("")
    database: int = 0
    tls: bool = False
    ca: str = ""  # the file of certificates to trust; "": the system's
    cert: str = ""  # the client's own certificate, and its key
    cert_key: str = ""
    timeout: float = 3.0  # for one conversation
    retention: float = 3600.0  # how long a name's last token is remembered after its last use
    replicas: int = 0  # how many must acknowledge a claim
    replicas_timeout: float = 1.0
    prefix: str = "hf"
    sentinel_username: str = ""
    sentinel_password: Secret = Secret("")

    def __repr__(self) -> str:
        return f"<{self.shown()}>"

    def shown(self) -> str:
        """Fit to be shown."""
        return ",".join(show(address) for address in self.addresses) + (f"/{self.service}" if self.service else "")


_SCHEMES = {
    "redis": ("redis", False),
    "rediss": ("redis", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redlock": ("redlock", False),
    "redlocks": ("redlock", True),
}


def show(address: Address) -> str:
    return show_host(address) if address[1] else address[0]


def parse(url: str) -> Target:
    """`scheme://[user[:password]@]host[:port][,host…][/database or service][?option=value&…]`."""
    scheme, _, username, password, place, query = split(url)
    kind, tls = _SCHEMES[scheme]
    target = Target(kind, (), username=username, password=password, tls=tls)
    if kind == "unix":
        path = "/" + unquote(place).lstrip("/")
        if path == "/":
            raise Misuse("a unix URL names the server's socket: unix:///run/redis/redis.sock?db=0")
        target = target._replace(kind="redis", addresses=((path, 0),))
    else:
        hosts, _, tail = place.partition("/")
        default = SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
        if kind == "redis" and "," in hosts:
            raise Misuse(f"{scheme}:// takes one host; several are redlock://, redis+sentinel:// or redis+cluster://")
        target = target._replace(addresses=addresses(hosts, scheme, default))
        if kind == "sentinel":
            service, _, tail = unquote(tail).partition("/")
            if not service:
                raise Misuse(f"{scheme}://{hosts}/…: name the service that the Sentinels watch, as in /mymaster")
            target = target._replace(service=service)
        if tail:
            target = target._replace(database=whole(*DATABASES)(tail, "the database"))
    target = target._replace(**options(query, OPTIONS, "Redis"))
    check_tls(target, scheme, _with_tls(scheme))
    if kind == "cluster" and target.database:
        raise Misuse("a Redis Cluster has only database 0")
    if target.replicas and kind in ("cluster", "redlock"):
        raise Misuse(f"{scheme}:// takes no replicas option: use it with redis:// or redis+sentinel://")
    return target


def _with_tls(scheme: str) -> str:
    if scheme == "unix":
        return "rediss"
    return "redlocks" if scheme == "redlock" else scheme.replace("redis", "rediss", 1)


def _prefix(value: str, what: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", value):
        raise Misuse(f"prefix={value!r}: up to 64 letters, digits and _ . : -")
    return value


OPTIONS: Options = {
    "db": ("database", whole(*DATABASES)),
    "timeout": ("timeout", seconds(0.005, 600)),
    "retention": ("retention", seconds(0.1, 30 * 86400)),
    "replicas": ("replicas", whole(0, 100)),
    "replicas_timeout": ("replicas_timeout", seconds(0.001, 600)),
    "prefix": ("prefix", _prefix),
    **TLS_FILES,
    "sentinel_username": ("sentinel_username", text),
    "sentinel_password": ("sentinel_password", lambda value, what: Secret(value)),
}
