"""What is kept for a while (`once(at_least=…)`) is given up by its owner and by close() at the same time: asked for again twice,
each time for what is left. On a store that remembers claims in its own process, one must not undo what the other one did."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from unittest import mock

import pytest

from holdfast import recipes
from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.lease import Lease
from holdfast.stores import consul, etcd, redlock
from holdfast.stores.base import Store
from holdfast.testing.simulation.servers.consul import ConsulCluster
from holdfast.testing.simulation.servers.etcd import EtcdCluster
from holdfast.testing.simulation.servers.redis import RedisServer

Opened = Callable[[str], Store]


def on_consul(world: World) -> Opened:
    ConsulCluster(world, Streams(world), [("consul", 8500)])
    return lambda name: consul.open_store("consul://consul?min_ttl=0.05", Process(world, name).driver)


def on_etcd(world: World) -> Opened:
    EtcdCluster(world, Streams(world), [("etcd", 2379)])
    return lambda name: etcd.open_store("etcd://etcd", Process(world, name).driver)


def on_redlock(world: World) -> Opened:
    streams = Streams(world)
    for node in "abc":
        RedisServer(Process(world, node), streams, (node, 6379))
    return lambda name: redlock.open_store("redlock://a,b,c", Process(world, name).driver)


# By what the store asks its servers.
ASKING = {"etcd": [("_wire", "transact"), ("_sessions", "open")], "redlock": [("", "_ask")]}
STORES = {"consul": on_consul, "etcd": on_etcd, "redlock": on_redlock}
MOMENTS = [
    moment / 4000 for moment in range(48)
]  # seconds, between the first and the second: a request takes a few of them
EVICTED = [moment / 1000 for moment in range(12)]


@pytest.mark.parametrize("kind", STORES)
def test_both_are_told_that_it_is_still_theirs_and_nobody_else_gets_in(kind: str) -> None:
    """By seed 38660 of Consul: the second took what the first had just moved to another session for somebody else's."""
    told(kind, each_keeps_it)


@pytest.mark.parametrize("kind", STORES)
def test_if_an_operator_puts_it_out_meanwhile_the_next_gets_in_and_nothing_of_it_is_left(kind: str) -> None:
    """By seed 30196 of etcd: one found it gone, and the other went on with what was left of the record."""
    told(kind, it_is_put_out)


@pytest.mark.parametrize(("kind", "part", "method"), [(kind, *each) for kind, some in ASKING.items() for each in some])
@pytest.mark.parametrize("early", [True, False], ids=["answered before", "asked after"])
def test_who_is_overtaken_by_the_other_who_found_it_gone_says_so_or_what_was_true(
    kind: str, part: str, method: str, early: bool
) -> None:
    """The first is held up, before it asks or with its answer, until an operator has put out what they have, and the second
    was told so. It must neither bring that back nor be told of a token that is none."""

    async def story(world: World, opened: Opened) -> None:
        store, others, process = opened("mine"), opened("theirs"), Process(world, "held up")
        mine, theirs = (Claim("nightly", name * 32, name, 8.0) for name in "ab")
        grant = await store.claim(mine)
        assert isinstance(grant, Grant)
        assert isinstance(await others.claim(theirs), Place)
        asking = getattr(store, part) if part else store
        ask, held_up = getattr(asking, method), process.driver.bell()
        first = True

        async def slowly(*asked: Any, **how: Any) -> Any:
            nonlocal first
            if not first:
                return await ask(*asked, **how)
            first = False
            answered = await ask(*asked, **how) if early else None
            await held_up.wait(5.0)
            return answered if early else await ask(*asked, **how)

        with mock.patch.object(asking, method, slowly):
            slow = process.spawn(lambda: store.claim(mine._replace(ttl=4.0, queue=False)), "slow")
            await process.driver.sleep(0.1)
            await others.evict(mine.name, grant.token, "operator")
            assert isinstance(await store.claim(mine._replace(ttl=3.9, queue=False)), Place) or kind == "redlock"
            held_up.ring()
            await slow.join()
        assert slow.error is None, slow.error
        if isinstance(slow.result, Grant):
            assert early
            assert slow.result.token == grant.token
        await store.release(mine)
        assert isinstance(await others.claim(theirs), Grant)
        await others.release(theirs)
        assert not (await others.inspect(mine.name)).holders

    told(kind, story)


