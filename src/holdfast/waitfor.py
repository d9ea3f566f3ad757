"""Who waits for whom, and who therefore waits for ever. Pure: a function of snapshots.

A node is an owner, as shown (host/pid/thread). Since a lease may be handed to another thread, this is a finding to look
into, not a proof; the names in it say where to look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .claim import Snapshot, Waiting


class Edge(NamedTuple):
    """`waiter` waits for `holder`, in the line of `name`."""

    waiter: str
    holder: str
    name: str


class WaitGraph:
    """Who waits for whom, in all the locks that were looked at: `edges`, and `deadlocks()`, the circles among them.

    `snapshots`: what was found at each of them.
    """

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self.snapshots = tuple(snapshots)

    def __repr__(self) -> str:
        waits = sum(len(one.waiters) * len(one.holders) for one in self.snapshots)
        return f"<WaitGraph of {len(self.snapshots)} locks: {waits} wait, {len(self.deadlocks())} deadlocks>"

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Who waits for whom, and for which lock."""
        return tuple(self.each_edge())

    def each_edge(self) -> Iterator[Edge]:
        """One after the other: of a thousand writers who wait for a thousand readers there are a million."""
        for snapshot in self.snapshots:
            for waiting in snapshot.waiters:
                for holding in snapshot.holders:
                    yield Edge(waiting.owner, holding.owner, snapshot.name)

    def deadlocks(self) -> tuple[tuple[Edge, ...], ...]:
        """The cycles in which nobody can go on, each as its edges in order.

        Exact for several units too: everybody who can go on is assumed to finish and give back what they hold, again and
        again, until nothing changes. Whoever is then left cannot be helped by waiting.
        """
        return self._cycles(self._stuck())

    def _stuck(self) -> set[str]:
        """In the time that it takes to read it once: strangers make lines as long as they like."""
        stuck = {waiting.owner for snapshot in self.snapshots for waiting in snapshot.waiters}
        lines = [_Line(snapshot, stuck) for snapshot in self.snapshots if snapshot.waiters]
        hindered: Counter[str] = Counter()  # by so many things
        held: dict[str, list[tuple[_Line, int]]] = {}
        stands: dict[str, list[_Line]] = {}
        for line in lines:
            for holding in line.holders:
                held.setdefault(holding.owner, []).append((line, holding.units))
            for waiting in line.waiters:
                hindered[waiting.owner] += 1 + waiting.fair
                stands.setdefault(waiting.owner, []).append(line)
        while lines:
            for owner in lines.pop().let_go(stuck):
                hindered[owner] -= 1
                if hindered[owner]:
                    continue
                stuck.remove(owner)
                lines += stands[owner]
                for line, units in held.get(owner, ()):
                    line.free += units
                    lines.append(line)
        return stuck

    def _going_round(self, stuck: set[str]) -> set[str]:
        """Without those whose waits lead to no circle: who stands in several lines is followed along one that does."""
        holders = [{one.owner for one in snapshot.holders} & stuck for snapshot in self.snapshots]
        waiters = [{one.owner for one in snapshot.waiters} & stuck for snapshot in self.snapshots]
        held: dict[str, list[int]] = {}
        for at, owners in enumerate(holders):
            for owner in owners:
                held.setdefault(owner, []).append(at)
        ways = Counter(owner for at, owners in enumerate(waiters) if holders[at] for owner in owners)
        ends = [owner for owner in stuck if not ways[owner]]
        left = set(stuck)
        while ends:
            left.discard(end := ends.pop())
            for at in held.get(end, ()):
                holders[at].discard(end)
                if not holders[at]:
                    ways.subtract(waiters[at])
                    ends += [owner for owner in waiters[at] if not ways[owner]]
        return left

    def _cycles(self, stuck: set[str]) -> tuple[tuple[Edge, ...], ...]:
        stuck = self._going_round(stuck)
        after: dict[str, Edge] = {}
        for snapshot in self.snapshots:
            holder = next((holding.owner for holding in snapshot.holders if holding.owner in stuck), None)
            for waiting in snapshot.waiters if holder is not None else ():
                if waiting.owner in stuck:
                    after.setdefault(waiting.owner, Edge(waiting.owner, str(holder), snapshot.name))
        found: dict[frozenset[str], tuple[Edge, ...]] = {}
        seen: set[str] = set()
        for start in sorted(after):
            path: list[Edge] = []
            here = start
            while here in after and here not in seen:
                seen.add(here)
                path.append(after[here])
                here = path[-1].holder
            owners = [edge.waiter for edge in path]
            if here in owners:
                cycle = tuple(path[owners.index(here) :])
                found[frozenset(owners[owners.index(here) :])] = cycle
        return tuple(found.values())


class _Line:
    """Of one lock. Two things may hinder who stands in it: too little is free, and, if they are fair, who stands before them."""

    def __init__(self, snapshot: Snapshot, stuck: set[str]) -> None:
        self.holders = [holding for holding in snapshot.holders if holding.owner in stuck]
        self.free = snapshot.capacity - sum(holding.units for holding in self.holders)
        first: dict[str, Waiting] = {}
        for waiting in snapshot.waiters:
            first.setdefault(waiting.owner, waiting)
        self.waiters = tuple(first.values())
        self._by_units = sorted(self.waiters, key=lambda waiting: -waiting.units)
        self._front = 0
        self._told = -1

    def let_go(self, stuck: set[str]) -> Iterator[str]:
        """Whom one thing less hinders than when this was asked before."""
        while self._by_units and self._by_units[-1].units <= self.free:
            yield self._by_units.pop().owner
        while self._front < len(self.waiters):
            waiting = self.waiters[self._front]
            if self._told < self._front:
                self._told = self._front
                if waiting.fair:
                    yield waiting.owner
            if waiting.owner in stuck:
                return
            self._front += 1
