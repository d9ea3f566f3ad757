"""What servers, the network and people do to a lock in Consul, done to it. Three servers, which vote."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from holdfast.drivers.base import finish
from holdfast.errors import Unavailable
from holdfast.testing.conformance.processes import holding_process
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.consul import Consul

from ..hands import Background, Connect, claim_of, until
from .hands import ask, keys, session_of

pytestmark = pytest.mark.server
TTL = 1.0
TAKEN_OVER = TTL * 9 / 4 + 10  # Consul's own bound, and room for a busy machine


def others(cluster: Cluster[Consul], one: Consul) -> list[tuple[str, int]]:
    return [member.address for member in cluster.members if member is not one]


def test_a_lease_and_a_line_outlive_the_death_of_the_leader_and_its_return(
    cluster: Cluster[Consul], connect: Connect
) -> None:
    a, b = connect(*cluster.addresses), connect(*cluster.addresses)
    lease = a.lock("x", ttl=20).acquire()
    waiting = Background(lambda: b.lock("x", ttl=20).acquire(timeout=60))
    until(lambda: a.inspect("x").waiters)
    leader = cluster.leader()
    leader.kill()
    until(lambda: cluster.leader() is not leader)
    assert a.lock("y", ttl=20).acquire(timeout=20).release()
    lease.check()
    assert lease.release()
    taken = waiting.result(40)
    assert taken.token > lease.token
    leader.restart()
    assert taken.release()


def test_a_paused_follower_is_passed_over(cluster: Cluster[Consul], connect: Connect) -> None:
    leader = cluster.leader()
    follower = next(member for member in cluster.members if member is not leader)
    locks = connect(follower.address, *others(cluster, follower))
    held = locks.lock("held", ttl=6).acquire()
    follower.pause()
    try:
        with locks.lock("x", timeout=20) as lease:
            lease.check()
        until(lambda: held.remaining() > 4.5)  # renewed, by way of another
    finally:
        follower.resume()
    assert held.release()


def test_a_client_cut_off_from_the_quorum_knows_before_anybody_is_let_in(
    cluster: Cluster[Consul], connect: Connect
) -> None:
    with Proxy(cluster.members[0].address) as proxy:
        a, b = connect(proxy.address), connect(*cluster.addresses)
        lease = a.lock("x", ttl=TTL).acquire()
        told = Background(lambda: lease.lost.wait(30))
        waiting = Background(lambda: b.lock("x", ttl=20).acquire(timeout=60))
        until(lambda: b.inspect("x").waiters)
        lease.check()
        proxy.to_server.hold()
        proxy.to_client.hold()
        assert told.result() is True
        taken = waiting.result(TAKEN_OVER)
        assert told.ended_at < waiting.ended_at
        assert taken.token > lease.token
        proxy.flow()
        assert lease.release() is False
        assert taken.held
        assert taken.release()


def test_on_both_sides_of_a_partition_only_the_majority_goes_on(cluster: Cluster[Consul], connect: Connect) -> None:
    """The leader is cut off together with the one client that talks to it."""
    leader = cluster.leader()
    a, b = connect(leader.address, options="&timeout=1"), connect(*others(cluster, leader))
    lease = a.lock("x", ttl=TTL).acquire()
    told = Background(lambda: lease.lost.wait(30))
    leader.pause()
    try:
        waiting = Background(lambda: b.lock("x", ttl=20).acquire(timeout=60))
        with pytest.raises(Unavailable):
            a.lock("y", ttl=TTL).acquire(timeout=0)
        assert told.result() is True
        taken = waiting.result(30)
        assert told.ended_at < waiting.ended_at
    finally:
        leader.resume()
    assert taken.token > lease.token
    assert not lease.held
    assert taken.release()


def test_a_holder_that_is_killed_is_replaced_and_leaves_nothing(
    cluster: Cluster[Consul], connect: Connect, prefix: str
) -> None:
    url = f"{cluster.url}/{prefix}?min_ttl=0.1"
    locks = connect(*cluster.addresses)
    with holding_process(url, "x", TTL) as (process, token), holding_process(url, "alone", TTL) as (other, _):
        waiting = Background(lambda: locks.lock("x", ttl=20).acquire(timeout=60))
        until(lambda: locks.inspect("x").waiters)
        process.kill()
        other.kill()
        lease = waiting.result(TAKEN_OVER)
        assert lease.token > token
        lease.release()
        member = cluster.members[0]
        until(lambda: not any("/locks/" in key for key in keys(member, prefix)))  # that of `alone` went by itself


_WAIT = """
import sys, holdfast
holdfast.connect(sys.argv[1]).lock("x", ttl=float(sys.argv[2])).acquire(timeout=60)
"""


def test_a_waiter_that_is_killed_holds_up_the_next_no_longer_than_its_session(
    cluster: Cluster[Consul], connect: Connect, prefix: str
) -> None:
    a, b = connect(*cluster.addresses), connect(*cluster.addresses)
    lease = a.lock("x", ttl=20).acquire()
    url = f"{cluster.url}/{prefix}?min_ttl=0.1"
    waiter = subprocess.Popen([sys.executable, "-c", _WAIT, url, str(TTL)])
    try:
        until(lambda: len(a.inspect("x").waiters) == 1)
        waiting = Background(lambda: b.lock("x", ttl=20).acquire(timeout=60))
        until(lambda: len(a.inspect("x").waiters) == 2)
    finally:
        waiter.kill()
        waiter.wait()
    lease.release()
    assert waiting.result(TAKEN_OVER).release()


def test_a_session_that_an_admin_destroys_is_a_loss_that_is_told(
    cluster: Cluster[Consul], connect: Connect, prefix: str
) -> None:
    a, b = connect(*cluster.addresses), connect(*cluster.addresses)
    lease = a.lock("x", ttl=3).acquire()
    waiting = Background(lambda: b.lock("x", ttl=20).acquire(timeout=60))
    until(lambda: b.inspect("x").waiters)
    member = cluster.members[0]
    began = time.monotonic()
    assert ask(member, "PUT", f"/v1/session/destroy/{session_of(member, prefix, 'x')}")
    taken = waiting.result()
    assert taken.token > lease.token
    assert lease.lost.wait(10)
    assert time.monotonic() - began < 10
    assert lease.release() is False
    assert a.lock("z", ttl=3).acquire().release()  # on a session of its own again
    assert taken.release()


@pytest.mark.parametrize("contended", [False, True])
def test_lock_delay_keeps_the_name_of_a_dead_session_back(
    cluster: Cluster[Consul], connect: Connect, prefix: str, contended: bool
) -> None:
    a, b = connect(*cluster.addresses, options="&lock_delay=2"), connect(*cluster.addresses)
    lease = a.lock("x", ttl=20).acquire()
    member = cluster.members[0]
    session = session_of(member, prefix, "x")
    waiting = Background(lambda: b.lock("x", ttl=20).acquire(timeout=60)) if contended else None
    if contended:
        until(lambda: b.inspect("x").waiters)
    began = time.monotonic()
    assert ask(member, "PUT", f"/v1/session/destroy/{session}")
    taken = waiting.result() if waiting else b.lock("x", ttl=20).acquire(timeout=60)
    assert 1.5 < time.monotonic() - began < 15
    assert taken.token > lease.token
    assert taken.release()


def test_a_claim_whose_answer_was_lost_is_found_again(cluster: Cluster[Consul], connect: Connect) -> None:
    with Proxy(cluster.members[0].address) as proxy:
        locks = connect(proxy.address, options="&timeout=1")
        locks.lock("warm", ttl=20).acquire().release()
        proxy.to_client.drop(chunks=1)
        with locks.lock("x", ttl=20, timeout=20) as lease:
            assert [one.token for one in locks.inspect("x").holders] == [lease.token]
        assert locks.names() == []


def test_a_claim_that_arrives_after_it_was_taken_back_comes_to_nothing(
    cluster: Cluster[Consul], connect: Connect
) -> None:
    """The request is held back somewhere on its way; the release overtakes it."""
    with Proxy(cluster.members[0].address) as proxy:
        locks = connect(proxy.address, options="&timeout=0.5")
        locks.lock("warm", ttl=20).acquire().release()
        store = locks._engine.store
        late = claim_of("x")
        # The first attempt, and whatever repeats it, is held; what is not a claim of x goes through.
        proxy.to_server.hold(when=lambda chunk: b"check-not-exists" in chunk and b"locks/x:" in chunk)
        with pytest.raises(Unavailable):
            finish(store.claim(late))
        assert finish(store.release(late)) is False
        caught = proxy.to_server.passed.chunks
        proxy.to_server.flow()
        until(lambda: proxy.to_server.passed.chunks > caught)
        other = locks.lock("y", ttl=20).acquire()  # behind it in Consul's log
        assert locks.names() == ["y"]
        assert other.release()


def test_a_book_that_was_deleted_by_hand_is_a_loss(cluster: Cluster[Consul], connect: Connect, prefix: str) -> None:
    locks = connect(*cluster.addresses)
    lease = locks.lock("x", ttl=TTL * 2).acquire()
    ask(cluster.members[0], "DELETE", f"/v1/kv/{prefix}/locks/x%3A")
    assert lease.lost.wait(10)
    after = locks.lock("x", ttl=20).acquire(timeout=10)
    assert after.token > lease.token
    assert after.release()
