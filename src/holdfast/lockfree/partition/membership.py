"""What a worker does to own its partitions and no others: one source for threads and asyncio.

Rule 1: a partition is worked on under its lease, and the lease is one lock of the store: no two workers hold it.
Rule 2: whoever is to give a partition up finishes what is in its hands first, for `drain` seconds at most; then lets go.
Rule 3: what is written after that carries an old token, and fenced storage refuses it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...claim import valid_name, valid_note, valid_timeout, valid_ttl
from ...databases.wire import settle
from ...drivers.base import boot_time
from ...drivers.system import host_name
from ...errors import HoldfastError, Misuse, NotOwner, Unavailable
from ...events import report
from .ring import Ring, partition_of, valid_partitions

OnChange = Callable[[int, Any], object]


class Plan:
    """A group: its name, how many partitions, how long leases live. Checked once."""

    def __init__(self, locks: Any, name: str, partitions: int, ttl: float, drain: float | None) -> None:
        self.locks = locks
        self.name = valid_name(name, "group's name")
        self.partitions = valid_partitions(partitions)
        self.ttl = valid_ttl(ttl)
        self.drain = self.ttl if drain is None else valid_timeout(drain) or 0.0
        self.prefix = f"{name}/workers/"
        valid_name(self.place(self.partitions), "group's name, with what is added to it,")

    def badge(self, worker: str) -> str:
        """The name of a worker's own lock. It says how many partitions it believes in."""
        return f"{self.prefix}{self.partitions}/{worker}"

    def place(self, partition: int) -> str:
        """The name of a partition's lock, which is also the resource that its token guards."""
        return f"{self.name}/partition/{partition}"

    async def workers(self) -> list[str]:
        """Those whose lease is alive."""
        found = []
        for name in await settle(self.locks.names(self.prefix)):
            count, _, worker = name.removeprefix(self.prefix).partition("/")
            if count != str(self.partitions):
                raise Misuse(
                    f"the worker {worker!r} of {self.name!r} counts {count} partitions, and this one {self.partitions}: all "
                    "must count the same, or a key would have two owners"
                )
            found.append(worker)
        return sorted(found)

    async def ring(self) -> Ring:
        workers = await self.workers()
        if not workers:
            raise Misuse(f"the group {self.name!r} has no workers: nobody could own a key")
        return Ring(workers)

    async def owner(self, key: str) -> str:
        partition = self.partition_of(key)
        return (await self.ring()).owner(str(partition))

    def partition_of(self, key: str) -> int:
        return partition_of(key, self.partitions)


class Owned:
    """A partition in our hands."""

    __slots__ = ("give_up", "in_hand", "lease")

    def __init__(self, lease: Any) -> None:
        self.lease = lease
        self.in_hand = 0  # how many are at work in it
        self.give_up: float | None = None  # draining: let go then, at the latest


