"""Who waits for whom, and who therefore waits for ever. Pure: a function of snapshots.

A node is an owner, as shown (host/pid/thread). Since a lease may be handed to another thread, this is a finding to look
into, not a proof; the names in it say where to look.
"""

from __future__ import annotations

from collections.abc import Iterable
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

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Who waits for whom, and for which lock."""
        return tuple(
            Edge(waiting.owner, holding.owner, snapshot.name)
            for snapshot in self.snapshots
            for waiting in snapshot.waiters
            for holding in snapshot.holders
        )

    def deadlocks(self) -> tuple[tuple[Edge, ...], ...]:
        """The cycles in which nobody can go on, each as its edges in order.

        Exact for several units too: everybody who can go on is assumed to finish and give back what they hold, again and
        again, until nothing changes. Whoever is then left cannot be helped by waiting.
        """
        stuck = {waiting.owner for snapshot in self.snapshots for waiting in snapshot.waiters}
        while freed := {owner for owner in stuck if self._could_go_on(owner, stuck)}:
            stuck -= freed
        return self._cycles(stuck)

    def _could_go_on(self, owner: str, stuck: set[str]) -> bool:
        """Would everything this owner waits for be granted, if all who are not stuck gave back what they hold?"""
        for snapshot in self.snapshots:
            kept = sum(holding.units for holding in snapshot.holders if holding.owner in stuck)
            ahead = False
            for waiting in snapshot.waiters:
                if waiting.owner == owner:
                    if kept + waiting.units > snapshot.capacity or (ahead and waiting.fair):
                        return False
                    break
                ahead = ahead or waiting.owner in stuck
        return True

    def _cycles(self, stuck: set[str]) -> tuple[tuple[Edge, ...], ...]:
        after: dict[str, list[Edge]] = {}
        for edge in self.edges:
            if edge.waiter in stuck and edge.holder in stuck:
                after.setdefault(edge.waiter, []).append(edge)
        found: dict[frozenset[str], tuple[Edge, ...]] = {}
        seen: set[str] = set()
        for start in sorted(after):
            path: list[Edge] = []
            here = start
            while here in after and here not in seen:
                seen.add(here)
                path.append(after[here][0])
                here = path[-1].holder
            owners = [edge.waiter for edge in path]
            if here in owners:
                cycle = tuple(path[owners.index(here) :])
                found[frozenset(owners[owners.index(here) :])] = cycle
        return tuple(found.values())
