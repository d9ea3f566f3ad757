"""What stands in etcd: keys, revisions, leases; transactions over them. Pure, but for the clock that it is given.

Held to a real etcd by tests/simulation/servers/test_etcd_like_the_real_one.py.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .....stores.etcd.channel import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND
from .....stores.etcd.replies import fields
from .....stores.etcd.requests import DESCEND, data, number

MOST_OPERATIONS = 128
_RANGE, _PUT, _DELETE, _TXN = 1, 2, 3, 4
_FROM_KEY = b"\0"

Fields = dict[int, int | bytes]
Asked = list[tuple[int, int | bytes]]
Branches = dict[int, list[tuple[int, bytes]]]


class Refused(Exception):
    """By its gRPC code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Pair(NamedTuple):
    created: int
    modified: int
    version: int
    value: bytes
    lease: int

    def packed(self, key: bytes, keys_only: bool = False) -> bytes:
        value = b"" if keys_only else data(5, self.value)
        return (
            data(1, key)
            + number(2, self.created)
            + number(3, self.modified)
            + number(4, self.version)
            + value
            + number(6, self.lease)
        )


class Lease:
    __slots__ = ("ends", "keys", "seconds")

    def __init__(self, seconds: int, ends: float) -> None:
        self.seconds = seconds
        self.ends = ends
        self.keys: set[bytes] = set()


class _Step(NamedTuple):
    kind: int
    asked: Fields
    inner: _Plan | None


class _Plan(NamedTuple):
    """A transaction, all of whose compares are decided."""

    succeeded: bool
    steps: list[_Step]


