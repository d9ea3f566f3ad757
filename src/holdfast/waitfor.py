"""Who waits for whom, and who therefore waits for ever. Pure: a function of snapshots.

A node is an owner, as shown (host/pid/thread). Since a lease may be handed to another thread, this is a finding to look
into, not a proof; the names in it say where to look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .claim import Snapshot


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
        return f"<WaitGraph of {len(self.snapshots)} locks: {len(self.edges)} wait, {len(self.deadlocks())} deadlocks>"

    def __iter__(self) -> Iterator[Edge]:
        """The edges, one by one: where a thousand wait for a thousand readers there are a million."""
        return (
            Edge(waiting.owner, holding.owner, snapshot.name)
            for snapshot in self.snapshots
            for waiting in snapshot.waiters
            for holding in snapshot.holders
        )

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Who waits for whom, and for which lock."""
        return tuple(self)

    def deadlocks(self) -> tuple[tuple[Edge, ...], ...]:
        """The cycles in which nobody can go on, each as its edges in order.

        Exact for several units too: everybody who can go on is assumed to finish and give back what they hold, again and
        again, until nothing changes. Whoever is then left cannot be helped by waiting.
        """
        return self._cycles(self._stuck())

    def _stuck(self) -> set[str]:
        """Each place in a line is looked at when it comes to the front, and when it fits: a long line takes no longer, in
        proportion, than a short one."""
        lines = [_Line(snapshot) for snapshot in self.snapshots if snapshot.waiters]
        stuck = {owner for line in lines for owner in line.owners}
        unmet = Counter(owner for line in lines for owner in line.wishes())
        gives: dict[str, list[tuple[_Line, int]]] = {owner: [] for owner in stuck}
        for line in lines:
            for owner, units in line.held_by(stuck):
                gives[owner].append((line, units))
        todo = lines[:]
        while todo:
            for owner in todo.pop().met(stuck):
                unmet[owner] -= 1
                if not unmet[owner]:
                    stuck.discard(owner)
                    for line, units in gives[owner]:
                        line.kept -= units
                        todo.append(line)
        return stuck

    def _cycles(self, stuck: set[str]) -> tuple[tuple[Edge, ...], ...]:
        after: dict[str, Edge] = {}
        for snapshot in self.snapshots:
            held = next((one.owner for one in snapshot.holders if one.owner in stuck), None)
            if held is not None:
                for waiting in snapshot.waiters:
                    if waiting.owner in stuck:
                        after.setdefault(waiting.owner, Edge(waiting.owner, held, snapshot.name))
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
    """The line of one lock, while those who can go on finish one after the other. Who waits here wishes to fit beside those
    who are stuck inside, and, if fair, that nobody who is stuck is ahead: by their first place, if they have several."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.owners = [waiting.owner for waiting in snapshot.waiters]
        self.kept = 0  # units, by those who are stuck
        self._snapshot = snapshot
        self._first = {waiting.owner: waiting for waiting in reversed(snapshot.waiters)}
        self._large = sorted(self._first.values(), key=lambda waiting: -waiting.units)
        self._front = 0
        self._fair = {owner for owner, waiting in self._first.items() if waiting.fair}

    def wishes(self) -> Iterator[str]:
        """The owners, once for each thing they wish."""
        yield from self._first
        yield from self._fair

    def held_by(self, stuck: set[str]) -> Iterator[tuple[str, int]]:
        """What the stuck have here: their units, which are kept, and their place, which is in the way."""
        for owner in self._first:
            yield owner, 0
        for holding in self._snapshot.holders:
            if holding.owner in stuck:
                self.kept += holding.units
                yield holding.owner, holding.units

    def met(self, stuck: set[str]) -> Iterator[str]:
        """Those of whom one wish more has come true."""
        while self._large and self.kept + self._large[-1].units <= self._snapshot.capacity:
            yield self._large.pop().owner
        while self._front < len(self.owners):
            owner = self.owners[self._front]
            if owner in self._fair:
                self._fair.discard(owner)
                yield owner
            if owner in stuck:
                return
            self._front += 1
