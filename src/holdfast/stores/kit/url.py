"""What all URLs of networked stores have in common: addresses, numbers, words, TLS. What is not understood is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote

from ...drivers.base import Address
from ...errors import Misuse
from ...secret import Secret

if TYPE_CHECKING:
    from ssl import SSLContext

N = TypeVar("N", int, float)
Options = dict[str, tuple[str, Callable[[str, str], Any]]]  # of a URL → the field it fills, and who reads it


class Parts(NamedTuple):
    """Of `scheme://[user[:password]@]place[?query]`."""

    scheme: str
    has_login: bool
    user: str
    password: Secret
    place: str
    query: str


def split(url: str) -> Parts:
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    user, _, password = login.partition(":")
    return Parts(scheme, bool(at), unquote(user), Secret(unquote(password)), place, query)


def addresses(hosts: str, scheme: str, default: int) -> tuple[Address, ...]:
    """`host[:port][,host…]`, an IPv6 address in brackets."""
    found = tuple(_address(host, default, scheme) for host in hosts.split(","))
    if len(set(found)) != len(found):
        raise Misuse(f"{scheme}://{hosts}: a host is named twice")
    return found


def _address(text: str, default: int, scheme: str) -> Address:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s/]*)(?::([0-9]{1,5}))?", text)
    if found is None:
        raise Misuse(
            f"{scheme}://…: one of the hosts is no host or host:port"
        )  # not shown: it may be a piece of a password
    port = int(found[2]) if found[2] else default
    if not 0 < port < 65536:
        raise Misuse(f"{scheme}://: {port} is no port")
    return found[1].strip("[]") or "localhost", port


def show(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def options(query: str, table: Options, system: str) -> dict[str, Any]:
    """The fields that the query fills, by the store's table of options."""
    fields = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in table:
            raise Misuse(f"a {system} URL takes no option {key!r} (but {', '.join(table)})")
        field, read = table[key]
        fields[field] = read(value, "the token" if key == "token" else key)
    return fields


def text(value: str, what: str) -> str:
    return value


TLS_FILES: Options = {"ca": ("ca", text), "cert": ("cert", text), "cert_key": ("cert_key", text)}


class _Certified(Protocol):
    @property
    def tls(self) -> bool: ...
    @property
    def ca(self) -> str: ...  # the file of certificates to trust; "": the system's
    @property
    def cert(self) -> str: ...  # the client's own certificate, and its key
    @property
    def cert_key(self) -> str: ...


def check_tls(target: _Certified, scheme: str, with_tls: str) -> None:
    """Files for TLS, where none is spoken, would be a false sense of safety."""
    if not target.tls and (target.ca or target.cert or target.cert_key):
        raise Misuse(f"ca, cert and cert_key are for TLS, which {scheme}:// does not speak: write {with_tls}://")
    if target.cert_key and not target.cert:
        raise Misuse("cert_key is the key of a certificate: name that with cert")


def word(value: str, what: str) -> str:
    """It may be a secret: it is not shown when it is refused."""
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", value):
        raise Misuse(f"{what} must be up to 128 letters, digits and _ . : -")
    return value


def secret(value: str, what: str) -> Secret:
    return Secret(word(value, what))


def one_of(*known: str) -> Callable[[str, str], str]:
    def read(value: str, what: str) -> str:
        if value not in known:
            raise Misuse(f"{what} must be {' or '.join(known)}, not {value!r}")
        return value

    return read


def either(yes: str, no: str) -> Callable[[str, str], bool]:
    """Is it the one, and not the other?"""
    read = one_of(yes, no)
    return lambda value, what: read(value, what) == yes


def relaxed(value: str, what: str) -> bool:
    """The durability that is asked for: may a crash of the server forget the last moment?"""
    return one_of("full", "relaxed")(value, what) == "relaxed"


def whole(least: int, most: int) -> Callable[[str, str], int]:
    return _number(int, r"[0-9]{1,10}", "a whole number", least, most)


def seconds(least: float, most: float) -> Callable[[str, str], float]:
    return _number(float, r"[0-9]{1,9}(\.[0-9]{1,9})?", "a number of seconds", least, most)


def _number(kind: Callable[[str], N], form: str, called: str, least: N, most: N) -> Callable[[str, str], N]:
    def read(value: str, what: str) -> N:
        if not re.fullmatch(form, value) or not least <= kind(value) <= most:
            raise Misuse(f"{what} must be {called} from {least:.10g} to {most:.10g}, not {value!r}")
        return kind(value)

    return read


@cache
def tls_context(ca: str, cert: str, cert_key: str, protocol: str = "") -> SSLContext:
    """Built once: it takes longer than to connect. `protocol`: what is to be spoken over it, if the server has a choice."""
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, cert_key or None)
    except OSError as error:
        raise Misuse(f"cannot read the certificates named in the URL (ca, cert, cert_key): {error}") from error
    if protocol:
        context.set_alpn_protocols([protocol])
    return context