class Space:
    def __init__(self, now: Callable[[], float], shortest: int = 1) -> None:
        self.revision = 1
        self.pairs: dict[bytes, Pair] = {}
        self.leases: dict[int, Lease] = {}
        self._order: list[bytes] = []  # the keys, sorted
        self._now = now
        self._shortest = shortest  # seconds of a lease: 1.5 election timeouts
        self._changed: list[tuple[bytes, Pair | None]] = []

    def changes(self) -> list[tuple[bytes, Pair | None]]:
        """What was put or deleted since somebody last asked."""
        changed, self._changed = self._changed, []
        return changed

    # ---- leases

    def grant(self, message: bytes) -> bytes:
        asked = dict(fields(message))
        lease, seconds = int(asked.get(2, 0)), int(asked.get(1, 0))
        if lease in self.leases:
            raise Refused(FAILED_PRECONDITION, "etcdserver: lease already exists")
        seconds = max(seconds, self._shortest)
        self.leases[lease] = Lease(seconds, self._now() + seconds)
        return number(2, lease) + number(3, seconds)

    def keep_alive(self, message: bytes) -> bytes:
        """By the leader alone, from its memory. Of one whose time is up it says that it is gone, which then happens."""
        lease = int(dict(fields(message)).get(1, 0))
        found = self.leases.get(lease)
        if found is not None and found.ends <= self._now():
            self.end(lease)
        return number(2, lease) + number(3, self.prolong(lease))

    def prolong(self, lease: int) -> int:
        """Its seconds, from now on; 0, if there is no such lease, or its time is up."""
        found = self.leases.get(lease)
        if found is None or found.ends <= self._now():
            return 0
        found.ends = self._now() + found.seconds
        return found.seconds

    def time_to_live(self, message: bytes) -> bytes:
        asked = dict(fields(message))
        lease = int(asked.get(1, 0))
        found = self.leases.get(lease)
        if found is None:
            return number(2, lease) + number(3, 2**64 - 1)
        left = int(found.ends - self._now())
        keys = b"".join(data(5, key) for key in sorted(found.keys)) if asked.get(2) else b""
        return number(2, lease) + number(3, left) + number(4, found.seconds) + keys

    def revoke(self, message: bytes) -> bytes:
        lease = int(dict(fields(message)).get(1, 0))
        if lease not in self.leases:
            raise Refused(NOT_FOUND, "etcdserver: requested lease not found")
        self.end(lease)
        return b""

    def end(self, lease: int) -> None:
        found = self.leases.pop(lease)
        self.revision += bool(found.keys)
        for key in sorted(found.keys):
            self._remove(key)

    # ---- keys

    def range(self, message: bytes) -> bytes:
        return self._range(dict(fields(message)))

    def transact(self, message: bytes) -> bytes:
        """All is decided before anything is done, and all that is done is one revision."""
        asked = list(fields(message))
        steps = _check(asked)
        plan = self._plan(asked, steps)
        self._allowed(plan)
        before, already = self.revision, len(self._changed)
        self.revision += 1
        answer = self._do(plan)
        if len(self._changed) == already:
            self.revision = before
        return answer

    def _plan(self, asked: Asked, branches: Branches) -> _Plan:
        succeeded = all(self._holds(bytes(value)) for field, value in asked if field == 1)
        steps = []
        for kind, request in branches[2 if succeeded else 3]:
            if kind == _TXN:
                inner = list(fields(request))
                steps.append(_Step(kind, {}, self._plan(inner, _branches(inner))))
            else:
                steps.append(_Step(kind, dict(fields(request)), None))
        return _Plan(succeeded, steps)

    def _allowed(self, plan: _Plan) -> None:
        """Nothing is put on a lease that is not there."""
        for kind, asked, inner in plan.steps:
            if kind == _PUT and asked.get(3) and asked[3] not in self.leases:
                raise Refused(NOT_FOUND, "etcdserver: requested lease not found")
            if inner is not None:
                self._allowed(inner)

    def _do(self, plan: _Plan) -> bytes:
        parts = [number(2, plan.succeeded)]
        for kind, asked, inner in plan.steps:
            if kind == _RANGE:
                answer = self._range(asked)
            elif kind == _PUT:
                self._put(_text(asked, 1), _text(asked, 2), int(asked.get(3, 0)))
                answer = b""
            elif kind == _DELETE:
                gone = self._between(_text(asked, 1), _text(asked, 2))
                for key in gone:
                    self._remove(key)
                answer = number(2, len(gone))
            else:
                assert inner is not None
                answer = self._do(inner)
            parts.append(data(3, data(kind, answer)))
        return b"".join(parts)

    def _put(self, key: bytes, value: bytes, lease: int) -> None:
        known = self.pairs.get(key)
        if known is None:
            insort(self._order, key)
            pair = Pair(self.revision, self.revision, 1, value, lease)
        else:
            pair = Pair(known.created, self.revision, known.version + 1, value, lease)
            self._detach(key, known)
        if lease:
            self.leases[lease].keys.add(key)
        self.pairs[key] = pair
        self._changed.append((key, pair))

    def _remove(self, key: bytes) -> None:
        self._detach(key, self.pairs.pop(key))
        del self._order[bisect_left(self._order, key)]
        self._changed.append((key, None))

    def _detach(self, key: bytes, pair: Pair) -> None:
        lease = self.leases.get(pair.lease)
        if lease is not None:
            lease.keys.discard(key)

    def _between(self, start: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [start] if start in self.pairs else []
        order = self._order
        first = bisect_left(order, start)
        return order[first:] if end == _FROM_KEY else order[first : bisect_left(order, end, first)]

    def _holds(self, message: bytes) -> bool:
        asked = dict(fields(message))
        target, result = int(asked.get(2, 0)), int(asked.get(1, 0))
        wanted = asked.get(4 + target, b"" if target == 3 else 0)
        found = self._between(_text(asked, 3), _text(asked, 64))
        if not found:
            return target != 3 and _compared(0, wanted, result)
        return all(_compared(_of(self.pairs[key], target), wanted, result) for key in found)

    def _range(self, asked: Fields) -> bytes:
        if asked.get(4) or asked.get(9) or any(field in asked for field in (10, 11, 12)):
            raise NotImplementedError("our client asks for what is there now, by its creation")
        found = self._between(_text(asked, 1), _text(asked, 2))
        count = len(found)
        if 13 in asked:
            found = [key for key in found if self.pairs[key].created <= int(asked[13])]
        if 5 in asked:
            found = sorted(found, key=lambda key: self.pairs[key].created, reverse=asked[5] == DESCEND)
        limit = int(asked.get(3, 0)) or len(found)
        only = bool(asked.get(8))
        parts = [data(2, self.pairs[key].packed(key, only)) for key in found[:limit]]
        return b"".join(parts) + number(3, len(found) > limit) + number(4, count)


def _operation(value: int | bytes) -> tuple[int, bytes]:
    ((kind, request),) = fields(bytes(value))
    return kind, bytes(request)


def _text(asked: Fields, field: int) -> bytes:
    return bytes(asked.get(field, b""))


def _of(pair: Pair, target: int) -> int | bytes:
    return (pair.version, pair.created, pair.modified, pair.value, pair.lease)[target]


def _compared(one: int | bytes, other: int | bytes, result: int) -> bool:
    if result == 0:
        return one == other
    if result == 3:
        return one != other
    return one > other if result == 1 else one < other  # type: ignore[operator]


# ---- what etcd refuses before it looks


def _branches(asked: Asked) -> Branches:
    """What is done if all compares hold, and what if not."""
    branches: Branches = {2: [], 3: []}
    for field, value in asked:
        if field != 1:
            branches[field].append(_operation(value))
    return branches


def _check(asked: Asked) -> Branches:
    branches = _branches(asked)
    then, otherwise = map(len, branches.values())
    if max(len(asked) - then - otherwise, then, otherwise) > MOST_OPERATIONS:
        raise Refused(INVALID_ARGUMENT, "etcdserver: too many operations in txn request")
    for steps in branches.values():
        if any(kind == _TXN or (kind == _PUT and len(steps) > 1) for kind, _ in steps):
            _touched(steps)
    return branches


def _touched(steps: Iterable[tuple[int, bytes]]) -> tuple[set[bytes], list[tuple[bytes, bytes]]]:
    """The keys that are put, and what is deleted. No key is put twice, nor put and deleted, but in two ways of one choice."""
    puts: set[bytes] = set()
    inner, own = [], []
    deletes = []
    for kind, request in steps:
        if kind == _TXN:
            inner.append(request)
        elif kind == _PUT:
            own.append(_text(dict(fields(request)), 1))
        elif kind == _DELETE:
            asked = dict(fields(request))
            deletes.append((_text(asked, 1), _text(asked, 2)))
    for request in inner:
        ways = _branches(list(fields(request)))
        (then, gone), (otherwise, also_gone) = _touched(ways[2]), _touched(ways[3])
        _apart(then, puts, deletes)
        _apart(otherwise - then, puts, deletes)
        _apart(otherwise, set(), deletes)
        puts |= then | otherwise
        deletes += [*gone, *also_gone]
    for key in own:
        _apart({key}, puts, deletes)
        puts.add(key)
    return puts, deletes


def _apart(new: set[bytes], puts: set[bytes], deletes: list[tuple[bytes, bytes]]) -> None:
    if new & puts or any((start <= key < end) if end else key == start for key in new for start, end in deletes):
        raise Refused(INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request")
