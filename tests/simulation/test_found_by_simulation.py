"""What the simulation found in the core, each as the shortest story that shows it."""

from __future__ import annotations

import itertools
from pathlib import Path

from holdfast.asking import Ask
from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.base import finish
from holdfast.drivers.simulated import Process
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.lease import Lease
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.store import Heir
from holdfast.testing.simulation.local import moment

_names = itertools.count()


def memory(process: Process) -> MemoryStore:
    return MemoryStore(process.driver, f"found-{next(_names)}")


def test_the_renewer_sleeps_while_a_lease_runs_out_that_it_must_not_extend() -> None:
    with World(1) as world:
        process = Process(world, "p")
        engine = Engine(memory(process), process.driver)

        async def hold() -> None:
            await engine.acquire(Ask("lock", ttl=3.0, renew=False), None, Lease)
            await process.driver.sleep(4.0)

        world.run(process.spawn(hold, "hold"))
        assert world.steps < 20


def test_an_evicted_holder_is_told_though_a_late_copy_of_its_claim_was_let_in() -> None:
    with World(1) as world:
        process = Process(world, "p")
        store = memory(process)
        claim = Claim("lock", "nonce", "p", 3.0)

        async def story() -> None:
            grant = await store.claim(claim)
            assert isinstance(grant, Grant)
            await store.evict("lock", grant.token, "operator")
            again = await store.claim(claim)  # the copy
            assert isinstance(again, Grant)
            assert again.token > grant.token
            assert list(await store.renew([grant], 1.0)) == [None]

        world.run(process.spawn(story, "story"))


class _Slow(SqliteStore):
    """Others run between its changes and its bells."""

    process: Process

    async def _ring(self, name: str, heir: Heir, give_up: float) -> None:
        await moment(self.process)
        await super()._ring(name, heir, give_up)


def test_a_waiter_that_comes_in_before_it_is_rung_is_not_put_out_as_dead(tmp_path: Path) -> None:
    path = str(tmp_path / "locks.db")
    with World(1) as world:
        first, second = Process(world, "first"), Process(world, "second")
        leaving, coming = _Slow(path, first.driver), SqliteStore(path, second.driver)
        leaving.process = first
        one, two = (Claim("lock", nonce, nonce, 3.0) for nonce in ("one", "two"))

        async def leave() -> None:
            await leaving.claim(one)
            await first.driver.sleep(1.0)
            await leaving.release(one)  # the bell is rung a moment later

        async def come() -> None:
            await second.driver.sleep(0.5)
            place = await coming.claim(two)
            assert isinstance(place, Place)
            while not isinstance(await coming.claim(two), Grant):
                await second.driver.sleep(0.0001)
            await second.driver.sleep(0.5)
            assert [one.owner for one in (await coming.inspect("lock")).holders] == ["two"]

        world.run(first.spawn(leave, "leave"), second.spawn(come, "come"))
        for store in (leaving, coming):
            finish(store.close())


def test_a_lease_that_is_dropped_when_its_time_is_over_is_forgotten() -> None:
    """By seed 7 on Redis: its user had been paused, and nobody had found out yet. One entry a name stayed for ever."""
    with World(1) as world:
        process = Process(world, "p")
        engine = Engine(memory(process), process.driver)

        async def story() -> None:
            lease = await engine.acquire(Ask("leader", ttl=3.0, alone=True), None, Lease)
            assert engine.mine.remembered()
            process.pause(9.0)
            await process.driver.sleep(0.0)
            lease._let_go(told=True)  # as the collector does
            del lease
            await process.driver.sleep(1.0)
            assert not engine.mine.remembered()

        world.run(process.spawn(story, "story"))
