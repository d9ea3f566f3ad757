"""What a page is shown, and what has changed since it was last told. Pure data: it asks no store and knows no page.

Every change has a number. A page that has seen all up to n is told what has a higher one; so a slow page misses nothing that
still stands, and costs no memory.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..claim import CARRIED, KEPT, Snapshot
from ..observe.changes import Change
from ..rule import EVERYBODY
from ..waitfor import WaitGraph

STARVING = 60.0  # seconds first in line
LONG = 3600.0  # seconds inside, where nothing is known of how long is usual
UNUSUAL = 10.0  # times the usual
_SAMPLES = 3
_ACQUISITIONS = 30  # moments remembered, for a small picture
_SLACK = 0.3  # seconds by which two looks may differ without a renewal
_NO_ADDRESS = (KEPT, CARRIED)  # notes of those who lead nothing; else a note is a leader's address
_GRAVES = 5000  # names that are gone, of which pages are still told

Locks = Mapping[str, Snapshot]


class Seen(NamedTuple):
    """What is remembered of a name, besides what it is now."""

    ttls: dict[int, float]  # token → what the holder asked for; or, nearly, the most that was ever left
    holds: deque[float]
    acquired: deque[float]


class Board:
    def __init__(self) -> None:
        self.version = 0
        self._mutex = threading.Lock()
        self._locks: dict[tuple[str, str], tuple[int, dict[str, Any] | None]] = {}
        self._forgotten = 0  # up to this version, what has gone is not known one by one any more
        self._prints: dict[tuple[str, str], object] = {}
        self._seen: dict[tuple[str, str], Seen] = {}
        self._lefts: dict[tuple[str, str], tuple[float, dict[int, float], list[float]]] = {}
        self._stores: dict[str, tuple[int, dict[str, Any]]] = {}
        self._looked: dict[str, float] = {}
        self._watchers: list[Callable[[], None]] = []

    # ---- those who look at stores

    def store(self, store: str, facts: dict[str, Any]) -> None:
        with self._mutex:
            if self._stores.get(store, (0, None))[1] == facts:
                return
            self.version += 1
            self._stores[store] = (self.version, facts)
        self._tell()

    def put(
        self,
        store: str,
        now: Locks,
        happened: list[Change],
        at: float,
        seen_at: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """The locks of a store as they are, by a look that began at this moment of the wall clock; and, where a look takes
        long, when each was seen."""
        self._looked[store] = round(at, 1)
        graph = WaitGraph(now.values())
        stuck = {edge.name for cycle in graph.deadlocks() for edge in cycle}
        with self._mutex:
            before = self.version
            for one in happened:
                self._remember(store, one, seen_at.get(one.name, at))
            for name, snapshot in now.items():
                if snapshot.capacity:
                    self._put_one((store, name), snapshot, name in stuck, seen_at.get(name, at))
            gone = [
                key
                for key, (_, data) in self._locks.items()
                if key[0] == store and data is not None and not _in(now, key[1])
            ]
            for key in gone:
                self._bury(key)
            if gone:
                self._forget_old_graves()
            changed = self.version != before
        if changed:
            self._tell()

    def _remember(self, store: str, one: Change, at: float) -> None:
        seen = self._seen.setdefault((store, one.name), Seen({}, deque(maxlen=50), deque(maxlen=_ACQUISITIONS)))
        if one.event == "acquired":
            seen.acquired.append(round(at - one.seconds, 1))
        elif one.event == "over":
            seen.holds.append(one.seconds)
            seen.ttls.pop(one.token, None)

    def _put_one(self, key: tuple[str, str], snapshot: Snapshot, stuck: bool, at: float) -> None:
        seen = self._seen.setdefault(key, Seen({}, deque(maxlen=50), deque(maxlen=_ACQUISITIONS)))
        for held in snapshot.holders:
            seen.ttls[held.token] = held.ttl or max(held.left, seen.ttls.get(held.token, 0.0))
        data = _data(key[0], snapshot, seen, _attention(snapshot, seen, stuck), at)
        look = _print(data)
        if self._prints.get(key) == look and not self._renewed(key, snapshot, at):
            return
        self._prints[key] = look
        lefts = {held.token: held.left for held in snapshot.holders}
        self._lefts[key] = at, lefts, [one.age for one in snapshot.waiters]
        self.version += 1
        self._locks[key] = self.version, data

    def _renewed(self, key: tuple[str, str], snapshot: Snapshot, at: float) -> bool:
        """What is left goes down by itself on the page too, and waits grow; only what does not is news: a renewal, or
        somebody who left the line and joined it anew."""
        then, lefts, waits = self._lefts[key]
        passed = at - then
        return any(abs(held.left - (lefts[held.token] - passed)) > _SLACK for held in snapshot.holders) or any(
            abs(one.age - (age + passed)) > _SLACK for one, age in zip(snapshot.waiters, waits, strict=True)
        )

    def _bury(self, key: tuple[str, str]) -> None:
        self.version += 1
        self._locks[key] = self.version, None
        self._prints.pop(key, None)
        self._lefts.pop(key, None)

    def _forget_old_graves(self) -> None:
        graves = [one for one, (_, data) in self._locks.items() if data is None]
        for old in sorted(graves, key=lambda one: self._locks[one][0])[:-_GRAVES]:
            self._forgotten = max(self._forgotten, self._locks.pop(old)[0])
            self._seen.pop(old, None)

    # ---- pages

    def since(self, version: int) -> dict[str, Any]:
        """All that is newer. Of version 0, and to whoever was away for too long, all there is: `whole`, in the place of what
        was told before."""
        with self._mutex:
            version = 0 if version < self._forgotten else version
            return {
                "version": self.version,
                "whole": not version,
                "looked": self.looked(),
                "stores": [facts for at, facts in self._stores.values() if at > version],
                "locks": [data for at, data in self._locks.values() if at > version and data is not None],
                "gone": [
                    list(key) for key, (at, data) in self._locks.items() if at > version and data is None and version
                ],
            }

    def looked(self) -> dict[str, float]:
        """When each store was last looked at, by the wall clock. It is no news, or there would be some every second."""
        return dict(self._looked)

    def of_kind(self, system: str) -> list[str]:
        with self._mutex:
            return [store for store, (_, facts) in self._stores.items() if facts["system"] == system]

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        """Be called, from any thread, when there is something newer; returns what ends it."""
        with self._mutex:
            self._watchers.append(call)

        def end() -> None:
            with self._mutex:
                self._watchers.remove(call)

        return end

    @property
    def watched(self) -> bool:
        return bool(self._watchers)

    def _tell(self) -> None:
        with self._mutex:
            calls = list(self._watchers)
        for call in calls:
            call()


def _in(now: Locks, name: str) -> bool:
    return name in now and now[name].capacity > 0


def _attention(snapshot: Snapshot, seen: Seen, stuck: bool) -> list[str]:
    """Why somebody should look, worst first."""
    told = ["deadlock"] if stuck else []
    led = any(held.note and not held.note.startswith(_NO_ADDRESS) for held in snapshot.holders)
    if any(held.left < seen.ttls[held.token] / 3 for held in snapshot.holders):
        told.append("in danger")  # a healthy holder renews when two thirds are left
    if led:  # whoever leads holds, and whoever stands by waits, for as long as the leader lives
        return told
    if snapshot.waiters and snapshot.waiters[0].age > STARVING:
        told.append("starving")
    usual = statistics.median(seen.holds) * UNUSUAL if len(seen.holds) >= _SAMPLES else LONG
    if any(held.age > max(usual, 1.0) for held in snapshot.holders):
        told.append("held unusually long")
    return told


def _data(store: str, snapshot: Snapshot, seen: Seen, attention: list[str], at: float) -> dict[str, Any]:
    """For the page. Times are of the wall clock here, so that the page can count on by itself. A snapshot has no nonce in it."""
    everybody = snapshot.capacity == EVERYBODY
    kind = "mutex" if snapshot.capacity == 1 else "readers and writers" if everybody else "semaphore"
    out = snapshot.eviction
    return {
        "store": store,
        "name": snapshot.name,
        "kind": kind,
        "capacity": None if everybody else snapshot.capacity,
        "used": len(snapshot.holders) if everybody else snapshot.used,
        "holders": [
            {
                "owner": one.owner,
                "token": one.token,
                "note": one.note,
                "share": _share(one.units, snapshot.capacity),
                "since": round(at - one.age, 2),
                "ends": round(at + one.left, 2),
                "ttl": round(seen.ttls[one.token], 2),
            }
            for one in snapshot.holders
        ],
        "waiters": [
            {"owner": one.owner, "share": _share(one.units, snapshot.capacity), "since": round(at - one.age, 2)}
            for one in snapshot.waiters
        ],
        "eviction": None if out is None else {**out._asdict(), "at": round(at - out.age, 1)},
        "acquired": list(seen.acquired),
        "attention": attention,
    }


def _share(units: int, capacity: int) -> str:
    if capacity == EVERYBODY:
        return "writes" if units == EVERYBODY else "reads"
    return "" if capacity == 1 else f"{units} of {capacity}"


def _print(data: dict[str, Any]) -> object:
    """What makes it news, apart from the passing of time."""
    return (
        [(one["owner"], one["token"], one["share"], one["note"]) for one in data["holders"]],
        [(one["owner"], one["share"]) for one in data["waiters"]],
        data["eviction"] and data["eviction"]["token"],
        data["attention"],
    )
