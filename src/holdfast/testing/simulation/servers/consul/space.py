"""What stands in Consul: keys, sessions, and the index of its log; transactions over them. Pure, but for the clock.

Held to a real Consul by tests/simulation/servers/test_consul_like_the_real_one.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Pair = dict[str, Any]
MOST_OPERATIONS = 64


class Failed(Exception):
    """A transaction comes to nothing."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


class Session:
    __slots__ = ("behavior", "delay", "ends", "ttl")

    def __init__(self, ttl: float, delay: float, behavior: str) -> None:
        self.ttl = ttl
        self.delay = delay
        self.behavior = behavior
        self.ends = 0.0


class Space:
    def __init__(self, now: Callable[[], float]) -> None:
        self.index = 10
        self.pairs: dict[str, Pair] = {}
        self.sessions: dict[str, Session] = {}
        self._tombs: dict[
            str, int
        ] = {}  # keys that are gone, and since which index: queries count them until they are reaped
        self._table = 0  # the index of the last change of any key
        self._delays: dict[str, float] = {}  # until when nobody may lock a key
        self._now = now

    # ---- what is asked

    def read(self, key: str) -> tuple[int, list[Pair]]:
        """And from which index on there may be news of it."""
        found = self.pairs.get(key)
        return (found["ModifyIndex"], [found]) if found else (self._last(), [])

    def tree(self, prefix: str) -> tuple[int, list[Pair]]:
        found = self._under(prefix)
        latest = max((pair["ModifyIndex"] for pair in found), default=0)
        buried = max((at for key, at in self._tombs.items() if key.startswith(prefix)), default=0)
        return max(latest, buried) or self._last(), found

    def _last(self) -> int:
        return max(self._table, max(self._tombs.values(), default=0), 1)

    def _under(self, prefix: str) -> list[Pair]:
        return [self.pairs[key] for key in sorted(self.pairs) if key.startswith(prefix)]

    def reap(self) -> None:
        """What is gone is forgotten: the index of some queries falls."""
        self._tombs.clear()

    # ---- transactions

    def transact(self, operations: list[Pair]) -> list[Pair]:
        """All of it or nothing; the keys that were read or written."""
        for at, one in enumerate(operations):
            if one["Verb"] == "lock" and self._delays.get(one["Key"], 0.0) > self._now():
                raise Failed(at, f"failed to lock key {one['Key']!r} due to lock delay until a while")
        before = dict(self.pairs), dict(self._tombs), self._table
        self.index += 1
        found: list[Pair] = []
        try:
            for at, one in enumerate(operations):
                found += self._apply(at, one)
        except Failed:
            self.pairs, self._tombs, self._table = before
            raise
        return found

    def look(self, operations: list[Pair]) -> list[Pair]:
        """One that only reads is no entry of the log."""
        return [pair for at, one in enumerate(operations) for pair in self._apply(at, one)]

    def _apply(self, at: int, one: Pair) -> list[Pair]:
        verb, key = one["Verb"], one["Key"]
        known = self.pairs.get(key)
        if verb == "get-tree":
            return self._under(key)
        if verb == "check-not-exists":
            if known is not None:
                raise Failed(at, f'key "{key}" exists')
            return []
        if verb == "check-index":
            if known is None:
                raise Failed(at, f'key "{key}" doesn\'t exist')
            if known["ModifyIndex"] != one.get("Index", 0):
                raise Failed(at, f'current modify index for key "{key}" is another')
            return [_blank(known)]
        if verb == "delete":
            self._remove(key)
            return []
        session = known.get("Session", "") if known else ""
        locks = known["LockIndex"] if known else 0
        if verb == "lock":
            if one["Session"] not in self.sessions:
                raise Failed(at, f'invalid session "{one["Session"]}"')
            if session not in ("", one["Session"]):
                raise Failed(at, f'failed to lock key "{key}", lock is already held')
            locks += session == ""
            session = one["Session"]
        elif verb == "unlock":
            if not session or session != one["Session"]:
                raise Failed(at, f'failed to unlock key "{key}", lock isn\'t held, or is held by another session')
            session = ""
        elif verb == "set":
            locks = 0  # it is not kept
        else:
            raise NotImplementedError(verb)
        return [_blank(self._put(key, one.get("Value"), session, locks))]

    def _put(self, key: str, value: str | None, session: str, locks: int) -> Pair:
        known = self.pairs.get(key)
        created = known["CreateIndex"] if known else self.index
        pair: Pair = {"LockIndex": locks, "Key": key, "Flags": 0, "Value": value or None}
        if session:
            pair["Session"] = session
        pair |= {"CreateIndex": created, "ModifyIndex": self.index}
        if known is not None and {**known, "ModifyIndex": 0} == {**pair, "ModifyIndex": 0}:
            return known  # a write that changes nothing is none
        self._tombs.pop(key, None)
        self.pairs[key] = pair
        self._table = self.index
        return pair

    def _remove(self, key: str) -> None:
        if self.pairs.pop(key, None) is not None:
            self._tombs[key] = self._table = self.index

    # ---- sessions

    def open(self, session: str, ttl: float, delay: float, behavior: str) -> None:
        self.index += 1
        self.sessions[session] = Session(ttl, delay, behavior)

    def close(self, session: str) -> None:
        found = self.sessions.pop(session, None)
        if found is None:
            return
        self.index += 1
        for key in [key for key, pair in sorted(self.pairs.items()) if pair.get("Session") == session]:
            if found.delay:
                self._delays[key] = self._now() + found.delay
            if found.behavior == "delete":
                self._remove(key)
            else:
                pair = self.pairs[key]
                self._put(key, pair["Value"], "", pair["LockIndex"])


def _blank(pair: Pair) -> Pair:
    return {**pair, "Value": None}
