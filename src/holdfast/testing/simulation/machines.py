"""Simulated servers under a workload: what the production stores connect to, and what happens there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...drivers.simulated import Process
from ...drivers.simulated_streams import ROUGH_STREAMS, StreamFaults, Streams
from ...stores.base import Store
from ..history import FORGOT, SET_BACK, SET_FORWARD
from .servers.redis import RedisServer

if TYPE_CHECKING:
    from .workload import Workload

PORT = 6379
NEVER_BACK = float("inf")


class Machinery(NamedTuple):
    """How the servers are set up, and how rough the way to them is."""

    nodes: int = 1  # more than one: a Redlock
    streams: StreamFaults = ROUGH_STREAMS
    retention: float = 30.0  # seconds that the store remembers a token
    timeout: float = 1.0  # of a conversation
    replicas: int = 0  # that must acknowledge a grant
    lag: float = 0.5  # seconds that a replica is behind, at most


class Machines:
    """The servers of one run."""

    def __init__(self, workload: Workload, setup: Machinery) -> None:
        self._workload = workload
        self._setup = setup
        self._world = workload.world
        self._random = workload.world.random
        self.streams = Streams(workload.world, setup.streams)
        names = ["redis"] if setup.nodes == 1 else [f"redis{number + 1}" for number in range(setup.nodes)]
        self.servers = [self._started(name) for name in names]
        options = f"timeout={setup.timeout:g}&retention={setup.retention:g}"
        if setup.nodes == 1:
            self._url = f"redis://redis?{options}&replicas={setup.replicas}"
        else:
            self._url = f"redlock://{','.join(names)}?retention={setup.retention:g}"

    def _started(self, name: str) -> RedisServer:
        process = Process(self._world, name, wall_ahead=self._random.uniform(-1.0, 1.0))
        server = RedisServer(process, self.streams, (name, PORT))
        server.lag = self._random.uniform(0.0, self._setup.lag)
        return server

    def open(self, process: Process) -> Store:
        if self._setup.nodes > 1:
            from ...stores import redlock

            return redlock.open_store(self._url, process.driver)
        from ...stores import redis

        return redis.open_store(self._url, process.driver)

    # ---- what happens

    def pause(self) -> None:
        server = self._any()
        seconds = self._random.uniform(0.01, 2.0)
        self._note(server, "paused", detail=f"for {seconds:.3f} s")
        server.process.pause(seconds)

    def restart(self) -> None:
        """All that it knew is there again when it comes back."""
        server, down = self._any(), self._random.uniform(0.0, 1.5)
        self._note(server, "restarts", detail=f"down for {down:.3f} s, nothing lost")
        server.restart(down, 0.0)

    def forget(self) -> None:
        server, down = self._any(), self._random.uniform(0.0, 1.5)
        self._note(server, FORGOT, detail=f"restarts empty, down for {down:.3f} s")
        server.restart(down, NEVER_BACK)

    def fail_over(self) -> None:
        server, down = self._any(), self._random.uniform(0.0, 1.5)
        clock = self._random.choice((0.0, self._random.uniform(-0.5, 0.5)))
        self._note(server, FORGOT, detail=f"fails over to a replica that is {server.lag:.3f} s behind")
        self._told_clock(server, clock)
        server.fail_over(down, clock)

    def lose_scripts(self) -> None:
        server = self._any()
        self._note(server, "forgets its scripts")
        server.forget_scripts()

    def evict(self) -> None:
        server = self._any()
        keys = server.space.keys()
        if keys:
            key = self._random.choice(keys)
            name = key[key.index(b"{") + 1 : key.index(b"}")].decode().replace("%20", " ")
            self._note(server, FORGOT, name, detail=f"evicts the key {key.decode()}")
            server.evict(key)

    def set_clock(self) -> None:
        """By a little, by some ttls, or by hours."""
        server = self._any()
        seconds = self._random.choice((-1, 1)) * 10 ** self._random.uniform(-2.0, 4.0)
        self._told_clock(server, seconds)
        server.jump(seconds)

    def cut(self, process: Process) -> None:
        """One of its connections, and both ends are told; or all."""
        self._break(process, "connections cut", lambda stream: stream.cut())

    def half_open(self, process: Process) -> None:
        self._break(process, "connections half open", lambda stream: stream.half_open())

    def isolate(self, process: Process, seconds: float) -> None:
        self.streams.isolate(process, seconds)

    def heal(self) -> None:
        self.streams.heal()
        for server in self.servers:
            server.lag = min(server.lag, 0.005)

    # ---- what may be said for it

    def excuses(self, name: str, higher: int, lower: int, since: float, until: float) -> bool:
        """May the lower token have been given after the higher one? If that was forgotten, and the clock was behind it.

        What is forgotten by design: a token that the clock has passed by the retention time, see docs/redis.md.
        """
        forgot = any(
            note.what == FORGOT and note.name in ("", name) and since <= note.at <= until
            for note in self._workload.history.notes
        )
        late = higher + int(self._setup.retention * 1e6)
        return forgot or any(server.latest(since, until) >= late for server in self.servers)

    def _break(self, process: Process, what: str, action: Callable[..., None]) -> None:
        streams = self.streams.of(process)
        if streams:
            some = streams if self._random.random() < 0.5 else [self._random.choice(streams)]
            self._note(process, what, detail=f"{len(some)} of {len(streams)}")
            for stream in some:
                action(stream)

    def _any(self) -> RedisServer:
        return self._random.choice(self.servers)

    def _told_clock(self, server: RedisServer, seconds: float) -> None:
        if seconds:
            self._note(server, SET_FORWARD if seconds > 0 else SET_BACK, detail=f"by {abs(seconds):.3f} s")

    def _note(self, who: RedisServer | Process, what: str, name: str = "", detail: str = "") -> None:
        process = who.process if isinstance(who, RedisServer) else who
        self._workload.history.note(self._world.time, process.name, what, name, detail=detail)


def on_machines(workload: Workload, process: Process) -> Store:
    """An opener: the production store of Redis, or of Redlock, on servers of the workload's plan."""
    if workload.machines is None:
        workload.machines = Machines(workload, workload.plan.machinery)
    return workload.machines.open(process)
