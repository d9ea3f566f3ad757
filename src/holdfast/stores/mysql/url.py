"""MySQL URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ...errors import Misuse
from ...secret import Secret
from ..kit.url import show

DEFAULT_PORT = 3306
_OPTIONS = "mode, durability, timeout, retention, pool, socket, ca, cert, cert_key, tls"


class Target(NamedTuple):
    """Where to connect, as whom, and how."""

    host: str
    port: int
    user: str
    password: Secret
    database: str
    socket: str = ""  # of a Unix socket: its path
    mode: str = "lease"
    durability: str = "full"
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
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    user, _, password = login.partition(":") if at else ("", "", "")
    host, _, database = place.partition("/")
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s,]*)(?::([0-9]{1,5}))?", host)
    if found is None:
        raise Misuse(f"{scheme}://…: the host is no host or host:port")  # not shown: see plausible
    port = int(found[2]) if found[2] else DEFAULT_PORT
    if not 0 < port < 65536:
        raise Misuse(f"{scheme}://: {port} is no port")
    database = unquote(database)
    if not database or "/" in database or "\0" in database or len(database) > 64:
        raise Misuse(f"{scheme}://{host}/…: name the database that keeps the locks, as in {scheme}://user@{host}/app")
    target = Target(found[1].strip("[]") or "localhost", port, unquote(user), Secret(unquote(password)), database)
    options = parse_qsl(query, keep_blank_values=True)
    for key, value in options:
        target = _with(target, key, value)
    if ("tls", "no") in options and (target.ca or target.cert or target.cert_key):
        raise Misuse("ca, cert and cert_key are for TLS, which tls=no switches off: leave out the one or the other")
    if target.cert_key and not target.cert:
        raise Misuse("cert_key is the key of a certificate: name that with cert")
    return target


def _with(target: Target, key: str, value: str) -> Target:
    if key == "mode":
        return target._replace(mode=_one_of(key, value, "lease", "session"))
    if key == "durability":
        return target._replace(durability=_one_of(key, value, "full", "relaxed"))
    if key == "timeout":
        return target._replace(timeout=_seconds(key, value, 0.05, 600))
    if key == "retention":
        return target._replace(retention=_seconds(key, value, 0.1, 30 * 86400))
    if key == "pool":
        if not re.fullmatch(r"[0-9]{1,4}", value) or not 1 <= int(value) <= 1000:
            raise Misuse(f"pool must be a number of connections from 1 to 1000, not {value!r}")
        return target._replace(pool=int(value))
    if key == "tls":
        return target._replace(tls=_one_of(key, value, "yes", "no") == "yes")
    if key in ("ca", "cert", "cert_key"):
        changed: Target = target._replace(tls=True, **{key: value})  # type: ignore[arg-type]
        return changed
    if key == "socket":
        return target._replace(socket=value)
    raise Misuse(f"a MySQL URL takes no option {key!r} (but {_OPTIONS})")


def _one_of(key: str, value: str, *known: str) -> str:
    if value not in known:
        raise Misuse(f"{key} must be {' or '.join(known)}, not {value!r}")
    return value


def _seconds(key: str, text: str, least: float, most: float) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not least <= float(text) <= most:
        raise Misuse(f"{key} must be a number of seconds from {least:g} to {most:g}, not {text!r}")
    return float(text)
