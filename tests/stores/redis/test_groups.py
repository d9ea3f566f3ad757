"""More than one server: replicas that must acknowledge, Sentinels that fail over, a cluster that shares the slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Unavailable, aio
from holdfast.claim import Grant
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.redis import open_store
from holdfast.stores.redis.keys import slot
from holdfast.testing import servers
from holdfast.testing.servers.redis import SLOTS, Redis, RedisCluster, SentinelGroup

from ..hands import SOON, claim_of, in_background, until

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with servers.cluster("redis-cluster", 3) as group:
        assert isinstance(group, RedisCluster)
        yield group


@pytest.fixture
def sentinels() -> Iterator[SentinelGroup]:
    with servers.cluster("redis-sentinel", 3) as group:
        assert isinstance(group, SentinelGroup)
        yield group


def test_a_cluster_keeps_names_on_all_its_nodes(cluster: RedisCluster) -> None:
    with holdfast.connect(cluster.url) as locks:
        leases = [locks.lock(f"n{number}", ttl=1.5).acquire() for number in range(30)]
        sizes = [member.execute("DBSIZE") for member in cluster.members]
        assert all(sizes)
        assert len(locks.names()) == 30
        time.sleep(2)  # renewed, each on its node
        assert all(lease.held for lease in leases)
        assert all(lease.release() for lease in leases)
        assert locks.names() == []


def test_bells_ring_across_a_cluster(cluster: RedisCluster) -> None:
    async def main() -> None:
        async with aio.connect(cluster.url) as one, aio.connect(cluster.url) as two:
            for number in range(6):
                held = await one.lock(f"x{number}").acquire()

                async def take(number: int = number) -> aio.Lease:
                    return await two.lock(f"x{number}", timeout=20).acquire()

                waiting = asyncio.create_task(take())
                while not (await one.inspect(f"x{number}")).waiters:  # noqa: ASYNC110 - it is in the server
                    await asyncio.sleep(0.005)
                started = time.monotonic()
                await held.release()
                lease = await waiting
                assert time.monotonic() - started < 3
                await lease.release()

    asyncio.run(main())


def test_a_node_of_the_url_that_is_down_costs_a_cluster_nothing(cluster: RedisCluster) -> None:
    url = cluster.url.replace("redis+cluster://", "redis+cluster://127.0.0.1:1,")
    with holdfast.connect(url) as one, holdfast.connect(url) as two:
        held = one.lock("x").acquire()
        got: list[int] = []
        thread = in_background(lambda: got.append(two.lock("x", timeout=20).acquire().token))
        until(lambda: bool(one.inspect("x").waiters))
        assert one.names() == ["x"]
        started = time.monotonic()
        held.release()
        thread.join(SOON)
        assert time.monotonic() - started < 3, "the bell was not heard"
        assert got[0] > held.token


def test_a_held_lock_moves_with_its_slot(cluster: RedisCluster) -> None:
    """Resharding: renewals follow the key (ASK, then MOVED); claims are told to try again until the slot has arrived."""
    number = slot(b"{moving}")
    owner = number * len(cluster.members) // SLOTS
    source, target = cluster.members[owner], cluster.members[owner - 1]
    here, there = (_identity(member) for member in (source, target))
    with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        lease = locks.lock("moving", ttl=2).acquire()
        target.execute("CLUSTER", "SETSLOT", number, "IMPORTING", here)
        source.execute("CLUSTER", "SETSLOT", number, "MIGRATING", there)
        source.execute("MIGRATE", "127.0.0.1", target.port, "hf:{moving}", 0, 5000)
        with pytest.raises(Unavailable, match="moving these keys"):
            others.lock("moving", timeout=0).acquire()
        until(lambda: lease.remaining() < 1.5)
        until(lambda: lease.remaining() > 1.5)  # renewed on its way
        for member in cluster.members:
            member.execute("CLUSTER", "SETSLOT", number, "NODE", there)
        until(lambda: lease.remaining() < 1.5)
        until(lambda: lease.remaining() > 1.5)  # and at its new place
        assert others.lock("moving").try_acquire() is None
        assert lease.release()
        after = others.lock("moving", timeout=5).acquire()
        assert after.token > lease.token
        assert after.release()


def test_a_held_lock_moves_to_a_node_that_does_not_know_the_scripts(cluster: RedisCluster) -> None:
    number = slot(b"{hopping}")
    owner = number * len(cluster.members) // SLOTS
    source, target = cluster.members[owner], cluster.members[owner - 1]
    here, there = (_identity(member) for member in (source, target))
    store = open_store(cluster.url, Threads())
    grant = finish(store.claim(claim_of("hopping")))
    assert isinstance(grant, Grant)
    target.execute("CLUSTER", "SETSLOT", number, "IMPORTING", here)
    source.execute("CLUSTER", "SETSLOT", number, "MIGRATING", there)
    source.execute("MIGRATE", "127.0.0.1", target.port, "hf:{hopping}", 0, 5000)
    target.execute("SCRIPT", "FLUSH")
    try:
        assert list(finish(store.renew([grant], 1.0))) == [grant]
    finally:
        for member in cluster.members:
            member.execute("CLUSTER", "SETSLOT", number, "NODE", there)
        finish(store.close())


def _identity(member: Redis) -> str:
    reply = member.execute("CLUSTER", "MYID")
    assert isinstance(reply, bytes)
    return reply.decode()


def test_9_tokens_rise_through_a_failover_and_holders_are_told(sentinels: SentinelGroup) -> None:
    with holdfast.connect(sentinels.url + "?timeout=2") as locks:
        before = locks.lock("x", ttl=10).acquire()
        before.release()
        sentinels.leader().kill()
        deadline = time.monotonic() + 30
        while True:
            try:
                after = locks.lock("x", ttl=5).acquire(timeout=5)
                break
            except Unavailable:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert after.token > before.token
        assert after.release()


def test_9_tokens_rise_after_a_failover_to_a_stale_replica(own_redis: Redis) -> None:
    with servers.start("redis", "--replicaof", f"127.0.0.1 {own_redis.port}") as replica:
        with holdfast.connect(own_redis.url) as locks:
            locks.lock("x").acquire().release()
            replica.execute("REPLICAOF", "NO", "ONE")  # it hears no more
            newest = locks.lock("x").acquire()
        with holdfast.connect(replica.url) as locks:
            assert locks.lock("x", timeout=5).acquire().token > newest.token


def test_a_claim_that_replicas_do_not_acknowledge_is_undone(own_redis: Redis) -> None:
    options = "?replicas=1&replicas_timeout=0.2"
    with holdfast.connect(own_redis.url + options) as locks, holdfast.connect(own_redis.url) as others:
        with pytest.raises(Unavailable, match="0 of 1 replicas"):
            locks.lock("x", timeout=0).acquire()
        assert others.names() == []
        with servers.start("redis", "--replicaof", f"127.0.0.1 {own_redis.port}", "--repl-diskless-sync-delay", "0"):
            deadline = time.monotonic() + 20
            lease = None
            while lease is None:
                try:
                    lease = locks.lock("x").acquire(timeout=1)
                except Unavailable:
                    assert time.monotonic() < deadline
            assert lease.release()


def test_while_replicas_are_waited_for_nobody_else_is_kept_waiting(own_redis: Redis) -> None:
    """Here it broke: in asyncio WAIT stood on the connection that all tasks share."""

    async def main() -> None:
        async with aio.connect(own_redis.url + "?replicas=1&replicas_timeout=4&timeout=10") as locks:
            claiming = [asyncio.ensure_future(locks.lock(f"x{number}").acquire(timeout=20)) for number in range(3)]
            while b"blocked_clients:3" not in own_redis.execute("INFO", "clients"):  # type: ignore[operator]
                assert not any(one.done() for one in claiming)
                await asyncio.sleep(0.01)
            await locks.inspect("y")
            assert not any(one.done() for one in claiming)
            for one in claiming:
                one.cancel()
            await asyncio.wait(claiming)
        async with aio.connect(own_redis.url) as others:
            assert await others.names() == []

    asyncio.run(main())


def test_a_claim_is_acknowledged_in_asyncio_too(own_redis: Redis) -> None:
    async def main() -> None:
        async with aio.connect(own_redis.url + "?replicas=1&replicas_timeout=0.1") as locks:
            with pytest.raises(Unavailable, match="0 of 1 replicas"):
                await locks.lock("x").acquire(timeout=0)
            assert await locks.names() == []

    asyncio.run(main())
