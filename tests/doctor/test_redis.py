"""Redis and Redlock, set up well and badly."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.doctor import everywhere
from holdfast.doctor import redis as ward
from holdfast.stores.redis.replies import rights
from holdfast.stores.redis.url import parse
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.base import poll
from holdfast.testing.servers.clock import WallClock, shim
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.redis import Redis

from .looking import all_looked_at, levels, one, said, whole

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with servers.start("redis") as server:
        yield server


@pytest.fixture
def again(redis: Redis) -> Iterator[Redis]:
    """Set up as the test likes, and put right after it."""
    yield redis
    for words in (
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("save", ""),
        ("maxmemory", "0"),
        ("requirepass", ""),
    ):
        redis.execute("CONFIG", "SET", *words)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster[Redis]]:
    with servers.cluster("redis", 3) as cluster:
        yield cluster


def test_a_redis_that_syncs_every_write_is_well(redis: Redis) -> None:
    told = whole(redis.url)
    all_looked_at(told)
    assert {level for found in told.values() for level in levels(found)} == {"ok"}
    assert "Redis" in told["version"][0].text
    assert set(told) >= {"persistence", "eviction", "replicas", "clock", "tls and login"}


def test_what_a_crash_forgets_is_told(again: Redis) -> None:
    again.execute("CONFIG", "SET", "appendfsync", "everysec")
    assert "the last second" in said(one(again.url, "persistence"), "ok")
    again.execute("CONFIG", "SET", "appendfsync", "no")
    assert "when the system likes" in said(one(again.url, "persistence"), "warning")
    again.execute("CONFIG", "SET", "appendonly", "no")
    assert "no persistence" in said(one(again.url, "persistence"), "warning")
    again.execute("CONFIG", "SET", "save", "900 1")
    assert "snapshots only" in said(one(again.url, "persistence"), "warning")


def test_a_cache_that_evicts_locks_is_a_problem(again: Redis) -> None:
    again.execute("CONFIG", "SET", "maxmemory", "100mb")
    for policy, level in (("noeviction", "ok"), ("volatile-ttl", "warning"), ("allkeys-lru", "problem")):
        again.execute("CONFIG", "SET", "maxmemory-policy", policy)
        assert policy in said(one(again.url, "eviction"), level)
    again.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
    again.execute("CONFIG", "SET", "maxmemory", "1mb")
    assert "raise maxmemory" in said(one(again.url, "eviction"), "warning")


def test_replicas_that_are_waited_for_and_are_not_there_are_a_problem(redis: Redis) -> None:
    assert "the URL waits for 2" in said(one(f"{redis.url}?replicas=2", "replicas"), "problem")


def test_a_replica_grants_nothing_and_a_master_with_replicas_may_forget(redis: Redis) -> None:
    follow = ("--replicaof", f"127.0.0.1 {redis.port}", "--repl-diskless-sync-delay", "0")
    redis.execute("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    with servers.start("redis", *follow) as replica:
        assert "is a replica" in said(one(replica.url, "replicas"), "problem")
        assert "no lock could be had" in said(whole(replica.url)["claims"], "problem")
        poll(lambda: b"connected_slaves:1" in str(redis.execute("INFO", "replication")).encode(), 20, "the replica")
        assert "a failover may forget a lock" in said(one(redis.url, "replicas"), "warning")
        assert "a claim waits for 1" in said(one(f"{redis.url}?replicas=1", "replicas"), "ok")


def test_who_may_only_hold_locks_is_told_what_could_not_be_seen(again: Redis) -> None:
    url = f"redis://locker:secret@127.0.0.1:{again.port}"
    again.execute("ACL", "SETUSER", "locker", "reset", "on", ">secret", *rights(parse(url)).split())
    told = whole(url)
    assert levels(told["claims"]) == ["ok", "ok"]
    assert "could not look: 127.0.0.1" in said(told["persistence"], "warning")
    assert "no administrator" in said(told["tls and login"], "ok")
    again.execute("ACL", "SETUSER", "locker", "-evalsha", "-script|load")
    assert "forbids what locks need" in said(whole(url)["connection"], "problem")
    again.execute("ACL", "DELUSER", "locker")


@pytest.mark.parametrize(
    ("bind", "protected", "anybody", "bad"),
    [
        ("* -::*", False, True, True),
        ("", False, True, True),
        ("127.0.0.1 10.0.0.1", False, True, True),
        ("* -::*", True, True, False),
        ("* -::*", False, False, False),
        ("127.0.0.1 -::1", False, True, False),
    ],
)
def test_a_server_that_lets_everybody_in_from_anywhere_is_a_problem(
    bind: str, protected: bool, anybody: bool, bad: bool
) -> None:
    assert [one.level for one in ward.listening(bind, protected, anybody)] == ["problem"] * bad


def test_whether_everybody_gets_in_is_seen(again: Redis) -> None:
    node = ward.node(parse(again.url), again.address)
    assert ward._lets_anybody_in(node, node.config("requirepass"))
    again.execute("CONFIG", "SET", "requirepass", "secret")
    node.close()
    node = ward.node(parse(f"redis://:secret@127.0.0.1:{again.port}"), again.address)
    assert not ward._lets_anybody_in(node, node.config("requirepass"))
    assert "the user default may do everything" in said(list(ward.rights(node)), "warning")
    node.ask("CONFIG", "SET", "requirepass", "")
    node.close()


def test_a_slow_way_to_the_server_is_told(redis: Redis) -> None:
    with Proxy(redis.address) as proxy:
        proxy.to_client.delay(0.12)
        with holdfast.connect(f"redis://127.0.0.1:{proxy.port}") as locks:
            found = list(everywhere.claims(locks))
    assert "look at the store's load and at the network" in said(found, "warning")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the server's clock is shifted by a library built with gcc")
def test_a_clock_that_is_wrong_is_told() -> None:
    with shim() as built:
        clock = WallClock(built)
        clock.jump(30)
        with servers.start("redis", environ=clock.environ) as server:
            assert "s ahead of ours" in said(one(server.url, "clock"), "warning")


def test_sentinels_without_a_quorum_and_a_master_without_replicas_are_problems() -> None:
    with servers.cluster("redis-sentinel", 3) as group:
        assert levels(one(group.url, "quorum")) == ["ok"]
        assert "no claim waits for them" in said(one(group.url, "replicas"), "warning")
        group.sentinels[2].kill()
        group.sentinels[1].kill()
        assert "1 of 3 answer, and 2 are needed" in said(one(group.url, "quorum"), "problem")
        for replica in group.members[1:]:
            replica.kill()
        poll(lambda: levels(one(group.url, "replicas")) == ["problem"], 20, "the master to miss its replicas")
        assert "nobody to fail over to" in said(one(group.url, "replicas"), "problem")


def test_a_cluster_is_looked_at_node_by_node() -> None:
    with servers.cluster("redis-cluster", 3) as cluster:
        told = whole(cluster.url)
        all_looked_at(told)
        assert levels(told["quorum"]) == ["ok"] * 3
        first = cluster.members[0]
        first.execute("CLUSTER", "DELSLOTS", 1)
        poll(lambda: b"state:fail" in str(first.execute("CLUSTER", "INFO")).encode(), 20, "the gap")
        assert "not complete" in said(one(cluster.url, "quorum"), "problem")


def redlock(cluster: Cluster[Redis]) -> str:
    return f"redlock://{cluster.hosts}"


def test_three_independent_nodes_are_well_and_two_of_them_are_enough(nodes: Cluster[Redis]) -> None:
    told = whole(redlock(nodes))
    all_looked_at(told)
    assert {level for found in told.values() for level in levels(found)} == {"ok"}
    nodes.members[2].kill()
    try:
        told = whole(redlock(nodes))
        assert "does not answer" in said(told["quorum"], "warning")
        assert levels(told["claims"]) == ["ok", "ok"]
    finally:
        nodes.members[2].restart()


def test_two_names_of_one_server_are_one_vote(nodes: Cluster[Redis]) -> None:
    first, second, _ = nodes.members
    url = f"redlock://127.0.0.1:{first.port},localhost:{first.port},127.0.0.1:{second.port}"
    assert "one and the same server" in said(one(url, "independence"), "problem")


def test_a_node_that_follows_another_is_no_node(nodes: Cluster[Redis]) -> None:
    first, second, _ = nodes.members
    for member in (first, second):
        member.execute("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    second.execute("REPLICAOF", "127.0.0.1", first.port)
    try:
        poll(lambda: b"connected_slaves:1" in str(first.execute("INFO", "replication")).encode(), 20, "the replica")
        found = one(redlock(nodes), "independence")
        assert "it grants nothing" in said(found, "problem")
        assert "if one takes over" in said(found, "warning")
    finally:
        second.execute("REPLICAOF", "NO", "ONE")
