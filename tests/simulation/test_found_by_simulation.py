"""What the simulation found in the core, each as the shortest story that shows it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from holdfast.asking import Ask
from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.base import finish
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.errors import Unavailable
from holdfast.lease import Lease
from holdfast.stores import consul, etcd, redis
from holdfast.stores.consul.store import ConsulStore
from holdfast.stores.etcd.store import EtcdStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis.keys import message_pack
from holdfast.stores.redis.scripts import Script
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.redlock import scripts as redlock
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.store import Heir
from holdfast.testing.simulation.local import moment
from holdfast.testing.simulation.machines import on_machines
from holdfast.testing.simulation.servers.consul import ConsulCluster
from holdfast.testing.simulation.servers.etcd import EtcdCluster
from holdfast.testing.simulation.servers.redis import RedisServer
from holdfast.testing.simulation.servers.redis.execution import Execution
from holdfast.testing.simulation.swarm import CONSUL, ETCD, REDIS, REDLOCK, plan_of
from holdfast.testing.simulation.workload import run

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


# ---- on simulated servers


class _Redis:
    """One simulated Redis, and a client for each party."""

    def __init__(self, world: World) -> None:
        self.streams = Streams(world)
        self.server = RedisServer(Process(world, "redis"), self.streams, ("redis", 6379))
        self._world = world

    def store(self, name: str) -> RedisStore:
        return redis.open_store("redis://redis", Process(self._world, name).driver)


def test_entries_whose_state_was_evicted_do_not_count() -> None:
    """By seed 1494 on Redis: whoever put its holder out wrote a state without a capacity, and others were told of a misuse."""
    with World(1) as world:
        found, process = _Redis(world), Process(world, "story")
        holder, waiter, other = (Claim("lock", name * 32, name, 3.0) for name in "abc")

        async def story() -> None:
            one, two, three = (found.store(name) for name in "abc")
            grant = await one.claim(holder)
            assert isinstance(grant, Grant)
            assert isinstance(await two.claim(waiter), Place)
            found.server.evict(b"hf:{lock}")
            assert await three.evict("lock", grant.token, "operator") is None
            assert list(await one.renew([grant], 1.0)) == [None]
            assert isinstance(await three.claim(other), Grant)

        world.run(process.spawn(story, "story"))


def test_a_token_that_a_failover_took_back_is_given_to_nobody_else() -> None:
    """By seed 1949 on Redis, whose clock had been set back: both were let in by the storage, since their tokens were equal."""
    with World(1) as world:
        found, process = _Redis(world), Process(world, "story")
        claims = [Claim("lock", f"{number:032x}", "p", 3.0) for number in range(20)]

        async def story() -> None:
            first = found.store("first")
            await first.claim(claims[0])
            await first.release(claims[0])
            found.server.jump(-1000.0)
            tokens = set()
            for claim in claims[1:]:
                found.server.lag = 0.0
                await process.driver.sleep(1.0)
                found.server.lag = 0.5  # what follows is not replicated in time
                grant = await found.store("p").claim(claim)
                assert isinstance(grant, Grant)
                assert grant.token not in tokens
                tokens.add(grant.token)
                found.server.fail_over(0.0, 0.0)
                await process.driver.sleep(0.1)

        world.run(process.spawn(story, "story"))


def test_a_proposal_that_is_given_back_late_takes_no_later_one_along() -> None:
    """By seed 1376 on Redlock: by a connection that had been given up for another, the old release came after the new claim."""
    node = Execution(lambda: 10**15, lambda *_: 0, lambda _: None)
    terms = message_pack(1, 1, True, b"who", b"")

    def ask(script: Script, *words: bytes) -> object:
        node.ask([b"SCRIPT", b"LOAD", script.text])
        return node.ask([b"EVALSHA", script.sha, b"2", b"hf:{x}", b"hf:{x}:waiting", *words])

    token = 10**15 + 5
    assert ask(redlock.CLAIM, b"h", b"%d" % token, b"3000000", b"1000000", terms, b"", b"0") == token
    assert ask(redlock.RELEASE, b"h", b"1000000", b"0", b"%d" % (token - 1)) == 0
    assert ask(redlock.RELEASE, b"h", b"1000000", b"0", b"%d" % (token + 1)) == 1


class _Etcd:
    """A simulated etcd of one member."""

    def __init__(self, world: World) -> None:
        self.streams = Streams(world)
        self.cluster = EtcdCluster(world, self.streams, [("etcd", 2379)])
        self._world = world

    def store(self, name: str) -> EtcdStore:
        return etcd.open_store("etcd://etcd?timeout=1", Process(self._world, name).driver)


def test_who_entered_on_a_lease_that_it_has_given_up_is_moved_to_the_one_that_it_keeps() -> None:
    """By seed 78 on etcd: it was told for seconds that it holds the lock, after etcd had ended the lease and let in another."""
    with World(1) as world:
        found, process = _Etcd(world), Process(world, "story")
        one, other = (Claim("lock", name * 32, name, 1.0) for name in "ab")
        (member,) = found.cluster.members

        async def story() -> None:
            store, later = found.store("a"), found.store("b")
            await store.claim(Claim("another", "c" * 32, "a", 1.0))  # so that it has a lease
            member.lag = 1.5
            for _ in range(2):  # it enters, and is not told; keeps its lease alive, and is not told either
                with pytest.raises(Unavailable):
                    await store.claim(one)
            member.lag = 0.0
            grant = await store.claim(one)
            assert isinstance(grant, Grant)
            for _ in range(20):
                assert list(await store.renew([grant], 1.0)) == [grant]
                assert isinstance(await later.claim(other), Place)
                await process.driver.sleep(0.3)

        world.run(process.spawn(story, "story"))


@pytest.mark.parametrize("seed", range(5))
def test_a_lease_that_is_downgraded_again_since_an_answer_was_lost_is_not_told_that_it_is_lost(seed: int) -> None:
    """By seed 1746 on etcd: while its owner asked where it stands, a renewal found it nowhere."""
    with World(seed) as world:
        found, process = _Etcd(world), Process(world, "story")
        store, (member,) = found.store("a"), found.cluster.members
        whole = Claim("lock", "a" * 32, "a", 3.0, 9, 9)

        async def story() -> None:
            grant = await store.claim(whole)
            assert isinstance(grant, Grant)
            member.lag = 0.05  # it is done, and the answer comes too late
            fewer = process.spawn(lambda: store.claim(whole._replace(units=1)), "downgrade")
            await process.driver.sleep(0.02)
            found.streams.cut_all()
            member.lag = 0.0
            while not fewer.done:
                assert list(await store.renew([grant], 1.0)) != [None]
                await process.driver.sleep(0.0005)
            assert isinstance(fewer.result, Grant)
            assert fewer.result.token == grant.token

        world.run(process.spawn(story, "story"))


@pytest.mark.parametrize("moment", range(2, 22, 2))
def test_who_is_let_in_while_its_place_in_line_runs_out_is_not_put_out_by_its_own_store(moment: int) -> None:
    """By seed 149 on Consul: the leader had changed. It was told that it holds the lock, and so was the next."""
    with World(1) as world:
        streams, process = Streams(world), Process(world, "story")
        (server,) = ConsulCluster(world, streams, [("consul", 8500)]).members

        def store(name: str) -> ConsulStore:
            return consul.open_store("consul://consul?min_ttl=0.05", Process(world, name).driver)

        async def story() -> None:
            first, second, third = (store(name) for name in "abc")
            holder, waiter, other = (Claim("lock", name * 32, name, 1.0) for name in "abc")
            await first.claim(holder)
            assert isinstance(await second.claim(waiter), Place)
            await first.release(holder)
            await process.driver.sleep(0.8)
            coming = process.spawn(lambda: second.claim(waiter), "claim")
            await process.driver.sleep(moment / 1000)
            server.process.pause(0.4)  # its place runs out meanwhile
            await coming.join()
            grant = coming.result
            assert isinstance(grant, Grant)
            await process.driver.sleep(0.1)
            assert list(await second.renew([grant], 1.0)) == [grant]
            assert isinstance(await third.claim(other), Place)

        world.run(process.spawn(story, "story"))


FOUND = [
    (CONSUL, 78),
    (CONSUL, 149),
    (CONSUL, 156),
    (ETCD, 78),
    (ETCD, 1527),
    (ETCD, 1746),
    (REDIS, 7),
    (REDIS, 1319),
    (REDIS, 1423),
    (REDIS, 1494),
    (REDIS, 1949),
    (REDLOCK, 1376),
    (REDLOCK, 1884),
    (REDLOCK, 2059),
]


@pytest.mark.parametrize(("store", "seed"), FOUND)
def test_seeds_that_have_broken_a_promise_do_not_break_it_again(store: str, seed: int) -> None:
    report = run(seed, plan_of(store, seed), on_machines)
    assert report.ok, str(report)
