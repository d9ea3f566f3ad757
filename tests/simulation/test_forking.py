"""The memory of a simulated process is copied as fork() copies it, and what is done to the copy is not done to the parent."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any
from weakref import ref

import pytest

from holdfast.asking import Ask
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import InheritedStream, SimulatedStream, Streams
from holdfast.drivers.world import Interrupt, Raised, World
from holdfast.engine import Engine
from holdfast.errors import LeaseLost
from holdfast.lease import Lease
from holdfast.stores import redis
from holdfast.testing.history import (
    ACQUIRE,
    CHECK,
    CLAIM,
    DONE,
    FAILED,
    GRANTED,
    LEFT,
    LOST,
    RELEASE,
    History,
    Operation,
)
from holdfast.testing.interruptions import check_forks, check_withdrawn
from holdfast.testing.simulation.forking import Memory
from holdfast.testing.simulation.servers.redis import RedisServer


class Thing:
    def __init__(self) -> None:
        self.some: list[Any] = [self, (1, "two"), {3: self}]
        self.weak = ref(self)
        self.queue = deque([self], maxlen=3)
        self.method = self.itself
        self.append = self.some.append
        self.later = partial(self.itself, True)
        self.closure: Callable[[], object] = lambda: self
        self.known = lru_cache(4)(self.itself)
        self.count = itertools.count(next(itertools.count(7)))

    def itself(self, _: bool = False) -> Thing:
        return self


def test_whatever_leads_to_an_object_leads_to_its_copy() -> None:
    with World(1) as world:
        parent, child = Process(world, "parent"), Process(world, "child")
        thing = Thing()
        copy = Memory(parent, child, ()).copied(thing)
        leads = (
            *(copy.some[0], copy.some[2][3], copy.weak(), copy.queue[0], copy.method(), copy.later()),
            *(copy.closure(), copy.known()),
        )
        assert copy is not thing
        assert all(one is copy for one in leads)
        copy.append("more")
        assert len(copy.some) == 4
        assert len(thing.some) == 3
        assert (next(copy.count), next(thing.count)) == (7, 7)
        assert copy.queue.maxlen == 3


def test_a_child_holds_nothing_says_nothing_and_takes_locks_of_its_own() -> None:
    with World(1) as world:
        RedisServer(Process(world, "redis"), Streams(world), ("redis", 6379))
        parent, child = Process(world, "parent"), Process(world, "child")
        engine = Engine(redis.open_store("redis://redis", parent.driver), parent.driver)
        ask = Ask("lock", ttl=3.0)

        async def story() -> None:
            lease = await engine.acquire(ask, None, Lease)
            memory = Memory(parent, child, (world.streams,))
            copy = memory.copied(engine)
            [inherited] = copy.renewer.leases()

            async def other() -> None:
                copy.forked()
                with pytest.raises(LeaseLost, match="forked from"):
                    inherited.check()
                assert await copy.release(inherited) is False
                await (task := child.spawn(lambda: copy.acquire(ask, None, Lease), "acquire")).join()
                assert task.result.token > lease.token

            running = child.spawn(other, "child")
            await parent.driver.sleep(7.0)
            lease.check()  # renewed twice since
            assert not running.done
            await engine.release(lease)
            await running.join()
            assert running.error is None

        world.run(parent.spawn(story, "parent"))
        assert world.streams is not None
        assert not world.streams.trespasses
        assert not world.failures


def test_what_a_child_does_with_a_connection_of_its_parent_is_noted() -> None:
    with World(1) as world:
        streams, parent, child = Streams(world), Process(world, "parent"), Process(world, "child")
        server = Process(world, "server")
        got: list[bytes] = []

        async def serve(stream: SimulatedStream) -> None:
            while data := await stream.receive(float("inf")):
                got.append(data)

        streams.listen(("server", 1), server, serve)

        async def story() -> None:
            stream = await parent.driver.connect(("server", 1), None, 1.0)
            assert isinstance(stream, SimulatedStream)
            quiet, loud = (InheritedStream(stream, child) for _ in range(2))
            quiet.disown()
            quiet.close()
            with pytest.raises(ConnectionResetError):
                await quiet.send(b"x", 1.0)
            assert not streams.trespasses
            await loud.send(b"from the child", 1.0)
            await parent.driver.sleep(1.0)
            loud.close()

        world.run(parent.spawn(story, "story"))
        assert got == [b"from the child"]
        assert [one.split(" on a")[0] for one in streams.trespasses] == ["child sends", "child closes it"]


@pytest.mark.parametrize("raised", [Raised, Interrupt])
@pytest.mark.parametrize("awaits", [0, 1, 2])
def test_a_signal_is_raised_where_the_task_stands_or_later_and_no_shield_keeps_it_off(
    raised: type[BaseException], awaits: int
) -> None:
    with World(1) as world:
        process = Process(world, "p")
        stood: list[int] = []

        async def slow() -> None:
            for number in range(4):
                stood.append(number)
                await process.driver.sleep(1.0)

        task = process.spawn(lambda: process.driver.shield(slow), "shielded")
        world.run_until(0.5)
        task.strike(raised(), awaits)
        world.run(task)
        assert task.cancelled
        assert stood == list(range(awaits + 1))
        assert world.time < awaits + 0.6 + bool(awaits)
        assert not world.failures


def _history(*operations: Operation) -> History:
    history = History()
    for one in operations:
        history.begin(one)
    return history


def test_a_child_that_asks_or_believes_in_its_parents_name_is_found() -> None:
    claim = Operation("p", CLAIM, "lock", 0.0, 1.0, GRANTED, "h1", 1)
    lost = Operation("p.1", CHECK, "lock", 2.0, 2.0, LOST, "h1", 1)
    own = Operation("p.1", CLAIM, "lock", 3.0, 4.0, GRANTED, "h2", 2)
    assert not list(check_forks(_history(claim, lost, own), {"p.1"}))
    believes = Operation("p.1", CHECK, "lock", 2.0, 2.0, DONE, "h1", 1)
    releases = Operation("p.1", RELEASE, "lock", 2.0, 3.0, LEFT, "h1")
    for wrong in (believes, releases):
        assert [one.checker for one in check_forks(_history(claim, wrong), {"p.1"})] == ["fork"]


def test_a_claim_that_is_left_to_its_ttl_by_an_interruption_is_found() -> None:
    acquire = Operation("p", ACQUIRE, "lock", 0.0, 1.0, FAILED, detail="Raised")
    claim = Operation("p", CLAIM, "lock", 0.1, 0.2, GRANTED, "h1", 1, ttl=3.0)
    release = Operation("p", RELEASE, "lock", 1.0, 1.1, LEFT, "h1")
    assert not list(check_withdrawn(_history(acquire, claim, release), ("Raised",)))
    assert [one.checker for one in check_withdrawn(_history(acquire, claim), ("Raised",))] == ["withdrawal"]
    over = Operation("p", CLAIM, "lock", 0.1, 0.2, GRANTED, "h1", 1, ttl=0.5)
    assert not list(check_withdrawn(_history(acquire, over), ("Raised",)))
