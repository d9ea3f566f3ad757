"""ZooKeeper URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import unquote

from ...drivers.base import Address
from ...errors import Misuse, NotInstalled
from ...secret import Secret
from ..kit.url import TLS_FILES, Options, addresses, check_tls, options, seconds, show, split, text

DEFAULT_PORT = 2181
DEFAULT_ROOT = "/holdfast"

OPTIONS: Options = {
    "timeout": ("timeout", seconds(0.05, 600)),
    "auth": ("auth", text),
    "acl": ("acl", text),
    **TLS_FILES,
    "check_hostname": ("check_hostname", text),
}


class Target(NamedTuple):
    """Where to connect, as whom, and under which node everything is kept."""

    addresses: tuple[Address, ...]
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
        return ",".join(map(show, self.addresses))

    def shown(self) -> str:
        """Fit to be shown."""
        return f"{self.hosts}{self.root}"


def parse(url: str) -> Target:
    scheme, has_login, username, password, place, query = split(url)
    hosts, slash, path = place.partition("/")
    where = addresses(hosts, scheme, DEFAULT_PORT)
    target = Target(where, tls=scheme == "zookeepers", username=username, password=password)
    if slash and path:
        target = target._replace(root=_root(unquote(path), scheme))
    if has_login:
        if not username or not password:
            raise Misuse(f"{scheme}://…@{hosts}: credentials are written user:password@")
        target = target._replace(auth="digest", acl="creator")
    return _with_options(target, scheme, query)


def _root(path: str, scheme: str) -> str:
    parts = path.rstrip("/").split("/")
    if not all(part not in ("", ".", "..") and part.isprintable() for part in parts) or parts[0] == "zookeeper":
        raise Misuse(f"{scheme}://…/{path}: name a node to keep locks under, as in /apps/billing")
    return "/" + "/".join(parts)


def _with_options(target: Target, scheme: str, query: str) -> Target:
    said = options(query, OPTIONS, "ZooKeeper")
    if said.get("auth", "digest") not in ("digest", "sasl") or ("auth" in said and not target.username):
        raise Misuse("auth is digest or sasl (DIGEST-MD5), with user:password@ before the hosts")
    known = target.username or said.get("cert")
    if said.get("acl", "open") not in ("open", "creator") or (said.get("acl") == "creator" and not known):
        raise Misuse("acl is creator (needs user:password@ before the hosts, or cert) or open")
    if said.get("check_hostname", "yes") not in ("yes", "no") or ("check_hostname" in said and not target.tls):
        raise Misuse("check_hostname is yes or no, and for zookeepers:// only")
    said["check_hostname"] = said.get("check_hostname", "yes") == "yes"
    if "cert" in said:
        # Whoever shows a certificate is somebody: what they create is theirs, unless acl=open is said.
        target = target._replace(acl="creator")
    target = target._replace(**said)
    if target.auth == "sasl" and find_spec("puresasl") is None:
        raise NotInstalled("auth=sasl needs the package pure-sasl: pip install 'holdfast[zookeeper]'")
    check_tls(target, scheme, "zookeepers")
    if target.cert and not target.cert_key:
        raise Misuse("cert and cert_key come together")
    return target
