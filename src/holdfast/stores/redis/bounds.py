"""How much a server may say, counted before hiredis sees it.

hiredis makes room for a list as soon as its length is told, and Python goes through all of that room when it collects or gives it
back. Nor does hiredis look whether a text ends where it should: a list may begin in the middle of what looks like one. So of an
answer with a long list, or what might be one, each word is read here first; others are as short as they look.
"""

from __future__ import annotations

import re

from ...errors import NotInstalled

try:
    from hiredis import ProtocolError, Reader, ReplyError
except ImportError as error:
    raise NotInstalled("Redis stores need the package hiredis: pip install 'holdfast[redis]'") from error

__all__ = ["MOST", "Bounds", "ProtocolError", "Reader", "ReplyError"]

MOST = 1 << 20  # bytes of one reply
_LONG_LIST = re.compile(rb"[*%~>|][0-9]{3}")  # wherever it stands: a text of ours may also end so, and is no list
# Numbers and short texts, and what tells the length of what follows.
_WORDS = re.compile(rb"(?:[:+-][^\r\n]*+\r\n)*+(?:([$*])(-1|0|[1-9][0-9]{0,17})\r\n)?+")
_LINE = 1 << 16  # bytes of one that is neither a list nor a text
_LEAST = 3  # bytes of an element
_KEPT = 1 << 16  # bytes that are looked at later, if at all


class Bounds:
    """Of one connection. To be told of every whole reply, as soon as the reader gave it."""

    __slots__ = ("_kept", "_reader", "_seen", "_size", "_tail", "_words", "between")

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        # Two replies, with nothing there of the next. That the reader has no data left does not say so: of a list, it has taken
        # in the elements that came so far.
        self.between = True
        self._size = 0  # of a reply that is not whole yet
        self._kept: list[bytes] = []  # what was said since the last moment at which all was whole
        self._seen = 0  # bytes of that
        self._tail = b""  # a line may come in two pieces
        self._words: _Words | None = None  # if it is read word by word

    def check(self, data: bytes, most: int = MOST) -> bytes:
        self.between = False
        self._size += len(data)
        if self._size > most:
            raise ProtocolError(f"an answer of more than {most} bytes, which no lock has")
        if self._words is not None:
            self._words.read(data, most)
            return data
        self._kept.append(data)
        self._seen += len(data)
        seen = self._tail + data
        self._tail = seen[-3:]
        if self._seen > _KEPT or _LONG_LIST.search(seen):
            self._words = _Words()
            self._words.read(b"".join(self._kept), most)
            self._kept.clear()
        return data

    def whole(self) -> None:
        self._size = 0
        if not self._reader.has_data():
            self.between = True
            self._kept.clear()
            self._seen, self._tail, self._words = 0, b"", None
        elif self._words is not None:
            self._words.listed = 0


class _Words:
    """Reads as hiredis does, but for what no Redis says that was not asked for RESP 3."""

    __slots__ = ("_rest", "_skip", "listed")

    def __init__(self) -> None:
        self.listed = 0  # elements that were announced in this reply
        self._rest = b""  # the beginning of a line
        self._skip = 0  # bytes of a text, with its end

    def read(self, data: bytes, most: int) -> None:
        data, at = self._rest + data, 0
        while True:
            if self._skip:
                body = min(self._skip - 2, len(data) - at)
                at, self._skip = at + body, self._skip - body
                if len(data) - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise ProtocolError("a text that does not end where it should")
                at, self._skip = at + 2, 0
            word = _WORDS.match(data, at)
            assert word is not None  # it may be of no length
            at, (kind, length) = word.end(), word.groups()
            if kind is None:
                break
            count = int(length)
            if kind == b"$" and count >= 0:
                self._skip = count + 2
            elif count > 0:
                self.listed += count
                if self.listed * _LEAST > most:
                    raise ProtocolError(f"lists of more elements than {most} bytes hold, which no lock has")
        self._rest = data[at:]
        if b"\r\n" in self._rest:
            raise ProtocolError(f"a word that nobody asked for: {self._rest!r:.40}")
        if len(self._rest) > _LINE:
            raise ProtocolError("a line that does not end")
