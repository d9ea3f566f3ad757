"""The real client of a server, from the engine down to its bytes, over simulated streams: what the tests of all servers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from holdfast.asking import Ask
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import Driver
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import StreamFaults, Streams
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, Unavailable
from holdfast.lease import Lease
from holdfast.stores.base import Store

S = TypeVar("S")
LOCK = Ask("lock", ttl=10.0)
LATE = StreamFaults(slow=0.05, slow_by=(3.0, 8.0))  # longer than anybody waits for an answer


class Service(NamedTuple, Generic[S]):
    """A scripted server, and how a client finds it."""

    url: str
    open_store: Callable[[str, Driver], Store]
    serve: Callable[[Process, Streams], S]


class Outcome(NamedTuple):
    steps: int
    tokens: list[int]  # in the order of entering
    worst: int  # how many were inside at once
    cuts: int
    connections: int

    def is_right(self) -> bool:
        return bool(self.tokens) and self.tokens == sorted(set(self.tokens)) and self.worst == 1


def contend(
    service: Service[S],
    seed: int,
    faults: StreamFaults,
    clients: int = 3,
    times: int = 4,
    while_inside: Callable[[S], object] = id,
) -> tuple[Outcome, S]:
    """Each takes the same lock several times; holders write down who is inside."""
    inside: set[str] = set()
    tokens: list[int] = []
    worst = 0
    with World(seed) as world:
        streams = Streams(world, faults)
        server = service.serve(Process(world, "server"), streams)

        async def work(process: Process) -> None:
            nonlocal worst
            engine = Engine(service.open_store(service.url, process.driver), process.driver)
            for _ in range(times):
                try:
                    lease = await engine.acquire(LOCK, 200, Lease)
                except Unavailable:
                    continue
                tokens.append(lease.token)
                inside.add(process.name)
                worst = max(worst, len(inside))
                await process.driver.sleep(world.random.uniform(0, 0.05))
                while_inside(server)
                inside.discard(process.name)
                try:
                    await engine.release(lease)
                except HoldfastError:
                    continue  # in the background it goes on
            await engine.close()

        tasks = []
        for number in range(clients):
            process = Process(world, f"client{number}")
            tasks.append(process.spawn(lambda process=process: work(process), "work"))  # type: ignore[misc]
        for task in tasks:
            world.run(task)
        return Outcome(world.steps, tokens, worst, streams.cuts, streams.opened), server


def run(service: Service[S], seed: int, work: Callable[[Process, Streams], Awaitable[object]]) -> Streams:
    """One client, over calm streams."""
    with World(seed) as world:
        streams = Streams(world)
        service.serve(Process(world, "server"), streams)
        client = Process(world, "client")

        async def working() -> None:
            await work(client, streams)

        world.run(client.spawn(working, "work"))
        assert not world.failures
        return streams


def a_connection_that_was_cut_while_it_lay_idle_is_replaced(service: Service[S], opened: int = 2) -> None:
    async def work(client: Process, streams: Streams) -> None:
        store = service.open_store(service.url, client.driver)
        mine = Claim("x", new_holder(), "somebody", 10.0)
        grant = await store.claim(mine)
        assert isinstance(grant, Grant)
        streams.cut_all()
        assert list(await store.renew([grant], 1.0)) == [grant]
        assert await store.release(mine)

    assert run(service, 3, work).opened == opened


def a_silent_host_is_passed_over_in_time(service: Service[S], silent: tuple[str, int], url: str) -> None:
    async def work(client: Process, streams: Streams) -> None:
        streams.silence(silent)
        store = service.open_store(url, client.driver)
        began = client.driver.now()
        assert isinstance(await store.claim(Claim("x", new_holder(), "somebody", 10.0), 4.0), Grant)
        assert client.driver.now() - began < 4.0

    run(service, 4, work)


def a_crashed_holder_is_replaced(service: Service[S], seed: int) -> S:
    with World(seed) as world:
        streams = Streams(world)
        server = service.serve(Process(world, "server"), streams)
        first, second = Process(world, "first"), Process(world, "second")
        told: list[Grant | Place] = []

        async def hold() -> None:
            store = service.open_store(service.url, first.driver)
            told.append(await store.claim(Claim("x", new_holder(), "first", 10.0)))

        async def wait() -> None:
            store = service.open_store(service.url, second.driver)
            mine = Claim("x", new_holder(), "second", 10.0)
            while isinstance(place := await store.claim(mine), Place):
                await store.wait(place, 5.0)
                assert second.driver.now() < 100
            told.append(place)

        world.run(first.spawn(hold, "hold"))
        first.crash()
        world.run(second.spawn(wait, "wait"))
        assert not world.failures
        before, after = told
        assert isinstance(before, Grant)
        assert isinstance(after, Grant)
        assert after.token > before.token
        return server
