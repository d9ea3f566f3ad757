"""What the network between a client and etcd does to a lock, done by a proxy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import LeaseLost, Unavailable
from holdfast.claim import Grant
from holdfast.drivers.base import finish
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

from ..hands import SOON, Connect, claim_of, until
from .hands import ask, begin_with, store_of

pytestmark = pytest.mark.server


@pytest.fixture
def proxy(cluster: Cluster[Etcd]) -> Iterator[Proxy]:
    with Proxy(cluster.members[0].address) as between:
        yield between


@pytest.fixture
def far(proxy: Proxy, prefix: str) -> str:
    """By way of the proxy only."""
    return f"etcd://127.0.0.1:{proxy.port}/{prefix}?timeout=0.5"


def test_24_26_a_client_cut_off_from_the_quorum_loses_before_etcd_gives_the_lock_away(
    proxy: Proxy, far: str, connect: Connect
) -> None:
    a, b = connect(far), connect()
    lease = a.lock("x", ttl=1).acquire()
    lost: list[float] = []
    lease.on_lost(lambda _: lost.append(time.monotonic()))
    until(lambda: lease.remaining() > 0.7)
    cut = time.monotonic()
    proxy.to_client.hold()  # what it asks arrives; it never hears
    proxy.to_server.hold()
    taken = b.lock("x", ttl=1).acquire(timeout=SOON)
    entered = time.monotonic()
    assert lost, "etcd gave the lock away while its holder believed"
    assert lost[0] < entered
    assert lost[0] - cut < 1 + 1  # at its ttl, not at twice that
    assert taken.token > lease.token
    proxy.flow()
    with pytest.raises(LeaseLost):
        lease.check()
    assert taken.release()


def test_26_keep_alives_whose_answers_are_lost_extend_nothing(proxy: Proxy, far: str, connect: Connect) -> None:
    a = connect(far)
    lease = a.lock("x", ttl=1).acquire()
    began = time.monotonic()
    proxy.to_client.hold()  # etcd hears every keep-alive, and says yes
    assert lease.lost.wait(SOON)
    assert time.monotonic() - began < 1 + 1
    proxy.flow()


def test_15_a_grant_whose_answer_was_lost_is_found_again_with_its_token(
    proxy: Proxy, far: str, connect: Connect
) -> None:
    a, b = connect(far), connect()
    a.lock("warm").acquire().release()
    mine = claim_of("x")
    proxy.to_client.hold()
    with pytest.raises(Unavailable):
        ask(a, mine)
    proxy.cut()
    proxy.flow()
    token = b.inspect("x").holders[0].token
    again = ask(a, mine)
    assert isinstance(again, Grant)
    assert again.token == token
    assert finish(store_of(a).release(mine))


def test_14_a_claim_that_arrives_after_its_release_does_not_stay(
    proxy: Proxy, cluster: Cluster[Etcd], prefix: str, connect: Connect
) -> None:
    """And its session lives on, by another lock: nothing but the process itself can end it."""
    locks = connect(f"etcd://127.0.0.1:{proxy.port},127.0.0.1:{cluster.members[1].port}/{prefix}?timeout=0.5")
    look = connect()
    begin_with(store_of(locks), cluster.members[1].port)
    other = locks.lock("other", ttl=1).acquire()
    mine = claim_of("x", 1.0)
    begin_with(store_of(locks), proxy.port)
    ask(locks, claim_of("warm", 0.3))  # connected, by way of the proxy
    proxy.to_server.hold()
    assert isinstance(ask(locks, mine), Grant)  # by way of the other member, when this one has fallen silent
    finish(store_of(locks).release(mine))
    assert "x" not in look.names()
    proxy.to_server.flow()
    until(lambda: look.names() == ["other"])
    time.sleep(0.3)  # it may have landed only now
    until(lambda: look.names() == ["other"])
    assert other.held
    assert other.release()


def test_13_a_release_that_failed_may_be_repeated_and_leaves_a_successor_alone(
    proxy: Proxy, far: str, connect: Connect
) -> None:
    a, b = connect(far), connect()
    lease = a.lock("x", ttl=20).acquire()
    proxy.to_client.hold()
    with pytest.raises(Unavailable):
        lease.release()
    proxy.cut()
    proxy.flow()
    taken = b.lock("x").acquire(timeout=SOON)
    lease.release()
    assert [one.token for one in b.inspect("x").holders] == [taken.token]


def test_a_waiter_hears_although_its_connections_are_cut(proxy: Proxy, far: str, connect: Connect) -> None:
    a, b = connect(), connect(far)
    held = a.lock("x").acquire()
    mine = claim_of("x", 30.0)
    place = ask(b, mine)
    finish(store_of(b).wait(place, 0.05))
    proxy.cut()
    until(lambda: proxy.connections == 0)
    held.release()
    before = time.monotonic()
    finish(store_of(b).wait(place, 30))  # on a new connection, from the revision at which it had looked
    with contextlib.suppress(Unavailable):  # on a connection that was cut; the engine asks once more, as we do
        ask(b, mine)
    while not isinstance(answer := ask(b, mine), Grant):
        finish(store_of(b).wait(answer, 30))
    assert time.monotonic() - before < SOON
    assert finish(store_of(b).release(mine))


def test_nobody_at_home_is_told_at_once_with_all_addresses() -> None:
    url = "etcd://127.0.0.1:1,127.0.0.1:2?timeout=1"
    with holdfast.connect(url) as locks, pytest.raises(Unavailable) as told:
        locks.lock("x").acquire(timeout=0)
    assert "127.0.0.1:1:" in str(told.value)
    assert "127.0.0.1:2:" in str(told.value)