class Member:
    """One worker of a group. `look` is called again and again, by a thread or a task."""

    def __init__(self, plan: Plan, worker: str | None, gained: OnChange | None, lost: OnChange | None) -> None:
        self.plan = plan
        self.worker = valid_note(worker or f"{host_name()}-{os.getpid()}-{os.urandom(4).hex()}", "a worker's name")
        valid_name(plan.badge(self.worker), "worker's name, with the group's,")
        self.ring = Ring([self.worker])
        self.partitions: dict[int, Owned] = {}
        self.mutex = threading.Lock()  # the user's threads look while ours changes; never held while waiting
        self.kick: Callable[[], object] = lambda: None
        self._gained, self._lost = gained, lost
        self._badge: Any = None
        self._leaving = False

    # ---- the user's side

    def enter(self, key: str) -> tuple[int, Any]:
        partition = self.plan.partition_of(key)
        with self.mutex:
            owned = self.partitions.get(partition)
            if owned is None or owned.give_up is not None or not owned.lease.held:
                raise self._not_owner(key, partition, owned)
            owned.in_hand += 1
            return partition, owned

    def leave(self, owned: Owned) -> None:
        with self.mutex:
            owned.in_hand -= 1
            drained = owned.give_up is not None and not owned.in_hand
        if drained:
            self.kick()

    def _not_owner(self, key: str, partition: int, owned: Owned | None) -> NotOwner:
        owner = self.ring.owner(str(partition))
        if owner == self.worker:
            why = "its lease is not in our hands yet" if owned is None else "its lease was lost"
        else:
            why = f"it belongs to {owner!r}"
        return NotOwner(
            f"{key!r} is in partition {partition} of {self.plan.name!r}, and {self.worker!r} does not own that now: {why}. "
            "Hand the work over, or try again after the rebalance",
            key,
            owner,
        )

    def leases(self) -> dict[int, Any]:
        with self.mutex:
            mine = tuple(
                (at, one.lease) for at, one in self.partitions.items() if one.give_up is None and one.lease.held
            )
        return dict(mine)

    def settled(self) -> bool:
        """Do we own exactly what is ours?"""
        mine = {number for number in range(self.plan.partitions) if self.ring.owner(str(number)) == self.worker}
        return self.leases().keys() == mine and self.partitions.keys() == mine

    # ---- the background's side

    async def join(self) -> None:
        await self.plan.workers()  # says so, if others count otherwise
        badge = self.plan.locks.lock(self.plan.badge(self.worker), ttl=self.plan.ttl)
        self._badge = await settle(badge.try_acquire())
        if self._badge is None:
            raise Misuse(
                f"there is a worker {self.worker!r} in {self.plan.name!r} already. If that was this one, before it died, its "
                f"lease is over in {self.plan.ttl:g} s at most; else choose another name"
            )
        await self.look()

    async def look(self) -> None:
        """Who is here, what is ours, what is to be given up."""
        if not self._leaving and not self._badge.held:  # we slept: for the others we were dead
            badge = self.plan.locks.lock(self.plan.badge(self.worker), ttl=self.plan.ttl)
            again = await settle(badge.try_acquire())
            if again is not None:
                self._badge = again
        try:
            others = await self.plan.workers()
        except Misuse:
            others = list(self.ring.workers)  # whoever counts otherwise is refused at its own door
        present = set(others) - {self.worker} if self._leaving else {*others, self.worker}
        ring = Ring(present) if present else None
        if ring is not None and ring != self.ring:
            self.ring = ring
        await self._give_up(ring)
        if not self._leaving and self._badge.held:
            await self._take()

    def _ours(self, partition: int, ring: Ring | None) -> bool:
        return not self._leaving and ring is not None and ring.owner(str(partition)) == self.worker

    async def _give_up(self, ring: Ring | None) -> None:
        now = boot_time()
        for partition, owned in list(self.partitions.items()):
            with self.mutex:
                if not owned.lease.held:
                    done = True
                elif self._ours(partition, ring):
                    owned.give_up = None
                    done = False
                else:
                    if owned.give_up is None:
                        owned.give_up = now + self.plan.drain
                    done = not owned.in_hand or now >= owned.give_up
                if done:
                    del self.partitions[partition]
            if done:
                with suppress(Unavailable):  # its ttl frees it
                    await settle(owned.lease.release())
                await self._tell(self._lost, partition, owned.lease)

    async def _take(self) -> None:
        for partition in range(self.plan.partitions):
            if partition in self.partitions or not self._ours(partition, self.ring):
                continue
            lease = await settle(self.plan.locks.lock(self.plan.place(partition), ttl=self.plan.ttl).try_acquire())
            if lease is None:
                continue  # its old owner is at it still
            lease.on_lost(lambda _: self.kick())
            with self.mutex:
                self.partitions[partition] = Owned(lease)
            await self._tell(self._gained, partition, lease)

    async def depart(self) -> bool:
        """One step of leaving: True when nothing is in our hands any more."""
        if not self._leaving:
            self._leaving = True
            with suppress(HoldfastError):
                await settle(self._badge.release())  # first, so that the others know whose turn it is
        await self._give_up(None)
        return not self.partitions

    async def _tell(self, told: OnChange | None, partition: int, lease: Any) -> None:
        if told is None:
            return
        try:
            await settle(told(partition, lease))
        except Exception as error:
            report(error, f"a callback of the group {self.plan.name!r}")

    def pause(self) -> float:
        """Until the next look, if nothing happens before. Soon, while partitions are on their way."""
        slow = min(1.0, self.plan.ttl / 10)
        return slow if self.settled() else min(slow, 0.05)
