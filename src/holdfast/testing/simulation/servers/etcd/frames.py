"""The server's end of gRPC over HTTP/2: bytes in, calls out. Pure.

By hand, and not with h2 as the client is: a server answers what one kind of client asks, with headers that never change, and at
a fifth of the cost. The windows that it opens are wide, so that it never waits for room; it counts on its clients' being as wide.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from hpack import Decoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY, _ACK = 1, 4, 8, 32, 1
_WIDE = (1 << 30).to_bytes(4, "big")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _literal(name: bytes, value: bytes, *, kept: bool = False) -> bytes:
    """HPACK. `kept`: the client remembers it, as number 62, and what it remembered before as one more. Short words only."""
    return (b"\x40" if kept else b"\0") + bytes((len(name),)) + name + bytes((len(value),)) + value


_WELL = b"\x88"  # `:status: 200` of the static table
_TYPE = _literal(b"content-type", b"application/grpc", kept=True)
_DONE = _literal(b"grpc-status", b"0", kept=True)
_LAST, _LAST_BUT_ONE = b"\xbe", b"\xbf"  # 62 and 63
GREETING = frame(_SETTINGS, 0, 0, b"\0\4" + _WIDE) + frame(_WINDOW_UPDATE, 0, 0, _WIDE)
GOODBYE = frame(_GOAWAY, 0, 0, (2**31 - 1).to_bytes(4, "big") + bytes(4))


class Call(NamedTuple):
    """A message of a stream. `last`: the client sends no more on it."""

    stream: int
    path: bytes
    token: bytes  # of a login
    message: bytes
    last: bool


class Over(NamedTuple):
    """The client has given this stream up."""

    stream: int


class _Open:
    __slots__ = ("begun", "path", "token", "unread")

    def __init__(self, path: bytes, token: bytes) -> None:
        self.path = path
        self.token = token
        self.unread = b""
        self.begun = False


class Conversation:
    """One connection."""

    def __init__(self) -> None:
        self._unread = b""
        self._greeted = False
        self._decoder = Decoder()
        self._open: dict[int, _Open] = {}
        self._known: dict[bytes, tuple[bytes, bytes]] = {}  # headers that say nothing new
        self._begin, self._done = _WELL + _TYPE, _DONE
        self.outgoing = bytearray(GREETING)

    def taken(self) -> bytes:
        waiting = bytes(self.outgoing)
        self.outgoing.clear()
        return waiting

    def feed(self, received: bytes) -> list[Call | Over]:
        unread = self._unread + received
        if not self._greeted:
            if len(unread) < len(PREFACE):
                self._unread = unread
                return []
            if not unread.startswith(PREFACE):
                raise ConnectionError("that is not HTTP/2")
            unread, self._greeted = unread[len(PREFACE) :], True
        found: list[Call | Over] = []
        at = 0
        while len(unread) - at >= 9:
            size = int.from_bytes(unread[at : at + 3], "big")
            if len(unread) - at - 9 < size:
                break
            kind, flags = unread[at + 3], unread[at + 4]
            stream = int.from_bytes(unread[at + 5 : at + 9], "big")
            self._read(kind, flags, stream, unread[at + 9 : at + 9 + size], found)
            at += 9 + size
        self._unread = unread[at:]
        return found

    def _read(self, kind: int, flags: int, stream: int, payload: bytes, found: list[Call | Over]) -> None:
        if kind == _DATA:
            self._messages(stream, payload, bool(flags & _END_STREAM), found)
        elif kind == _HEADERS:
            if flags & (_PADDED | _PRIORITY) or not flags & _END_HEADERS:
                raise NotImplementedError("our client sends its headers whole")
            self._open[stream] = _Open(*(self._known.get(payload) or self._headers(payload)))
        elif kind == _RESET:
            if self._open.pop(stream, None) is not None:
                found.append(Over(stream))
        elif kind == _SETTINGS and not flags & _ACK:
            self.outgoing += frame(_SETTINGS, _ACK, 0)
        elif kind == _PING and not flags & _ACK:
            self.outgoing += frame(_PING, _ACK, 0, payload)

    def _headers(self, block: bytes) -> tuple[bytes, bytes]:
        headers = dict(self._decoder.decode(block, raw=True))
        found = headers[b":path"], headers.get(b"token", b"")
        if min(block) >= 128:  # numbers of what was said before, and of nothing else
            self._known[block] = found
        else:
            self._known.clear()
        return found

    def _messages(self, number: int, payload: bytes, last: bool, found: list[Call | Over]) -> None:
        one = self._open.get(number)
        if one is None:
            return
        unread = one.unread + payload
        while len(unread) >= 5 and len(unread) >= (size := 5 + int.from_bytes(unread[1:5], "big")):
            found.append(Call(number, one.path, one.token, unread[5:size], last and len(unread) == size))
            unread = unread[size:]
        one.unread = unread

    # ---- answers; to a stream that its client has given up, nothing is said

    def say(self, number: int, message: bytes) -> None:
        one = self._open.get(number)
        if one is None:
            return
        if not one.begun:
            one.begun = True
            self.outgoing += frame(_HEADERS, _END_HEADERS, number, self._beginning())
        whole = b"\0" + len(message).to_bytes(4, "big") + message
        for at in range(0, len(whole), 16384):
            self.outgoing += frame(_DATA, 0, number, whole[at : at + 16384])

    def end(self, number: int, code: int = 0, why: str = "") -> None:
        one = self._open.pop(number, None)
        if one is None:
            return
        trailers = b"" if one.begun else self._beginning()
        if code:
            trailers += _literal(b"grpc-status", b"%d" % code) + _literal(
                b"grpc-message", quote(why, safe=" :").encode()
            )
        else:
            trailers += self._done
            if self._done is _DONE:
                self._begin, self._done = _WELL + _LAST_BUT_ONE, _LAST
        self.outgoing += frame(_HEADERS, _END_HEADERS | _END_STREAM, number, trailers)

    def _beginning(self) -> bytes:
        begin = self._begin
        if begin == _WELL + _TYPE:
            self._begin = _WELL + _LAST
        return begin
