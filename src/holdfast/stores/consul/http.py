"""As much of HTTP/1.1 as Consul speaks. Pure: bytes in, bytes out; the wires bring and fetch them.

Written by hand because no client of the standard library speaks asyncio, and one way for both surfaces is worth more than
the two pages that it takes.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import HoldfastError, Misuse, Unavailable
from .url import Address, Target, show

MOST_HEADER = 65536
MOST_BODY = 256 * 1024 * 1024


class Answer(NamedTuple):
    """What the agent said."""

    status: int
    at: int  # X-Consul-Index: where a blocking query goes on
    body: bytes


def request(target: Target, address: Address, method: str, path: str, body: bytes = b"") -> bytes:
    """`path` has been quoted already."""
    if target.datacenter:
        path += ("&" if "?" in path else "?") + f"dc={target.datacenter}"
    secret = f"X-Consul-Token: {target.token}\r\n" if target.token else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: {show(address)}\r\n{secret}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Reader:
    """Puts one answer together."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._begin = -1  # of the body
        self._length = -1  # of the body; -1: in chunks
        self._status = self._index = 0
        self.keeps_alive = True

    def feed(self, data: bytes) -> Answer | None:
        """The whole answer, when it is there. ValueError: that is no HTTP."""
        self._data += data
        if self._begin < 0 and not self._head():
            return None
        if self._length >= 0:
            rest = self._data[self._begin :] if len(self._data) >= self._begin + self._length else None
        else:
            rest = _unchunked(self._data, self._begin)
        return None if rest is None else Answer(self._status, self._index, bytes(rest))

    def _head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > MOST_HEADER:
                raise ValueError("a header without end")
            return False
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ", 2)
        if not version.startswith("HTTP/1."):
            raise ValueError(f"{first[:40]!r} is no answer of HTTP")
        self._status = int(status)
        for line in lines:
            key, _, value = line.partition(":")
            key, value = key.lower(), value.strip()
            if key == "content-length":
                self._length = int(value)
                if self._length > MOST_BODY:
                    raise ValueError("an answer of more than 256 MB")
            elif key == "x-consul-index":
                self._index = int(value)
            elif key == "connection" and value.lower() == "close":
                self.keeps_alive = False
        self._begin = end + 4
        return True


def _unchunked(data: bytearray, at: int) -> bytearray | None:
    body = bytearray()
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at:end].split(b";")[0], 16)
        if len(body) + size > MOST_BODY:
            raise ValueError("an answer of more than 256 MB")
        at = end + 2
        if len(data) < at + size + 2:
            return None
        if size == 0:
            return body
        body += data[at : at + size]
        at += size + 2


def checked(answer: Answer, where: str) -> Answer:
    """The answer, unless it says that the agent cannot help, or must not."""
    if answer.status < 400 or answer.status in (404, 409):
        return answer
    raise refusal(answer.status, answer.body, where)


def refusal(status: int, body: bytes, where: str) -> HoldfastError:
    said = body[:300].decode("utf-8", "replace").strip()
    if status == 403 or "Permission denied" in said or "ACL not found" in said:
        return Misuse(
            f"Consul at {where} denies access ({said}): the token needs key_prefix write on the prefix, and session write "
            "on the node (see least privilege in docs/consul.md)"
        )
    if status == 413:
        return Misuse(f"Consul at {where} refuses so large a value: too many wait for one name ({said})")
    if status == 400:
        return Misuse(f"Consul at {where} refuses the request: {said}")
    return Unavailable(f"Consul at {where} cannot serve now ({status}: {said})")
