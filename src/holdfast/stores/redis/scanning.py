"""A walk through the keys of one server. It comes to an end, whatever the server says."""

from __future__ import annotations

import time

from ...errors import Unavailable
from .keys import pack, state_key
from .replies import MOST_OF_LOOKING, Reply, nonsense

COUNT = 500
LONGEST = 120.0  # seconds: some hundred million keys, of whomever
_DIGITS = 20  # of a cursor
_clock = time.monotonic


def pattern_of(prefix: bytes, names: str) -> bytes:
    """What the keys look like whose names begin so."""
    start = state_key(prefix, names) if names else b"%b:{}" % prefix
    return start[:-1].replace(b"\\", b"\\\\") + b"*}"


class Scan:
    """`after`: the walk through another node of the same cluster. Both together have a bound."""

    def __init__(self, pattern: bytes, where: str, after: Scan | None = None) -> None:
        self._pattern = pattern
        self._where = where
        self._cursor = b"0"
        self._seen: set[bytes] = set()
        self._size: int = after._size if after else 0
        self._ends: float = after._ends if after else _clock() + LONGEST

    def request(self) -> bytes:
        return pack("SCAN", self._cursor, "MATCH", self._pattern, "COUNT", COUNT)

    def take(self, reply: Reply) -> list[bytes]:
        """The keys that were found; see `is_over`."""
        if not is_scanned(reply) or reply[0] in self._seen:
            raise nonsense(reply, self._where)
        self._cursor = reply[0]
        self._seen.add(self._cursor)
        keys: list[bytes] = reply[1]
        self._size += sum(map(len, keys))
        if self._size > MOST_OF_LOOKING:
            raise Unavailable(f"Redis at {self._where} has more than {MOST_OF_LOOKING >> 20} MB of names")
        if _clock() > self._ends:
            raise Unavailable(f"Redis at {self._where} has too many keys to look through in {LONGEST:g} s")
        return keys

    @property
    def is_over(self) -> bool:
        return self._cursor == b"0" and bool(self._seen)


def is_scanned(reply: Reply) -> bool:
    if type(reply) is not list or len(reply) != 2 or type(reply[0]) is not bytes or type(reply[1]) is not list:
        return False
    if not reply[0].isdigit() or len(reply[0]) > _DIGITS:  # all cursors are remembered
        return False
    return all(type(key) is bytes for key in reply[1])
