"""Servers that the run starts itself, in a folder and on ports of their own: these may be restarted, paused, beheaded and parted,
and their disks filled and clocks set."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from typing import Any

from ..errors import Misuse
from ..testing import servers
from ..testing.closing import Closes
from ..testing.servers import clock
from ..testing.servers.base import NotInstalled
from ..testing.servers.machines import Machine, PrivateMachine, PrivateMachines, rented

Sleep = Callable[[float], None]

ALONE = ("redis", "valkey", "postgresql", "mariadb")
TOGETHER = ("etcd", "zookeeper", "consul")  # three members, one of which leads
REDLOCK = "redlock"  # three Redis that know nothing of each other
SENTINEL = "redis-sentinel"  # one Redis and two replicas, with three Sentinels that replace it
KINDS = (*ALONE, SENTINEL, REDLOCK, *TOGETHER)
MEMBERS = 3

_PARTED = (*TOGETHER, SENTINEL)
_CLOCKED = (*ALONE, REDLOCK)  # programs of C, by whose clock leases end
_EXTRA = {
    "postgresql": ("-c", "max_wal_size=64MB", "-c", "min_wal_size=32MB"),
    "zookeeper": ("preAllocSize=1024",),  # kB, of the 64 MB that each start would take of the disk
}
_MEGABYTES = {"etcd": 768, "mariadb": 512}


class Own(Closes):
    def __init__(self, kind: str, private_network: bool = True) -> None:
        if kind not in KINDS:
            raise Misuse(f"there is no server {kind!r} to start; there are {', '.join(KINDS)}")
        self.kind = kind
        self.left_out: dict[str, str] = {}  # faults that cannot be struck here, and why
        self._until_the_end = ExitStack()
        self._machines = self._private(kind in _PARTED and private_network)
        self._clocks = self._build_clocks()
        if kind in _PARTED and not private_network:
            self.left_out["partition"] = "the register is not in the private network"
        try:
            with rented(self._next_machine(count())):
                self._stack: Any = self._until_the_end.enter_context(self._start())
        except NotInstalled as error:
            self.close()
            raise Misuse(str(error)) from None
        except BaseException:
            self.close()
            raise
        self.members: list[Any] = list(getattr(self._stack, "members", [self._stack]))
        self.url: str = f"redlock://{self._stack.hosts}" if kind == REDLOCK else self._stack.url

    def _start(self) -> Any:
        extra = _EXTRA.get(self.kind, ())
        if self.kind in ALONE:
            return servers.start(self.kind, *extra)
        return servers.cluster("redis" if self.kind == REDLOCK else self.kind, MEMBERS, *extra)

    def _private(self, network: bool) -> PrivateMachines | None:
        try:
            machines = PrivateMachines(network, _MEGABYTES.get(self.kind, 256))
        except (OSError, AttributeError) as error:
            why = f"takes root on Linux: {error}"
            self.left_out.update(dict.fromkeys(["disk-full", *(["partition"] if self.kind in _PARTED else [])], why))
            return None
        return self._until_the_end.enter_context(machines)

    def _build_clocks(self) -> list[clock.WallClock]:
        if self.kind not in _CLOCKED:
            return []
        if shutil.which("gcc") is None:
            self.left_out["clock-server"] = "takes gcc"
            return []
        built = self._until_the_end.enter_context(clock.shim())
        return [clock.WallClock(built, f"offset{number}") for number in range(MEMBERS)]

    def _next_machine(self, numbers: count[int]) -> Callable[[], Machine]:
        """One for each member. (A Sentinel is on that of a member.)"""
        rooms: list[Machine] = []

        def new() -> Machine:
            number = next(numbers)
            if number < MEMBERS:
                rooms.append(Machine() if self._machines is None else self._machines.new())
                if self._clocks:
                    rooms[-1].environ.update(self._clocks[number].environ)
            return rooms[number % MEMBERS]

        return new

    @property
    def faults(self) -> tuple[str, ...]:
        """What can be struck."""
        can = {
            "restart": True,
            "pause-server": True,
            "leader": self.kind in TOGETHER,
            "failover": self.kind == SENTINEL,
        }
        can["disk-full"] = self._machines is not None
        can["partition"] = self._machines is not None and self.kind in _PARTED and "partition" not in self.left_out
        can["clock-server"] = bool(self._clocks)
        return tuple(fault for fault, possible in can.items() if possible)

    def strike(self, fault: str, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        """One of `faults`. Whom it struck."""
        struck: str = getattr(self, f"_{fault.replace('-', '_')}")(chance, sleep, ttl)
        return struck

    def _restart(self, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        """kill -9, and back with what it had on its disk."""
        return self._fell(chance.choice(self.members), chance, sleep)

    def _leader(self, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        return self._fell(self._stack.leader(), chance, sleep)

    def _pause_server(self, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        member = chance.choice(self.members)
        member.pause()
        try:
            sleep(chance.uniform(0.1, 1.5 * ttl))
        finally:
            member.resume()
        return self._called(member)

    def _failover(self, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        """The one that leads is gone, or silent and then back, believing that it leads; meanwhile a replica has taken over."""
        before = self._stack.leader()
        if chance.random() < 0.5:
            before.kill()
            self._stack.leader()
            before.restart()
        else:
            before.pause()
            sleep(chance.uniform(1.0, 2.5))
            before.resume()
        return self._called(before)

    def _partition(self, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        """One cannot reach another, or no other; clients reach them all."""
        assert self._machines is not None
        alone, *others = chance.sample(self.members, len(self.members))
        others = others[: chance.choice((1, len(others), len(others)))]
        for other in others:
            self._machines.part(alone.machine, other.machine)
        sleep(chance.uniform(0.3, 2.5 * ttl))
        self._machines.join()
        return f"{self._called(alone)} from {' and '.join(self._called(other) for other in others)}"

    def _disk_full(self, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        member = chance.choice(self.members)
        machine = member.machine
        assert isinstance(machine, PrivateMachine)
        machine.fill_disk()
        sleep(chance.uniform(0.2, 1.5 * ttl))
        machine.free_disk()
        if not member.running:  # most servers end when they cannot write
            member.restart()
        return self._called(member)

    def _clock_server(self, chance: random.Random, sleep: Sleep, ttl: float) -> str:
        """Ahead or back, by a second at least: leases end early, or late."""
        number = chance.randrange(len(self.members))
        by = chance.choice((1, -1)) * chance.randint(1, jump(ttl))
        self._clocks[number].jump(by)
        sleep(chance.uniform(0.2, 2) * ttl)
        self._clocks[number].jump(0)
        return f"{self._called(self.members[number])} by {by:+d} s"

    def heal(self) -> None:
        """Everything runs again and takes writes."""
        for each in self._clocks:
            each.jump(0)
        if self._machines is not None:
            self._machines.join()
            for member in self.members:
                member.machine.free_disk()
        self._stack.mend()

    def close(self) -> None:
        self._until_the_end.close()

    def _fell(self, member: Any, chance: random.Random, sleep: Sleep) -> str:
        member.kill()
        sleep(chance.uniform(0.05, 0.5))
        member.restart()
        return self._called(member)

    def _called(self, member: Any) -> str:
        return f"server {self.members.index(member) + 1}"


def jump(ttl: float) -> int:
    """The furthest that a server's clock is set, in seconds."""
    return max(1, round(1.5 * ttl))
