"""Consul URLs, read strictly: what is not understood is refused, and the access token is never shown."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from ...errors import Misuse

DEFAULT_PORT = 8500
DEFAULT_TLS_PORT = 8501
MOST_LOCK_DELAY = 60.0  # Consul's own limit
Address = tuple[str, int]


class Target(NamedTuple):
    """Where to connect, as whom, and how."""

    addresses: tuple[Address, ...]
    prefix: str = "holdfast"
    token: str = ""
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
        return f"<{self.shown()}>"

    def shown(self) -> str:
        """Fit to be shown."""
        return ",".join(map(show, self.addresses))


def show(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(url: str) -> Target:
    """`scheme://[:token@]host[:port][,host…][/prefix][?option=value&…]`."""
    scheme, _, rest = url.partition("://")
    tls = scheme == "consuls"
    rest, _, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    hosts, _, prefix = place.partition("/")
    addresses = tuple(_address(host, DEFAULT_TLS_PORT if tls else DEFAULT_PORT, scheme) for host in hosts.split(","))
    if len(set(addresses)) != len(addresses):
        raise Misuse(f"{scheme}://{hosts}: a host is named twice")
    target = Target(addresses, tls=tls)
    if at:
        user, _, token = login.partition(":")
        if user:
            raise Misuse(f"{scheme}:// takes a token and no user: write {scheme}://:TOKEN@host or ?token=TOKEN")
        target = target._replace(token=_word(unquote(token), "the token"))
    if prefix:
        target = target._replace(prefix=_prefix(unquote(prefix)))
    for key, value in parse_qsl(query, keep_blank_values=True):
        target = _with_option(target, key, value)
    if not tls and (target.ca or target.cert or target.cert_key):
        raise Misuse("ca, cert and cert_key are for consuls://, which speaks TLS")
    return target


def _with_option(target: Target, key: str, value: str) -> Target:
    if key == "token":
        return target._replace(token=_word(value, "the token"))
    if key == "timeout":
        return target._replace(timeout=_seconds(value, key, 0.05, 600))
    if key == "lock_delay":
        return target._replace(lock_delay=_seconds(value, key, 0, MOST_LOCK_DELAY))
    if key == "min_ttl":
        return target._replace(min_ttl=_seconds(value, key, 0.05, 86400))
    if key == "node":
        return target._replace(node=_word(value, key))
    if key == "dc":
        return target._replace(datacenter=_word(value, key))
    if key == "ca":
        return target._replace(ca=value)
    if key == "cert":
        return target._replace(cert=value)
    if key == "cert_key":
        return target._replace(cert_key=value)
    raise Misuse(
        f"a Consul URL takes no option {key!r} (but token, timeout, lock_delay, min_ttl, node, dc, ca, cert, cert_key)"
    )


def _address(text: str, default: int, scheme: str) -> Address:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s/]*)(?::([0-9]{1,5}))?", text)
    if found is None:
        raise Misuse(f"{scheme}://: {text!r} is no host or host:port")
    port = int(found[2]) if found[2] else default
    if not 0 < port < 65536:
        raise Misuse(f"{scheme}://: {port} is no port")
    return found[1].strip("[]") or "localhost", port


def _prefix(text: str) -> str:
    text = text.rstrip("/")
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+)*", text) or len(text) > 128:
        raise Misuse(f"the prefix {text!r} must be up to 128 letters, digits and _ . : - in parts divided by /")
    return text


def _word(text: str, what: str) -> str:
    """A token is a secret: it is not shown when it is refused."""
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", text):
        raise Misuse(f"{what} must be up to 128 letters, digits and _ . : -")
    return text


def _seconds(text: str, what: str, least: float, most: float) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or not least <= float(text) <= most:
        raise Misuse(f"{what} must be a number of seconds from {least:g} to {most:g}, not {text!r}")
    return float(text)
