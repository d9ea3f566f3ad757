"""Simulated servers under a workload: what the production stores connect to, and what happens there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...drivers.simulated import Process
from ...drivers.simulated_streams import ROUGH_STREAMS, StreamFaults, Streams
from ...stores.base import Store

if TYPE_CHECKING:
    from .workload import Workload

REDIS, ETCD, CONSUL = "redis", "etcd", "consul"


class Machinery(NamedTuple):
    """How the servers are set up, and how rough the way to them is."""

    system: str = REDIS
    nodes: int = 1  # of Redis, more than one: a Redlock; of etcd, the members of a cluster
    streams: StreamFaults = ROUGH_STREAMS
    retention: float = 30.0  # seconds that the store of Redis remembers a token
    timeout: float = 1.0  # of a conversation
    replicas: int = 0  # that must acknowledge a grant
    lag: float = 0.5  # seconds that a replica, or a member, is behind, at most
    login: bool = False
    lock_delay: float = 0.0  # seconds, of other sessions than ours: Consul's


class Machines:
    """The servers of one run. What can happen to all of them is here, what to some is theirs: see chaos.py for the list."""

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

    def _break(self, process: Process, what: str, action: Callable[..., None]) -> None:
        streams = self.streams.of(process)
        if streams:
            some = streams if self.random.random() < 0.5 else [self.random.choice(streams)]
            self.note(process, what, detail=f"{len(some)} of {len(streams)}")
            for stream in some:
                action(stream)

    def note(self, process: Process, what: str, name: str = "", detail: str = "") -> None:
        self.workload.history.note(self.world.time, process.name, what, name, detail=detail)


def on_machines(workload: Workload, process: Process) -> Store:
    """An opener: the production store, on servers of the workload's plan."""
    if workload.machines is None:
        workload.machines = _built(workload, workload.plan.machinery)
    return workload.machines.open(process)


def _built(workload: Workload, setup: Machinery) -> Machines:
    if setup.system == ETCD:
        from .etcd_machines import EtcdMachines

        return EtcdMachines(workload, setup)
    from .redis_machines import RedisMachines

    return RedisMachines(workload, setup)
