"""What a Redis keeps, and the commands that holdfast uses on it: as the real one answers, expiry by the server's wall clock.

A value is bytes (a string), `Hash` or `Sorted`. An answer is bytes, an int, None, a list of these, or a `Status`.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MAX_STRING = 512 << 20


class Refused(Exception):
    """An error that the client is told, its code first."""


class Status(NamedTuple):
    text: bytes


class Hash(dict[bytes, bytes]):
    pass


class Sorted(dict[bytes, float]):
    """Members and their scores."""

    def in_order(self) -> list[tuple[bytes, float]]:
        return sorted(self.items(), key=lambda item: (item[1], item[0]))


Value = bytes | Hash | Sorted
OK = Status(b"OK")
SYNTAX = "ERR syntax error"
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_INTEGER = "ERR value is not an integer or out of range"


def whole(word: bytes) -> int:
    if word.isdigit() and len(word) < 19 and (word[:1] != b"0" or word == b"0"):
        return int(word)
    if not re.fullmatch(rb"-?(0|[1-9][0-9]{0,18})", word) or word == b"-0" or not -(1 << 63) <= int(word) < 1 << 63:
        raise Refused(NO_INTEGER)
    return int(word)


def number(word: bytes, what: str = "ERR value is not a valid float") -> float:
    try:
        found = float(word)
    except ValueError:
        raise Refused(what) from None
    if math.isnan(found) or word != word.strip() or b"_" in word:
        raise Refused(what)
    return found


def shown(score: float) -> bytes:
    if math.isinf(score):
        return b"inf" if score > 0 else b"-inf"
    return b"%d" % score if score == int(score) and abs(score) < 1e17 else repr(score).encode()


class Keyspace:
    """`now_us` is the server's wall clock; `changed(key)` is told of every change, after it; `expired(key, value, end)` of
    what is over, when that is found out."""

    def __init__(self, now_us: Callable[[], int], changed: Callable[[bytes], object] = lambda _: None) -> None:
        self.values: dict[bytes, Value] = {}
        self.ends: dict[bytes, int] = {}  # ms
        self._now_us = now_us
        self._changed = changed
        self.expired: Callable[[bytes, Value, int], object] = lambda *_: None

    # ---- keys

    def get(self, key: bytes) -> Value | None:
        end = self.ends.get(key)
        if end is not None and end <= self._now_us() // 1000:
            self.expired(key, self.values[key], end)
            self.remove(key)
            return None
        return self.values.get(key)

    def put(self, key: bytes, value: Value, end: int | None) -> None:
        self.values[key] = value
        if end is None:
            self.ends.pop(key, None)
        else:
            self.ends[key] = end
        self._changed(key)

    def remove(self, key: bytes) -> bool:
        self.ends.pop(key, None)
        there = self.values.pop(key, None) is not None
        if there:
            self._changed(key)
        return there

    def keys(self) -> list[bytes]:
        return [key for key in list(self.values) if self.get(key) is not None]

    def _string(self, key: bytes) -> bytes | None:
        value = self.get(key)
        if value is not None and type(value) is not bytes:
            raise Refused(WRONG_TYPE)
        return value

    def _hash(self, key: bytes) -> Hash:
        value = self.get(key)
        if value is not None and type(value) is not Hash:
            raise Refused(WRONG_TYPE)
        return Hash() if value is None else value

    def _sorted(self, key: bytes) -> Sorted:
        value = self.get(key)
        if value is not None and type(value) is not Sorted:
            raise Refused(WRONG_TYPE)
        return Sorted() if value is None else value

    def _keep(self, key: bytes, value: Hash | Sorted) -> None:
        """After a change within it: an empty one is none."""
        if value:
            self.put(key, value, self.ends.get(key))
        else:
            self.remove(key)

    # ---- commands, each called with its words

    def get_(self, key: bytes) -> bytes | None:
        return self._string(key)

    def set_(self, key: bytes, value: bytes, *options: bytes) -> Status | None:
        end: int | None = None
        keep = False
        only: bool | None = None  # if it exists, or if it does not
        words = iter(options)
        for word in words:
            option = word.upper()
            if option in (b"PX", b"EX") and end is None and not keep:
                long = whole(_next(words)) * (1000 if option == b"EX" else 1)
                if not 0 < long < 1 << 62:
                    raise Refused("ERR invalid expire time in 'set' command")
                end = self._now_us() // 1000 + long
            elif option == b"KEEPTTL" and end is None:
                keep = True
            elif option in (b"NX", b"XX") and only is None:
                only = option == b"XX"
            else:
                raise Refused(SYNTAX)
        if only is not None and (self.get(key) is not None) is not only:
            return None
        self.get(key)  # what is over does not lend its end to what follows
        self.put(key, value, self.ends.get(key) if keep else end)
        return OK

    def setrange(self, key: bytes, offset: bytes, piece: bytes) -> int:
        at = whole(offset)
        if at < 0:
            raise Refused("ERR offset is out of range")
        value = self._string(key)
        if not piece:
            return len(value or b"")
        if at + len(piece) > MAX_STRING:
            raise Refused("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
        value = (value or b"").ljust(at, b"\0")
        value = value[:at] + piece + value[at + len(piece) :]
        self.put(key, value, self.ends.get(key))
        return len(value)

    def del_(self, *keys: bytes) -> int:
        return sum(self.get(key) is not None and self.remove(key) for key in keys)

    def exists(self, *keys: bytes) -> int:
        return sum(self.get(key) is not None for key in keys)

    def pexpire(self, key: bytes, milliseconds: bytes) -> int:
        long = whole(milliseconds)
        if not -(1 << 62) < long < 1 << 62:
            raise Refused("ERR invalid expire time in 'pexpire' command")
        value = self.get(key)
        if value is None:
            return 0
        if long <= 0:
            self.remove(key)
        else:
            self.put(key, value, self._now_us() // 1000 + long)
        return 1

    def pttl(self, key: bytes) -> int:
        if self.get(key) is None:
            return -2
        end = self.ends.get(key)
        return -1 if end is None else end - self._now_us() // 1000

    def hget(self, key: bytes, field: bytes) -> bytes | None:
        return self._hash(key).get(field)

    def hset(self, key: bytes, *words: bytes) -> int:
        if len(words) % 2:
            raise Refused("ERR wrong number of arguments for 'hset' command")
        value = self._hash(key)
        before = len(value)
        value.update(zip(words[::2], words[1::2], strict=True))
        self._keep(key, value)
        return len(value) - before

    def hdel(self, key: bytes, *fields: bytes) -> int:
        return self._dropped(key, self._hash(key), fields)

    def hgetall(self, key: bytes) -> list[bytes]:
        return [word for item in self._hash(key).items() for word in item]

    def zadd(self, key: bytes, *words: bytes) -> int:
        only_new = words[:1] == (b"NX",) or words[:1] == (b"nx",)
        pairs = words[only_new:]
        if len(pairs) % 2 or not pairs:
            raise Refused(SYNTAX)
        scores = [number(word) for word in pairs[::2]]
        value = self._sorted(key)
        before = len(value)
        for score, member in zip(scores, pairs[1::2], strict=True):
            if not (only_new and member in value):
                value[member] = score
        self._keep(key, value)
        return len(value) - before

    def zrem(self, key: bytes, *members: bytes) -> int:
        return self._dropped(key, self._sorted(key), members)

    def zcard(self, key: bytes) -> int:
        return len(self._sorted(key))

    def zrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> list[bytes]:
        if [option.upper() for option in options] not in ([], [b"WITHSCORES"]):
            raise Refused(SYNTAX)
        start, stop = whole(first), whole(last)
        items = self._sorted(key).in_order()
        start = max(start + len(items), 0) if start < 0 else start
        stop = stop + len(items) if stop < 0 else stop
        return _listed(items[start : stop + 1] if stop >= 0 else [], bool(options))

    def zrangebyscore(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[bytes]:
        offset, count, with_scores = 0, -1, False
        words = iter(options)
        for word in words:
            if word.upper() == b"WITHSCORES":
                with_scores = True
            elif word.upper() == b"LIMIT":
                offset, count = whole(_next(words)), whole(_next(words))
            else:
                raise Refused(SYNTAX)
        (least, open_below), (most, open_above) = _bound(low), _bound(high)
        found = [
            item
            for item in self._sorted(key).in_order()
            if (least < item[1] if open_below else least <= item[1])
            and (item[1] < most if open_above else item[1] <= most)
        ]
        if offset < 0:
            return []
        return _listed(found[offset : None if count < 0 else offset + count], with_scores)

    def time(self) -> list[bytes]:
        now = self._now_us()
        return [b"%d" % (now // 1_000_000), b"%d" % (now % 1_000_000)]

    def scan(self, cursor: bytes, *options: bytes) -> list[Any]:
        """All that there is, at once: a server may give more than it was asked for."""
        if not cursor.isdigit():
            raise Refused("ERR invalid cursor")
        keys, words = self.keys(), iter(options)
        for word in words:
            if word.upper() == b"MATCH":
                matches = _pattern(_next(words))
                keys = [key for key in keys if matches(key)]
            elif word.upper() == b"COUNT":
                if whole(_next(words)) < 1:
                    raise Refused(SYNTAX)
            else:
                raise Refused(SYNTAX)
        return [b"0", keys if cursor == b"0" else []]

    def flushall(self) -> Status:
        for key in list(self.values):
            self.remove(key)
        return OK

    def dbsize(self) -> int:
        return len(self.values)

    def _dropped(self, key: bytes, value: Hash | Sorted, members: tuple[bytes, ...]) -> int:
        gone = sum(value.pop(member, None) is not None for member in members)
        if gone:
            self._keep(key, value)
        return gone


def _next(words: Iterator[bytes]) -> bytes:
    for word in words:
        return word
    raise Refused(SYNTAX)


def _listed(items: list[tuple[bytes, float]], with_scores: bool) -> list[bytes]:
    if not with_scores:
        return [member for member, _ in items]
    return [word for member, score in items for word in (member, shown(score))]


def _bound(word: bytes) -> tuple[float, bool]:
    figure = word.removeprefix(b"(") or b"0"  # strtod() takes nothing for 0
    return number(figure, "ERR min or max is not a float"), word.startswith(b"(")


def _pattern(pattern: bytes) -> Callable[[bytes], bool]:
    """Redis's: a backslash makes the next character plain. That is what our patterns use, and `*`."""
    text = re.sub(r"\\(.)", lambda found: f"[{found[1]}]", pattern.decode("latin-1"), flags=re.DOTALL)
    matches = re.compile(fnmatch.translate(text)).match
    return lambda key: matches(key.decode("latin-1")) is not None


# What is called by which word, and how many words it takes with it: at least that many, if negative.
COMMANDS: dict[bytes, tuple[str, int]] = {
    b"GET": ("get_", 1),
    b"SET": ("set_", -2),
    b"SETRANGE": ("setrange", 3),
    b"DEL": ("del_", -1),
    b"EXISTS": ("exists", -1),
    b"PEXPIRE": ("pexpire", 2),
    b"PTTL": ("pttl", 1),
    b"HGET": ("hget", 2),
    b"HSET": ("hset", -3),
    b"HDEL": ("hdel", -2),
    b"HGETALL": ("hgetall", 1),
    b"ZADD": ("zadd", -3),
    b"ZREM": ("zrem", -2),
    b"ZCARD": ("zcard", 1),
    b"ZRANGE": ("zrange", -3),
    b"ZRANGEBYSCORE": ("zrangebyscore", -3),
    b"TIME": ("time", 0),
    b"SCAN": ("scan", -1),
    b"FLUSHALL": ("flushall", 0),
    b"DBSIZE": ("dbsize", 0),
}
