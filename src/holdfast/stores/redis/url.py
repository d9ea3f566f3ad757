"""Redis URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ...errors import Misuse
from ...secret import Secret
from ..kit.url import show as show_host

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
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
    scheme, _, rest = url.partition("://")
    kind, tls = _SCHEMES[scheme]
    rest, _, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    username, _, password = login.partition(":") if at else ("", "", "")
    target = Target(kind, (), username=unquote(username), password=Secret(unquote(password)), tls=tls)
    if kind == "unix":
        path = "/" + unquote(place).lstrip("/")
        if path == "/":
            raise Misuse("a unix URL names the server's socket: unix:///run/redis/redis.sock?db=0")
        target = target._replace(kind="redis", addresses=((path, 0),))
    else:
        hosts, _, tail = place.partition("/")
        default = SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
        addresses = tuple(_address(host, default, scheme) for host in hosts.split(","))
        if kind == "redis" and len(addresses) > 1:
            raise Misuse(f"{scheme}:// takes one host; several are redlock://, redis+sentinel:// or redis+cluster://")
        if len(set(addresses)) != len(addresses):
            raise Misuse(f"{scheme}://{hosts}: a host is named twice")
        target = target._replace(addresses=addresses)
        if kind == "sentinel":
            service, _, tail = unquote(tail).partition("/")
            if not service:
                raise Misuse(f"{scheme}://{hosts}/…: name the service that the Sentinels watch, as in /mymaster")
            target = target._replace(service=service)
        if tail:
            target = target._replace(database=_whole(tail, "the database", 0, 2**31))
    target = _with_options(target, query)
    if not target.tls and (target.ca or target.cert or target.cert_key):
        raise Misuse(
            f"ca, cert and cert_key are for TLS, which {scheme}:// does not speak: write {_with_tls(scheme)}://"
        )
    if target.cert_key and not target.cert:
        raise Misuse("cert_key is the key of a certificate: name that with cert")
    if kind == "cluster" and target.database:
        raise Misuse("a Redis Cluster has only database 0")
    if target.replicas and kind in ("cluster", "redlock"):
        raise Misuse(f"{scheme}:// takes no replicas option: use it with redis:// or redis+sentinel://")
    return target


def _with_tls(scheme: str) -> str:
    if scheme == "unix":
        return "rediss"
    return "redlocks" if scheme == "redlock" else scheme.replace("redis", "rediss", 1)


def _address(text: str, default: int, scheme: str) -> Address:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s/]*)(?::([0-9]{1,5}))?", text)
    if found is None:
        raise Misuse(f"{scheme}://…: one of the hosts is no host or host:port")  # not shown: see plausible
    port = int(found[2]) if found[2] else default
    if not 0 < port < 65536:
        raise Misuse(f"{scheme}://: {port} is no port")
    return found[1].strip("[]") or "localhost", port


def _with_options(target: Target, query: str) -> Target:
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key == "db":
            target = target._replace(database=_whole(value, "db", 0, 2**31))
        elif key == "replicas":
            target = target._replace(replicas=_whole(value, "replicas", 0, 100))
        elif key == "timeout":
            target = target._replace(timeout=_seconds(value, key, 0.005, 600))
        elif key == "replicas_timeout":
            target = target._replace(replicas_timeout=_seconds(value, key, 0.001, 600))
        elif key == "retention":
            target = target._replace(retention=_seconds(value, key, 0.1, 30 * 86400))
        elif key == "prefix":
            if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", value):
                raise Misuse(f"prefix={value!r}: up to 64 letters, digits and _ . : -")
            target = target._replace(prefix=value)
        elif key == "ca":
            target = target._replace(ca=value)
        elif key == "cert":
            target = target._replace(cert=value)
        elif key == "cert_key":
            target = target._replace(cert_key=value)
        elif key == "sentinel_username":
            target = target._replace(sentinel_username=value)
        elif key == "sentinel_password":
            target = target._replace(sentinel_password=Secret(value))
        else:
            raise Misuse(
                f"a Redis URL takes no option {key!r} (but db, timeout, retention, replicas, replicas_timeout, "
                f"prefix, ca, cert, cert_key, sentinel_username, sentinel_password)"
            )
    return target


def _whole(text: str, what: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise Misuse(f"{what} must be a whole number from {least}, not {text!r}")
    return int(text)


def _seconds(text: str, what: str, least: float, most: float) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not least <= float(text) <= most:
        raise Misuse(f"{what} must be a number of seconds from {least:g} to {most:g}, not {text!r}")
    return float(text)
