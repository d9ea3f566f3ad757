"""Consul: who is put out by its own store, because its time is over, and comes back in that very moment."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest import mock

from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.threads import Threads
from holdfast.drivers.world import World
from holdfast.errors import Unavailable
from holdfast.stores import consul
from holdfast.stores.consul.keeper import Keeper, Record
from holdfast.stores.consul.keys import Step
from holdfast.stores.consul.store import ConsulStore
from holdfast.testing.simulation.servers.consul import ConsulCluster

ONE, OTHER = (Claim("lock", name * 32, name, 1.0) for name in "ab")


class _Story:
    def __init__(self, world: World) -> None:
        ConsulCluster(world, Streams(world), [("consul", 8500)])
        self.world = world
        self.process = Process(world, "story")
        self.sleep = self.process.driver.sleep
        self.store, self.other = self._opened("a"), self._opened("b")

    def _opened(self, name: str) -> ConsulStore:
        return consul.open_store("consul://consul?min_ttl=0.05", Process(self.world, name).driver)

    def run(self, told: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await told()

        self.world.run(self.process.spawn(main, "story"))


def test_a_renewal_that_is_answered_while_its_lease_is_being_put_out_says_that_it_is_lost() -> None:
    with World(1) as world:
        story = _Story(world)
        store, look, commit = story.store, story.store.wire.look, story.store.wire.commit

        async def answered_late(*asked: Any, **how: Any) -> Any:
            found = await look(*asked, **how)
            await story.sleep(0.2)
            return found

        async def on_its_way_for_long(steps: Sequence[Step], deadline: float) -> Any:
            await story.sleep(0.3)
            return await commit(steps, deadline)

        async def told() -> None:
            grant = await store.claim(ONE)
            assert isinstance(grant, Grant)
            await story.sleep(0.9)
            with (
                mock.patch.object(store.wire, "look", answered_late),
                mock.patch.object(store.wire, "commit", on_its_way_for_long),
            ):
                assert list(await store.renew([grant], 1.0)) == [None]
                await story.sleep(0.3)
            assert isinstance(await story.other.claim(OTHER), Grant)

        story.run(told)


def test_an_unanswered_request_to_put_out_does_not_hit_what_its_owner_has_claimed_since() -> None:
    with World(1) as world:
        story = _Story(world)
        store, commit, renew = story.store, story.store.wire.commit, story.store.sessions.renew
        late: list[object] = []

        async def arrives_late(steps: Sequence[Step], deadline: float) -> Any:
            if late:
                return await commit(steps, deadline)
            late.append(steps)
            await story.sleep(0.2)
            story.process.spawn(lambda: _later(steps), "late")
            raise Unavailable("its answer was lost")

        async def _later(steps: Sequence[Step]) -> None:
            await story.sleep(0.3)
            late.append(await commit(steps, story.process.driver.now() + 1.0))

        async def slowly(*asked: Any, **how: Any) -> bool:
            await story.sleep(0.1)
            return await renew(*asked, **how)

        async def told() -> None:
            assert isinstance(await store.claim(ONE), Grant)
            await story.sleep(0.95)
            with (
                mock.patch.object(store.wire, "commit", arrives_late),
                mock.patch.object(store.sessions, "renew", slowly),
            ):
                again = await store.claim(ONE)  # its time runs out meanwhile
                assert isinstance(again, Grant)
                while len(late) < 2:
                    await story.sleep(0.05)
            assert list(await store.renew([again], 1.0)) == [again]
            assert isinstance(await story.other.claim(OTHER), Place)

        story.run(told)


class _Door:
    """A mutex that tells when somebody stands before it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.news = threading.Event()

    def __enter__(self) -> None:
        if not self._mutex.acquire(blocking=False):
            self.news.set()
            self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()


def test_a_renewal_that_comes_while_it_is_decided_to_put_out_comes_before_or_after() -> None:
    """In threads the keeper decides and the renewer hears of an answer at the same moment: not both may have it their way."""
    store: Any = mock.Mock(driver=Threads())
    keeper = Keeper(store)
    keeper._mutex = door = _Door()
    mine = Record(ONE, "a", mock.Mock(lost=False))
    keeper.records[ONE.holder] = mine
    mine.deadline = store.driver.now() - 1.0
    renewed: list[bool] = []
    in_time = keeper.in_time

    def renew() -> None:
        renewed.append(keeper.prolong(mine, store.driver.now() + 60.0))
        door.news.set()

    def renewed_meanwhile(asked: Record) -> bool:
        found = in_time(asked)
        renewal.start()
        assert door.news.wait(20.0), "neither renewed nor kept waiting"
        return found

    renewal = threading.Thread(target=renew)
    with mock.patch.object(keeper, "in_time", renewed_meanwhile):
        assert keeper.put_out(mine, overdue=True)
    renewal.join(20.0)
    assert renewed == [False], "it was renewed, and is put out all the same"
    assert not keeper.in_time(mine)
