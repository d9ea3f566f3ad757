"""Members that follow a leader, and what becomes of that: of etcd and of Consul alike.

A member that is cut off, paused or down holds up whoever asks it. A leader that was deposed without noticing goes on for a
while to answer what it needs nobody for. Which member leads, and in which term, is all that elections decide here: the log is
one, and nothing of it is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from ....drivers.base import Address
from ....drivers.simulated import Process
from ....drivers.simulated_streams import Serve, Streams
from ....drivers.world import World

LOOK = 0.05
PATIENCE = 7.0  # seconds: then whoever asks a member that has no leader is told so


class Member:
    def __init__(self, process: Process, streams: Streams, address: Address, serve: Serve) -> None:
        self.process = process
        self.world = process.world
        self.up = True
        self.out_until = 0.0  # of touch with the others
        self.old: Any = None  # what it believes, if it was deposed
        self.old_until = 0.0
        self._streams = streams
        self._address = address
        self._listens = serve
        streams.listen(address, process, serve)

    @property
    def well(self) -> bool:
        return self.up and not self.process.paused and self.out_until <= self.world.time

    @property
    def believes(self) -> bool:
        """Does it take itself for the leader, though it is not?"""
        return self.old is not None and self.world.time < self.old_until

    def restart(self, down: float) -> None:
        """Its disk has everything; connections are gone."""
        self.up = False
        self._streams.stop_listening(self._address)
        self._streams.crashed(self.process)
        self.world.after(down, self._back)

    def _back(self) -> None:
        self.up, self.old = True, None
        self._streams.listen(self._address, self.process, self._listens)

    def has_no_leader(self) -> None:
        """It has been without one for a while."""


M = TypeVar("M", bound=Member)


class Quorum(Generic[M]):
    election = 1.0  # seconds: the timeout
    tick: float  # seconds between two looks at what is over
    members: list[M]

    def __init__(self, world: World) -> None:
        self.world = world
        self.term = 2
        self.leader: M | None = None
        self._ticking = False

    def ends(self) -> Mapping[Any, float]:
        """What the leader ends by itself, and when."""
        raise NotImplementedError

    def end(self, what: Any) -> None:
        raise NotImplementedError

    def begin_to_tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            self.world.after(self.tick, self._tick)

    def _tick(self) -> None:
        """The leader ends what is over."""
        ends = self.ends()
        self._ticking = bool(ends)
        if self._ticking:
            self.world.after(self.tick, self._tick)
        if self.leader is not None and self.in_touch(self.leader):
            for one, at in ends.items():
                if at <= self.world.time:
                    self.end(one)

    def memory(self) -> object:
        """What a leader knows that is nowhere else."""
        return self.term

    def promoted(self) -> None:
        """A new leader begins."""

    def in_touch(self, member: Member) -> bool:
        """Does it know a leader that a majority follows?"""
        leader = self.leader
        if leader is None or not (member.well and leader.well):
            return False
        return 2 * sum(one.well for one in self.members) > len(self.members)

    def elect(self, away: float, unaware: float = 0.0) -> None:
        """Without a leader for so long; then another leads, in a new term. The old one does not know it for a while."""
        old = self.leader
        if old is None:
            return
        if unaware:
            old.old, old.old_until = self.memory(), self.world.time + unaware
            old.out_until = max(old.out_until, old.old_until)
        self.leader = None
        self.world.after(away, lambda: self._elected(old))

    def _elected(self, old: M) -> None:
        well = [one for one in self.members if one.well]
        if 2 * len(well) <= len(self.members):
            self.world.after(LOOK, lambda: self._elected(old))
            return
        self.leader = self.world.random.choice([one for one in well if one is not old] or well)
        self.term += 1
        self.promoted()

    def miss(self, member: Member) -> None:
        """Others notice that their leader does not answer. When it comes back, it may not know yet that it was replaced."""
        if member is not self.leader or len(self.members) == 1:
            return
        memory, random = self.memory(), self.world.random

        def look() -> None:
            if self.leader is not member or member.well:
                return
            if member.process.paused:  # what it finds first when it goes on are questions that came meanwhile
                member.old = memory
                member.old_until = member.process._paused_until + random.uniform(0.0, 0.3)
                member.out_until = max(member.out_until, member.old_until)
            self.elect(random.uniform(0.01, 0.5))

        if not member.process.paused and member.up:  # cut off: it goes on for a while
            member.old, member.old_until = memory, self.world.time + random.uniform(0.5, 1.5) * self.election
        self.world.after(random.uniform(0.5, 1.0) * self.election, look)

    def cut_off(self, member: Member, seconds: float) -> None:
        """From the other members."""
        member.out_until = max(member.out_until, self.world.time + seconds)
        self.miss(member)
        self.world.after(self.world.random.uniform(1.0, 3.0) * self.election, member.has_no_leader)

    def heal(self) -> None:
        for member in self.members:
            member.out_until = member.old_until = 0.0
