"""What Consul answers: as much of HTTP/1.1 as it speaks, and its JSON. Pure: the wire brings the bytes.

Written by hand: h11 took 229 µs for a request and its answer where this takes 18, and a lock asks twice in some 3 ms.
Whatever is not exactly as expected is refused: nobody guesses where an answer ends.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ...errors import HoldfastError, Misuse, Unavailable

MOST_HEADER = 65536
MOST = 1 << 20  # bytes of an answer
MOST_LISTED = 1 << 26  # of one that lists books, or a session's mail
T = TypeVar("T")
_FIRST_LINE = re.compile(r"HTTP/1\.([01]) ([2-5][0-9][0-9])( .*)?")
_NUMBER = re.compile("[0-9]{1,19}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;.*)?")
_BODILESS = (204, 304)
SESSION_ID = "[0-9a-f-]{36}"


class Answer(NamedTuple):
    """What the agent said."""

    status: int
    at: int  # X-Consul-Index: where a blocking query goes on
    body: bytes


class Item(NamedTuple):
    key: str
    value: bytes
    at: int
    session: str


class Reader:
    """Puts one answer together."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._data = bytearray()  # not yet looked at
        self._body = bytearray()
        self._state: Callable[[], bool] = self._head  # what is expected now; True: there was enough of it
        self._length = 0  # what is missing of the body, or of the chunk
        self._status = self._index = self._trailing = 0
        self._done = False
        self.keeps_alive = True

    def feed(self, data: bytes) -> Answer | None:
        """The whole answer, when it is there. ValueError: that is no HTTP, or too much of it."""
        self._data += data
        while not self._done and self._state():
            pass
        if not self._done:
            return None
        self.keeps_alive = self.keeps_alive and not self._data  # what else it says was not asked for
        return Answer(self._status, self._index, bytes(self._body))

    def end(self) -> Answer:
        """The agent hung up. EOFError: in mid-answer."""
        if self._state != self._until_the_end:
            raise EOFError("the agent closed it")
        return Answer(self._status, self._index, bytes(self._body))

    def _line(self) -> bytes | None:
        end = self._data.find(b"\r\n")
        if end < 0:
            if len(self._data) > MOST_HEADER:
                raise ValueError("a line without end")
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        return line

    def _head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or end > MOST_HEADER:
            if len(self._data) > MOST_HEADER:
                raise ValueError("a header without end")
            return False
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        del self._data[: end + 4]
        found = _FIRST_LINE.fullmatch(first)
        if found is None:
            raise ValueError(f"{first[:40]!r} is no answer of HTTP")
        self._status = int(found[2])
        self.keeps_alive = found[1] == "1"
        lengths, codings = set(), []
        for line in lines:
            key, _, value = line.partition(":")
            key, value = key.lower(), value.strip()
            if key == "content-length":
                lengths.add(value)
            elif key == "transfer-encoding":
                codings.append(value.lower())
            elif key == "x-consul-index":
                self._index = _number(value)
            elif key == "connection" and value.lower() == "close":
                self.keeps_alive = False
        self._expect(lengths, codings)
        return True

    def _expect(self, lengths: set[str], codings: list[str]) -> None:
        """A body: of what length?"""
        if self._status in _BODILESS:
            self._done = True
        elif codings:
            if codings != ["chunked"] or lengths:
                raise ValueError("a body of uncertain length")
            self._state = self._chunk_size
        elif lengths:
            if len(lengths) > 1:
                raise ValueError("a body of uncertain length")
            self._length = self._believed(_number(lengths.pop()))
            self._state = self._whole
        else:
            self.keeps_alive = False
            self._state = self._until_the_end

    def _believed(self, more: int) -> int:
        if len(self._body) + more > self._most:
            raise ValueError(f"an answer of more than {self._most} bytes")
        return more

    def _whole(self) -> bool:
        self._done = self._take()
        return self._done

    def _until_the_end(self) -> bool:
        self._length = self._believed(len(self._data))
        self._take()
        return False

    def _chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise ValueError(f"{line[:20]!r} is no size of a chunk")
        self._length = self._believed(int(found[1], 16))
        self._state = self._chunk if self._length else self._trailer
        return True

    def _chunk(self) -> bool:
        if not self._take() or len(self._data) < 2:
            return False
        if self._data[:2] != b"\r\n":
            raise ValueError("a chunk is longer than it said")
        del self._data[:2]
        self._state = self._chunk_size
        return True

    def _trailer(self) -> bool:
        line = self._line()
        self._done = line == b""
        self._trailing += len(line or b"")
        if self._trailing > MOST_HEADER:
            raise ValueError("a trailer without end")
        return line is not None

    def _take(self) -> bool:
        """Of what is there, into the body. True: all of it."""
        piece = self._data[: self._length]
        self._body += piece
        del self._data[: len(piece)]
        self._length -= len(piece)
        return self._length == 0


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:20]!r} is no number")
    return int(text)


def told(answer: Answer, where: str, read: Callable[[Any], T]) -> T:
    """What `read` makes of the answer's JSON; Unavailable, if it is not what was asked for."""
    try:
        return read(json.loads(answer.body))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise Unavailable(f"what answers at {where} does not speak as Consul does: {error!r:.200}") from error


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


# ---- what transactions answer


def items(said: Any) -> list[Item]:
    return [_item(result["KV"]) for result in said["Results"] or ()]


def _item(pair: Any) -> Item:
    value = base64.b64decode(pair["Value"] or "")
    return Item(str(pair["Key"]), value, _index(pair["ModifyIndex"]), str(pair.get("Session", "")))


def _index(said: Any) -> int:
    if type(said) is not int or said < 0:
        raise ValueError("no index")
    return said


def session_id(said: Any) -> str:
    """It becomes part of keys and of addresses."""
    found = said["ID"]
    if not re.fullmatch(SESSION_ID, found):
        raise ValueError("no id of a session")
    return str(found)


def index(said: Any) -> int:
    return max((_index(result["KV"]["ModifyIndex"]) for result in said["Results"] or ()), default=0)


def first_error(said: Any) -> tuple[int, str]:
    return min((int(error["OpIndex"]), str(error["What"])) for error in said["Errors"])
