"""The server's end of gRPC over HTTP/2: bytes in, calls out. Pure.

A server answers what one kind of client asks, with headers that never change. The windows that it opens are wide, so that it
never waits for room; it counts on its clients' being as wide.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from hpack import Decoder

from .....stores.etcd.channel import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LARGEST,
    PADDED,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    frame,
)

_WIDE = (1 << 30).to_bytes(4, "big")


def _literal(name: bytes, value: bytes, *, kept: bool = False) -> bytes:
    """HPACK. `kept`: the client remembers it, as number 62, and what it remembered before as one more. Short words only."""
    return (b"\x40" if kept else b"\0") + bytes((len(name),)) + name + bytes((len(value),)) + value


_WELL = b"\x88"  # `:status: 200` of the static table
_TYPE = _literal(b"content-type", b"application/grpc", kept=True)
_DONE = _literal(b"grpc-status", b"0", kept=True)
_LAST, _LAST_BUT_ONE = b"\xbe", b"\xbf"  # 62 and 63
GREETING = frame(SETTINGS, 0, 0, b"\0\4" + _WIDE) + frame(WINDOW_UPDATE, 0, 0, _WIDE)
GOODBYE = frame(GOAWAY, 0, 0, (2**31 - 1).to_bytes(4, "big") + bytes(4))


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


@lru_cache(4096)
def _understood(said: tuple[bytes, ...], block: bytes) -> tuple[bytes, bytes, bool]:
    """Which path and which token, after all that was said before, and whether that is more now to refer to.

    Most connections begin with the same words.
    """
    decoder = Decoder()
    for one in said:
        decoder.decode(one, raw=True)
    known = len(decoder.header_table.dynamic_entries)
    headers = dict(decoder.decode(block, raw=True))
    return headers[b":path"], headers.get(b"token", b""), len(decoder.header_table.dynamic_entries) > known


class Conversation:
    """One connection."""

    def __init__(self) -> None:
        self._unread = b""
        self._greeted = False
        self._said: tuple[bytes, ...] = ()  # header blocks that there was something new in
        self._open: dict[int, _Open] = {}
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
        if kind == DATA:
            self._messages(stream, payload, bool(flags & END_STREAM), found)
        elif kind == HEADERS:
            if flags & (PADDED | WITH_PRIORITY) or not flags & END_HEADERS:
                raise NotImplementedError("our client sends its headers whole")
            self._open[stream] = _Open(*self._headers(payload))
        elif kind == RESET:
            if self._open.pop(stream, None) is not None:
                found.append(Over(stream))
        elif kind == SETTINGS and not flags & ACK:
            self.outgoing += frame(SETTINGS, ACK, 0)
        elif kind == PING and not flags & ACK:
            self.outgoing += frame(PING, ACK, 0, payload)

    def _headers(self, block: bytes) -> tuple[bytes, bytes]:
        path, token, new = _understood(self._said, block)
        if new:
            self._said += (block,)
        return path, token

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
            self.outgoing += frame(HEADERS, END_HEADERS, number, self._beginning())
        whole = b"\0" + len(message).to_bytes(4, "big") + message
        for at in range(0, len(whole), LARGEST):
            self.outgoing += frame(DATA, 0, number, whole[at : at + LARGEST])

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
        self.outgoing += frame(HEADERS, END_HEADERS | END_STREAM, number, trailers)

    def _beginning(self) -> bytes:
        begin = self._begin
        if begin == _WELL + _TYPE:
            self._begin = _WELL + _LAST
        return begin
