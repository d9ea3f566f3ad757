"""A Redis Cluster under a workload: three masters, each with a replica that takes over at another address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...drivers.simulated import Process
from ...errors import Unavailable
from ...stores import redis
from ...stores.base import Store
from ...stores.redis.keys import slot, state_key
from .machines import Machinery
from .redis_machines import PORT, RedisMachines
from .servers.redis import ClusterNode, RedisServer

if TYPE_CHECKING:
    from .workload import Workload

CALM_MOVES = 12
MILLISECOND = 0.001
ASKED_AGAIN = 0.4  # seconds, at most, after which the engine asks again if it was refused several times


class RedisClusterMachines(RedisMachines):
    servers: list[RedisServer]

    def __init__(self, workload: Workload, setup: Machinery) -> None:
        self._apart = workload.world.random.choice((0.0, 1.0))  # seconds, at most: their clocks
        self._moves: list[tuple[int, float, float]] = []  # slots: since when they were on their way, and until when
        super().__init__(workload, setup)
        self.nodes = [server for server in self.servers if isinstance(server, ClusterNode)]
        for node in self.nodes:
            node.nodes = self.nodes
        hosts = ",".join(f"{server.process.name},{_replica(server.process.name)}" for server in self.servers)
        self._url = f"redis+cluster://{hosts}?timeout={setup.timeout:g}&retention={setup.retention:g}"

    def _started(self, name: str) -> RedisServer:
        process = Process(self.world, name, wall_ahead=self.random.uniform(-self._apart, self._apart))
        node = ClusterNode(process, self.streams, (name, PORT), (_replica(name), PORT))
        node.lag = self.random.uniform(0.0, self.setup.lag)
        return node

    def open(self, process: Process) -> Store:
        return redis.open_store(self._url, process.driver)

    def move_slot(self) -> None:
        self._move(self.random.choice((0.001, self.random.uniform(0.0, 3.0))), together=self.random.random() < 0.5)

    def heal(self) -> None:
        """That slots move is no fault: they go on moving, at once or for a while. Not where nothing at all happens: who asks
        for one on its way may be refused."""
        super().heal()
        for number in range(CALM_MOVES if any(self.workload.plan.trouble) else 0):
            self.world.after(1.5 * (number + 1), self._move_quietly)

    def _move_quietly(self) -> None:
        clocks = [server.process.wall_ahead for server in self.servers]
        if max(clocks) - min(clocks) < MILLISECOND:
            seconds = self.random.choice((self.random.uniform(0.005, 0.05), self.random.uniform(0.2, 1.4)))
            self._move(seconds, together=self.random.random() < 0.5)

    def refused(self, name: str, since: float, until: float) -> float:
        """While a slot is on its way, Redis refuses (TRYAGAIN) whoever asks for several keys of it of which one is not there,
        as the scripts for a line do: until it has arrived, and they ask again."""
        number, last = slot(state_key(b"hf", name)), since
        for moved, start, end in self._moves:
            if moved == number and end >= since and start <= max(until, last):
                last = max(last, end + ASKED_AGAIN)
        return last

    def asks_to_come_later(self, error: Unavailable) -> bool:
        return "TRYAGAIN" in str(error)

    def excuses(self, name: str, higher: int, lower: int, since: float, until: float) -> bool:
        """If a node has forgotten the higher one, and may have."""
        key, retention = state_key(b"hf", name), self.setup.retention
        return any(
            one.key == key and one.token >= higher and since <= one.at <= until and one.as_is_said(retention)
            for node in self.nodes
            for one in node.forgotten
        )

    def _move(self, seconds: float, *, together: bool) -> None:
        """Of a name that is in use, to a node whose clock may differ: what is held there ends by that clock from now on."""
        there = [server.space.keys() for server in self.servers]
        numbers = sorted({slot(key) for keys in there for key in keys})
        if not numbers:
            return
        number = self.random.choice(numbers)
        source = next(node for node in self.nodes if node.owner(number) is node)
        target = self.random.choice(source.others)
        if number in source.leaving or any(number in node.coming for node in self.nodes):
            return
        detail = f"{number} to {target.process.name}, in {seconds:.3f} s"
        self.note(source.process, "hands over a slot", detail=detail)
        self._moves.append((number, self.world.time, self.world.time + seconds))

        def moved() -> None:
            self._told_clock(target, target.process.wall_ahead - source.process.wall_ahead)

        source.hand_over(number, target, seconds, moved, together=together)


def _replica(name: str) -> str:
    return f"{name}r"
