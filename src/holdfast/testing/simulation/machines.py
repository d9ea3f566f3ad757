"""Simulated servers under a workload: what the production stores connect to, and what happens there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...drivers.simulated import Process
from ...drivers.simulated_streams import ROUGH_STREAMS, StreamFaults, Streams
from ...errors import Unavailable
from ...stores.base import Store
from .servers.quorum import Member, Quorum

if TYPE_CHECKING:
    from .workload import Workload

REDIS, REDIS_CLUSTER, ETCD, CONSUL = "redis", "redis-cluster", "etcd", "consul"


class Machinery(NamedTuple):
    """How the servers are set up, and how rough the way to them is."""

    system: str = REDIS
    nodes: int = 1  # of Redis, more than one: a Redlock; else the members of a cluster
    streams: StreamFaults = ROUGH_STREAMS
    retention: float = 30.0  # seconds that the store of Redis remembers a token
    timeout: float = 1.0  # of a conversation
    replicas: int = 0  # that must acknowledge a grant
    lag: float = 0.5  # seconds that a replica, or a member, is behind, at most
    login: bool = False
    lock_delay: float = 0.0  # seconds: Consul's


class Machines:
    """The servers of one run. What can happen to all of them is here, what to some is theirs: see chaos.py for the list."""

    own_clock = False  # does each process end its own claims, by its own clock?
    from_asking = False  # is the time of a claim sure from its asking only? See checkers.py

    def __init__(self, workload: Workload, setup: Machinery) -> None:
        self.workload = workload
        self.setup = setup
        self.world = workload.world
        self.random = workload.world.random
        self.streams = Streams(workload.world, setup.streams)

    def open(self, process: Process) -> Store:
        raise NotImplementedError

    def happen(self, what: str) -> None:
        """A fault of the servers, by its name."""
        getattr(self, what)()

    def cut(self, process: Process) -> None:
        """One of its connections, and both ends are told; or all."""
        self._break(process, "connections cut", lambda stream: stream.cut())

    def half_open(self, process: Process) -> None:
        self._break(process, "connections half open", lambda stream: stream.half_open())

    def isolate(self, process: Process, seconds: float) -> None:
        self.streams.isolate(process, seconds)

    def heal(self) -> None:
        self.streams.heal()

    def excuses(self, name: str, higher: int, lower: int, since: float, until: float) -> bool:
        """May the lower token have been given after the higher one?"""
        return False

    def refused(self, name: str, since: float, until: float) -> float:
        """Until when those who asked for it between these moments may have been told to ask later: `since`, if never."""
        return since

    def asks_to_come_later(self, error: Unavailable) -> bool:
        """Is that no fault, though nothing is wrong any more?"""
        return False

    def _break(self, process: Process, what: str, action: Callable[..., None]) -> None:
        streams = self.streams.of(process)
        if streams:
            some = streams if self.random.random() < 0.5 else [self.random.choice(streams)]
            self.note(process, what, detail=f"{len(some)} of {len(streams)}")
            for stream in some:
                action(stream)

    def note(self, process: Process, what: str, name: str = "", detail: str = "") -> None:
        self.workload.history.note(self.world.time, process.name, what, name, detail=detail)


class ClusterMachines(Machines):
    """Members that follow a leader."""

    own_clock = True
    cluster: Quorum[Any]

    def names(self) -> list[str]:
        system = self.setup.system
        return [system] if self.setup.nodes == 1 else [f"{system}{number + 1}" for number in range(self.setup.nodes)]

    def server_pause(self) -> None:
        member = self._any()
        seconds = self.random.uniform(0.01, 2.5)
        self.note(member.process, f"paused{self._what(member)}", detail=f"for {seconds:.3f} s")
        member.process.pause(seconds)
        self.cluster.miss(member)

    def restart(self) -> None:
        """It fsyncs, so nothing is lost."""
        member, down = self._any(), self.random.uniform(0.0, 2.0)
        if not member.up:
            return
        self.note(member.process, f"restarts{self._what(member)}", detail=f"down for {down:.3f} s")
        member.restart(down)
        if self.setup.nodes == 1:
            self.cluster.elect(down)
        else:
            self.cluster.miss(member)

    def leader(self) -> None:
        """Another leads."""
        if self.cluster.leader is None:
            return
        away = self.random.uniform(0.01, self.cluster.election)
        unaware = self.random.choice((0.0, away + self.random.uniform(0.0, 1.5))) if self.setup.nodes > 1 else 0.0
        detail = f"and does not know it for {unaware:.3f} s" if unaware else f"{away:.3f} s without one"
        self.note(self.cluster.leader.process, "leads no more", detail=detail)
        self.cluster.elect(away, unaware)

    def cut_member(self) -> None:
        member, seconds = self._any(), self.random.uniform(0.1, 4.0)
        if self.setup.nodes > 1:
            what = f"cut off from the other members{self._what(member)}"
            self.note(member.process, what, detail=f"for {seconds:.3f} s")
            self.cluster.cut_off(member, seconds)

    def heal(self) -> None:
        super().heal()
        self.cluster.heal()

    def _any(self) -> Member:
        member: Member = self.random.choice(self.cluster.members)
        return member

    def _what(self, member: Member) -> str:
        return ", the leader" if member is self.cluster.leader else ""


def on_machines(workload: Workload, process: Process) -> Store:
    """An opener: the production store, on servers of the workload's plan."""
    if workload.machines is None:
        workload.machines = _built(workload, workload.plan.machinery)
    return workload.machines.open(process)


def _built(workload: Workload, setup: Machinery) -> Machines:
    if setup.system == ETCD:
        from .etcd_machines import EtcdMachines

        return EtcdMachines(workload, setup)
    if setup.system == CONSUL:
        from .consul_machines import ConsulMachines

        return ConsulMachines(workload, setup)
    if setup.system == REDIS_CLUSTER:
        from .redis_cluster_machines import RedisClusterMachines

        return RedisClusterMachines(workload, setup)
    from .redis_machines import RedisMachines

    return RedisMachines(workload, setup)
