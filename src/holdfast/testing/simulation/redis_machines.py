"""One Redis, or the nodes of a Redlock, under a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...drivers.simulated import Process
from ...stores.base import Store
from ..history import FORGOT, SET_BACK, SET_FORWARD
from .machines import REDIS, Machinery, Machines
from .servers.redis import RedisServer

if TYPE_CHECKING:
    from .workload import Workload

PORT = 6379
NEVER_BACK = float("inf")


class RedisMachines(Machines):
    def __init__(self, workload: Workload, setup: Machinery) -> None:
        super().__init__(workload, setup)
        # Of a majority, some may have had it long before the others.
        self.from_asking = setup.nodes > 1 and setup.system == REDIS
        names = ["redis"] if setup.nodes == 1 else [f"redis{number + 1}" for number in range(setup.nodes)]
        self.servers = [self._started(name) for name in names]
        options = f"timeout={setup.timeout:g}&retention={setup.retention:g}"
        if setup.nodes == 1:
            self._url = f"redis://redis?{options}&replicas={setup.replicas}"
        else:
            self._url = f"redlock://{','.join(names)}?retention={setup.retention:g}"

    def _started(self, name: str) -> RedisServer:
        process = Process(self.world, name, wall_ahead=self.random.uniform(-1.0, 1.0))
        server = RedisServer(process, self.streams, (name, PORT))
        server.lag = self.random.uniform(0.0, self.setup.lag)
        return server

    def open(self, process: Process) -> Store:
        if self.setup.nodes > 1:
            from ...stores import redlock

            return redlock.open_store(self._url, process.driver)
        from ...stores import redis

        return redis.open_store(self._url, process.driver)

    # ---- what happens

    def server_pause(self) -> None:
        server = self._any()
        seconds = self.random.uniform(0.01, 2.0)
        self.note(server.process, "paused", detail=f"for {seconds:.3f} s")
        server.process.pause(seconds)

    def restart(self) -> None:
        """All that it knew is there again when it comes back."""
        server, down = self._any(), self.random.uniform(0.0, 1.5)
        self.note(server.process, "restarts", detail=f"down for {down:.3f} s, nothing lost")
        server.restart(down, 0.0)

    def forget(self) -> None:
        server, down = self._any(), self.random.uniform(0.0, 1.5)
        self.note(server.process, FORGOT, detail=f"restarts empty, down for {down:.3f} s")
        server.restart(down, NEVER_BACK)

    def fail_over(self) -> None:
        server, down = self._any(), self.random.uniform(0.0, 1.5)
        clock = self.random.choice((0.0, self.random.uniform(-0.5, 0.5)))
        self.note(server.process, FORGOT, detail=f"fails over to a replica that is {server.lag:.3f} s behind")
        self._told_clock(server, clock)
        server.fail_over(down, clock)

    def lose_scripts(self) -> None:
        server = self._any()
        self.note(server.process, "forgets its scripts")
        server.forget_scripts()

    def evict_key(self) -> None:
        server = self._any()
        keys = server.space.keys()
        if keys:
            key = self.random.choice(keys)
            name = key[key.index(b"{") + 1 : key.index(b"}")].decode().replace("%20", " ")
            self.note(server.process, FORGOT, name, detail=f"evicts the key {key.decode()}")
            server.evict(key)

    def server_clock(self) -> None:
        """By a little, by some ttls, or by hours."""
        server = self._any()
        seconds = self.random.choice((-1, 1)) * 10 ** self.random.uniform(-2.0, 4.0)
        self._told_clock(server, seconds)
        server.jump(seconds)

    def heal(self) -> None:
        super().heal()
        for server in self.servers:
            server.lag = min(server.lag, 0.005)

    # ---- what may be said for it

    def excuses(self, name: str, higher: int, lower: int, since: float, until: float) -> bool:
        """If the higher one was forgotten, and the clock was behind it.

        What is forgotten by design: a token that the clock has passed by the retention time, see docs/redis.md.
        """
        forgot = any(
            note.what == FORGOT and note.name in ("", name) and since <= note.at <= until
            for note in self.workload.history.notes
        )
        late = higher + int(self.setup.retention * 1e6)
        return forgot or any(server.latest(since, until) >= late for server in self.servers)

    def _any(self) -> RedisServer:
        return self.random.choice(self.servers)

    def _told_clock(self, server: RedisServer, seconds: float) -> None:
        if seconds:
            what = SET_FORWARD if seconds > 0 else SET_BACK
            self.note(server.process, what, detail=f"by {abs(seconds):.3f} s")