def test_what_is_gone_when_less_than_the_shortest_ttl_is_left_is_no_misuse() -> None:
    """On Consul that is 10 s. Its user was told "cannot claim", when the job was done."""
    with World(1) as world:
        ConsulCluster(world, Streams(world), [("consul", 8500)])
        process = Process(world, "mine")
        store = consul.open_store("consul://consul", process.driver)
        engine = Engine(store, process.driver)

        async def story() -> None:
            lease = await engine.acquire(recipes.once_ask("nightly", at_least=30.0, at_most=30.0), None, Lease)
            await process.driver.sleep(25.0)
            (record,) = store.keeper.records.values()
            store.keeper.lose(record.session)  # another claim has found that it is over
            assert await engine.release(lease) is False

        task = process.spawn(story, "story")
        world.run(task)
        assert task.error is None, task.error


def told(kind: str, story: Callable[[World, Opened], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        opened = STORES[kind](world)
        world.run(Process(world, "story").spawn(partial(story, world, opened), "story"))


async def each_keeps_it(world: World, opened: Opened) -> None:
    store, others = opened("mine"), opened("theirs")
    for number, moment in enumerate(MOMENTS):
        mine, theirs = (Claim(f"nightly {number}", f"{number:031x}{name}", name, 8.0) for name in "ab")
        grant = await store.claim(mine)
        assert isinstance(grant, Grant)
        assert isinstance(await others.claim(theirs), Place)
        for answer in await left_twice(world, store, mine, moment):
            assert isinstance(answer, Grant), moment
            assert answer.token == grant.token, moment
        assert isinstance(await others.claim(theirs), Place)
        await others.release(theirs)
        await store.release(mine)


async def it_is_put_out(world: World, opened: Opened) -> None:
    store, others = opened("mine"), opened("theirs")
    operator = Process(world, "operator")
    for number, (moment, at) in enumerate((moment, at) for moment in MOMENTS[::8] for at in EVICTED):
        mine, theirs = (Claim(f"nightly {number}", f"{number:031x}{name}", name, 8.0) for name in "ab")
        grant = await store.claim(mine)
        assert isinstance(grant, Grant)

        async def evict(name: str = mine.name, token: int = grant.token, at: float = at) -> None:
            await operator.driver.sleep(at)
            await others.evict(name, token, "operator")

        evicting = operator.spawn(evict, "evict")
        for answer in await left_twice(world, store, mine, moment):
            assert not isinstance(answer, Grant) or answer.token >= grant.token, (moment, at)
        await evicting.join()
        await store.release(mine)
        assert isinstance(await others.claim(theirs), Grant), (moment, at)
        assert [one.owner for one in (await others.inspect(mine.name)).holders] == ["b"], (moment, at)
        await others.release(theirs)
        assert not (await others.inspect(mine.name)).holders, (moment, at)


async def left_twice(world: World, store: Store, mine: Claim, moment: float) -> list[Grant | Place]:
    process = Process(world, "twice")
    answers: list[Grant | Place] = []

    async def leave(after: float, left: float) -> None:
        await process.driver.sleep(after)
        answers.append(await store.claim(mine._replace(ttl=left, queue=False)))

    both = [process.spawn(partial(leave, *one), "leave") for one in ((0.0, 4.0), (moment, 4.0 - moment))]
    for one in both:
        await one.join()
    assert all(one.error is None for one in both), [one.error for one in both]
    return answers
