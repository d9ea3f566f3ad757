"""ZooKeeper URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ...errors import Misuse, NotInstalled
from ...secret import Secret

DEFAULT_PORT = 2181
DEFAULT_ROOT = "/holdfast"
_OPTIONS = "timeout, auth, acl, ca, cert, cert_key, check_hostname"


class Target(NamedTuple):
    """Where to connect, as whom, and under which node everything is kept."""

    addresses: tuple[tuple[str, int], ...]
    root: str = DEFAULT_ROOT
    username: str = ""
    password: Secret = Secret("")
    auth: str = ""  # "", "digest" or "sasl"
    acl: str = "open"  # "open" or "creator": who may touch what we create
    tls: bool = False
    ca: str = ""  # the file of certificates to trust; "": the system's
    cert: str = ""  # the client's own certificate, and its key
    cert_key: str = ""
    check_hostname: bool = True
    timeout: float = 3.0  # for one conversation

    def __repr__(self) -> str:
        return f"<{self.shown()}>"

    @property
    def hosts(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses)

    def shown(self) -> str:
        """Fit to be shown."""
        return f"{self.hosts}{self.root}"


def parse(url: str) -> Target:
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    username, _, password = login.partition(":") if at else ("", "", "")
    hosts, slash, path = place.partition("/")
    addresses = tuple(_address(host, scheme) for host in hosts.split(","))
    if len(set(addresses)) != len(addresses):
        raise Misuse(f"{scheme}://{hosts}: a host is named twice")
    target = Target(
        addresses, tls=scheme == "zookeepers", username=unquote(username), password=Secret(unquote(password))
    )
    if slash and path:
        target = target._replace(root=_root(unquote(path), scheme))
    if at:
        if not username or not password:
            raise Misuse(f"{scheme}://…@{hosts}: credentials are written user:password@")
        target = target._replace(auth="digest", acl="creator")
    return _with_options(target, query)


def _address(text: str, scheme: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s/]*)(?::([0-9]{1,5}))?", text)
    if found is None:
        raise Misuse(f"{scheme}://…: one of the hosts is no host or host:port")  # not shown: see plausible
    port = int(found[2]) if found[2] else DEFAULT_PORT
    if not 0 < port < 65536:
        raise Misuse(f"{scheme}://: {port} is no port")
    return found[1].strip("[]") or "localhost", port


def _root(path: str, scheme: str) -> str:
    parts = path.rstrip("/").split("/")
    if not all(part not in ("", ".", "..") and part.isprintable() for part in parts) or parts[0] == "zookeeper":
        raise Misuse(f"{scheme}://…/{path}: name a node to keep locks under, as in /apps/billing")
    return "/" + "/".join(parts)


def _with_options(target: Target, query: str) -> Target:
    options = parse_qsl(query, keep_blank_values=True)
    if target.tls and any(key == "cert" for key, _ in options):
        # Whoever shows a certificate is somebody: what they create is theirs, unless acl=open is said.
        target = target._replace(acl="creator", cert="named below")
    for key, value in options:
        if key == "timeout":
            if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,9})?", value) or not 0.05 <= float(value) <= 600:
                raise Misuse(f"timeout must be a number of seconds from 0.05 to 600, not {value!r}")
            target = target._replace(timeout=float(value))
        elif key == "auth":
            if value not in ("digest", "sasl") or not target.username:
                raise Misuse("auth is digest or sasl (DIGEST-MD5), with user:password@ before the hosts")
            target = target._replace(auth=value)
        elif key == "acl":
            if value not in ("open", "creator") or (value == "creator" and not (target.username or target.cert)):
                raise Misuse("acl is creator (needs user:password@ before the hosts, or cert) or open")
            target = target._replace(acl=value)
        elif key in ("ca", "cert", "cert_key"):
            if not target.tls:
                raise Misuse(f"{key} is for zookeepers://, which speaks TLS")
            if key == "ca":
                target = target._replace(ca=value)
            elif key == "cert":
                target = target._replace(cert=value)
            else:
                target = target._replace(cert_key=value)
        elif key == "check_hostname":
            if value not in ("yes", "no") or not target.tls:
                raise Misuse("check_hostname is yes or no, and for zookeepers:// only")
            target = target._replace(check_hostname=value == "yes")
        else:
            raise Misuse(f"a ZooKeeper URL takes no option {key!r} (but {_OPTIONS})")
    if target.auth == "sasl" and find_spec("puresasl") is None:
        raise NotInstalled("auth=sasl needs the package pure-sasl: pip install 'holdfast[zookeeper]'")
    if bool(target.cert) != bool(target.cert_key):
        raise Misuse("cert and cert_key come together")
    return target
