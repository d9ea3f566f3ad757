"""etcd URLs, read strictly: what is not understood is refused, and a password is never shown."""

from __future__ import annotations

import re
import ssl
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ...errors import Misuse
from ...secret import Secret

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "holdfast"
Address = tuple[str, int]


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
        return ",".join(show(address) for address in self.addresses)


def show(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(url: str) -> Target:
    """`etcd[s]://[user:password@]host[:port][,host…][/prefix][?option=value&…]`."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    username, _, password = login.partition(":") if at else ("", "", "")
    if bool(username) != bool(password):
        raise Misuse(f"{scheme}://: a login is a user and a password, as in {scheme}://user:password@host")
    hosts, _, path = place.partition("/")
    addresses = tuple(_address(host, scheme) for host in hosts.split(","))
    if len(set(addresses)) != len(addresses):
        raise Misuse(f"{scheme}://{hosts}: a host is named twice")
    prefix = unquote(path).strip("/") or DEFAULT_PREFIX
    if not re.fullmatch(r"[A-Za-z0-9_.:/-]{1,128}", prefix):
        raise Misuse(f"{scheme}://…/{prefix}: the prefix of the keys is up to 128 letters, digits and _ . : - /")
    target = Target(addresses, prefix, unquote(username), Secret(unquote(password)), tls=scheme == "etcds")
    return _with_options(target, query)


def _address(text: str, scheme: str) -> Address:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s/]*)(?::([0-9]+))?", text)
    if found is None:
        raise Misuse(f"{scheme}://…: one of the hosts is no host or host:port")  # not shown: see plausible
    port = int(found[2]) if found[2] else DEFAULT_PORT
    if not 0 < port < 65536:
        raise Misuse(f"{scheme}://: {port} is no port")
    return found[1].strip("[]") or "localhost", port


def _with_options(target: Target, query: str) -> Target:
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key == "timeout":
            if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) or not 0.005 <= float(value) <= 600:
                raise Misuse(f"timeout must be a number of seconds from 0.005 to 600, not {value!r}")
            target = target._replace(timeout=float(value))
        elif key in ("ca", "cert", "cert_key"):
            if not target.tls:
                raise Misuse(f"{key} is for etcds://, which speaks TLS; this URL says etcd://")
            if key == "ca":
                target = target._replace(ca=value)
            elif key == "cert":
                target = target._replace(cert=value)
            else:
                target = target._replace(cert_key=value)
        else:
            raise Misuse(f"an etcd URL takes no option {key!r} (but timeout, ca, cert, cert_key)")
    if target.cert_key and not target.cert:
        raise Misuse("cert_key is the key of a certificate: name that with cert")
    return target


def tls_context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca or None)
        if target.cert:
            context.load_cert_chain(target.cert, target.cert_key or None)
    except OSError as error:
        raise Misuse(f"cannot read the certificates named in the URL (ca, cert, cert_key): {error}") from error
    context.set_alpn_protocols(["h2"])
    return context
