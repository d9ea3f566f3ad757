"""Whoever may enter does so at once, whatever made the room: a release, a downgrade, a waiter that gave up. The ttl is so long
that a lost wake-up would show."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast import recipes
from holdfast.asking import Ask
from holdfast.changing import downgrade
from holdfast.drivers.base import finish
from holdfast.drivers.simulated import Process
from holdfast.drivers.world import Task, World
from holdfast.engine import Engine
from holdfast.errors import NotAcquired
from holdfast.lease import Lease
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.simulation import Local

TTL = 30.0
PROMPT = 0.2
SEEDS = range(6)
READ, WRITE = recipes.rwlock_asks("book", TTL, True, True)
MUTEX = Ask("lock", TTL)

_names = itertools.count()
Opener = Callable[[Process], Store]


@pytest.fixture(params=["memory", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Opener]:
    def fresh() -> Opener:
        name = f"handoff-{next(_names)}"
        if request.param == "memory":
            return lambda process: MemoryStore(process.driver, name)
        return lambda process: SqliteStore(str(tmp_path / name), process.driver)

    return fresh


class Room:
    def __init__(self, world: World, opener: Opener) -> None:
        self.world = world
        self.entered: dict[str, float] = {}
        self._opener = opener
        self._stores: list[Store] = []

    def client(self, name: str) -> tuple[Process, Engine]:
        process = Process(self.world, name)
        store = self._opener(process)
        self._stores.append(store)
        return process, Engine(Local(store, process), process.driver)

    def run(self, *tasks: Task) -> None:
        try:
            self.world.run(*tasks)
        finally:
            for store in self._stores:
                finish(store.close())

    def visitor(self, name: str, ask: Ask, at: float, timeout: float | None = None) -> Task:
        """Comes at that time, stays a second, leaves."""
        process, engine = self.client(name)

        async def visit() -> None:
            await engine.driver.sleep(at)
            try:
                lease = await engine.acquire(ask, timeout, Lease)
            except NotAcquired:
                return
            self.entered[name] = self.world.time
            try:
                await engine.driver.sleep(1.0)
            finally:
                await engine.driver.shield(partial(engine.release, lease))

        return process.spawn(visit, "visit")

    def within(self, start: float, *names: str) -> bool:
        return all(start <= self.entered[name] <= start + PROMPT for name in names)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_readers_come_in_when_the_writer_leaves(seed: int, opener: Callable[[], Opener]) -> None:
    with World(seed) as world:
        room = Room(world, opener())
        tasks = [room.visitor("writer", WRITE, 0.0)]
        tasks += [room.visitor(f"reader {n}", READ, 0.1 + n / 10) for n in range(5)]
        room.run(*tasks)
        assert room.within(1.0, *(f"reader {n}" for n in range(5))), room.entered


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_come_in_when_the_writer_becomes_one_of_them(seed: int, opener: Callable[[], Opener]) -> None:
    with World(seed) as world:
        room = Room(world, opener())
        process, engine = room.client("writer")

        async def write_then_read() -> None:
            lease = await engine.acquire(WRITE, None, Lease)
            await engine.driver.sleep(1.0)
            await downgrade(engine, lease)
            await engine.driver.sleep(3.0)
            await engine.release(lease)

        tasks = [process.spawn(write_then_read, "write")]
        tasks += [room.visitor(f"reader {n}", READ, 0.1 + n / 10) for n in range(4)]
        tasks += [room.visitor("writer 2", WRITE, 0.6)]
        room.run(*tasks)
        assert room.within(1.0, *(f"reader {n}" for n in range(4))), room.entered
        assert room.within(4.0, "writer 2"), room.entered


@pytest.mark.parametrize("seed", SEEDS)
def test_a_release_of_several_units_lets_several_in(seed: int, opener: Callable[[], Opener]) -> None:
    with World(seed) as world:
        room = Room(world, opener())
        ask = Ask("pool", TTL, capacity=4)
        tasks = [room.visitor("big", ask._replace(units=4), 0.0)]
        tasks += [room.visitor(f"small {n}", ask, 0.1 + n / 10) for n in range(3)]
        tasks += [room.visitor("middle", ask._replace(units=2), 0.5), room.visitor("behind", ask, 0.6)]
        room.run(*tasks)
        assert room.within(1.0, "small 0", "small 1", "small 2"), room.entered
        assert room.within(2.0, "middle", "behind"), room.entered


@pytest.mark.parametrize("seed", SEEDS)
def test_who_waits_behind_one_that_gives_up_comes_in(seed: int, opener: Callable[[], Opener]) -> None:
    """The first in line wants more than there is and gives up; the second would have fitted all the time."""
    with World(seed) as world:
        room = Room(world, opener())
        ask = Ask("pool", TTL, capacity=2)
        tasks = [room.visitor("inside", ask._replace(units=1), 0.0), room.visitor("stays", ask, 0.9)]
        tasks += [room.visitor("greedy", ask._replace(units=2), 0.1, timeout=0.4), room.visitor("modest", ask, 0.2)]
        room.run(*tasks)
        assert "greedy" not in room.entered
        assert room.within(0.5, "modest"), room.entered


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_a_waiter_that_gives_up_as_it_is_rung_passes_the_ring_on(
    how: str, seed: int, opener: Callable[[], Opener]
) -> None:
    for moment in range(12):
        with World(seed) as world:
            room = Room(world, opener())
            at = 0.999 + moment / 1000
            holder = room.visitor("holder", MUTEX, 0.0)
            first = room.visitor("first", MUTEX, 0.1, None if how == "cancelled" else at - 0.1)
            if how == "cancelled":
                world.at(at, first.cancel)
            second = room.visitor("second", MUTEX, 0.2)
            room.run(holder, first, second)
            # If the first had come in when it was cancelled, it had to leave again before; if it stayed, it stayed a second.
            free = 2.0 if "first" in room.entered and not first.cancelled else 1.0
            assert room.entered["second"] <= free + PROMPT, room.entered
