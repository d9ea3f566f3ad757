"""How far does one server carry? A model of three lines, and the simulator with ten thousand virtual clients to check it.

The model: one request after the other, S seconds of the server's work for a lock taken and left, and s for a renewal.
N clients that each take a lock, hold it, leave it, and pause, Z seconds from one to the next when nobody else is there, make

    min(N / (Z + S),  (1 - u) / S)      locks per second, where   u = s * leases / (ttl / 3)

of the server's time goes into renewals. The simulator has the real engine and the real memory store behind a network, and a
server that works through what arrives one by one: where the model is wrong, it shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from holdfast import recipes
from holdfast.asking import Ask
from holdfast.claim import ROUND, Claim, Grant, Place
from holdfast.claim import Verdict as Kept
from holdfast.drivers.simulated import Process
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.lease import Lease
from holdfast.stores.memory import MemoryStore
from holdfast.testing.simulation import Faults, Network, Remote

from .measure import Verdict, report

T = TypeVar("T")
DELAY = 0.0002  # seconds from a client to the server, or back
CLIENTS = 10_000
_RUNS = itertools.count()


class Load(NamedTuple):
    clients: int
    work: float  # S: seconds of the server per lock taken and left
    renewal: float  # s: and per renewal
    pause: float  # between two locks of a client
    holds: float = 0.0  # seconds that a lock is held
    ttl: float = 30.0
    leases: int = 0  # that are held all the while by clients that do nothing else

    @property
    def carried(self) -> float:
        """Locks per second, by the model."""
        renewals = self.renewal * self.leases / (self.ttl / 3)
        apart = self.pause + self.holds + 4 * DELAY
        return min(self.clients / (apart + self.work), (1 - renewals) / self.work)


class OneByOne(MemoryStore):
    """The server: it works on one request at a time, and what came first is done first."""

    def __init__(self, server: Process, load: Load) -> None:
        super().__init__(server.driver, f"scale {next(_RUNS)}")  # what an earlier run left held is nothing to us
        self._server, self._load, self._free_at = server, load, 0.0

    async def _worked(self, seconds: float) -> None:
        now = self._server.world.time
        self._free_at = max(now, self._free_at) + seconds
        await self._server.driver.sleep(self._free_at - now)

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        await self._worked(self._load.work / 2)
        return await super().claim(claim, within)

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        await self._worked(self._load.work / 2)
        return await super().release(claim, within)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Kept]:
        await self._worked(self._load.renewal * len(grants))
        return await super().renew(grants, within)


def simulated(load: Load, seconds: float = 4.0, seed: int = 1) -> float:
    """Locks per second, in virtual time; what comes before all have begun does not count."""
    first = load.leases * load.work  # those that are held all the while are claimed before anybody else comes
    done, begun = 0, first + load.pause + load.holds
    seconds = max(seconds, load.ttl / 3 if load.leases else 0.0)  # a whole round of renewals
    with World(seed, max_steps=50_000_000, max_time=3600.0) as world:
        server = Process(world, "server")
        store = OneByOne(server, load)
        network = Network(server, Faults(delay=(DELAY, DELAY)), timeout=60.0)

        def client(name: str, main: Callable[[Engine, Process], Coroutine[Any, Any, None]]) -> None:
            process = Process(world, name)
            engine = Engine(Remote(store, network, process), process.driver)
            process.spawn(lambda: main(engine, process), name)

        async def works(engine: Engine, process: Process) -> None:
            nonlocal done
            ask = Ask(f"of {process.name}", load.ttl)
            await process.driver.sleep(first + process.driver.uniform(0, load.pause + load.holds))
            while True:
                [lease] = await recipes.acquire_all(engine, [ask], None, Lease)
                await process.driver.sleep(load.holds)
                await engine.release(lease)
                done += world.time >= begun
                await process.driver.sleep(load.pause)

        async def holds(engine: Engine, process: Process) -> None:
            kept = []
            for number in range(load.leases // HOLDERS):
                kept += await recipes.acquire_all(engine, [Ask(f"{process.name}/{number}", load.ttl)], None, Lease)
            await process.driver.sleep(3600)

        for number in range(load.clients):
            client(f"client {number}", works)
        if load.leases:
            for number in range(HOLDERS):
                client(f"holder {number}", holds)
        world.run_until(begun + seconds)
    return done / seconds


HOLDERS = 10
LOADS = {
    "not busy": Load(CLIENTS, work=100e-6, renewal=10e-6, pause=10.0),
    "more than it carries": Load(CLIENTS, work=100e-6, renewal=10e-6, pause=0.5),
    "and locks are held": Load(CLIENTS, work=100e-6, renewal=10e-6, pause=2.0, holds=1.0),
    "more than it carries, and 20,000 leases are renewed": Load(
        CLIENTS, work=1e-3, renewal=100e-6, pause=5.0, leases=20_000
    ),
}


def main() -> bool:
    verdicts = []
    for what, load in LOADS.items():
        seen = simulated(load)
        off = abs(seen / load.carried - 1) * 100
        detail = f"{seen:,.0f} locks/s in the simulator, {load.carried:,.0f} by the model"
        verdicts.append(Verdict(f"{load.clients:,} clients, {what}: the model is off by", off, 5, "%", detail=detail))
    return report("How far one server carries", verdicts)
