"""What an ensemble, the network and people do to a lock, done to it. The numbers are those of the table of faults."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from functools import partial

import pytest

from holdfast import LeaseLost, Locks, NotAcquired, Unavailable, events
from holdfast.testing.servers.zookeeper import ZooKeeper

from ..hands import SOON, Background, Connect, until
from .hands import Ensemble, admin, proxied, session_of

pytestmark = pytest.mark.server

_WAIT_IN_LINE = """
import sys, holdfast
holdfast.connect(sys.argv[1]).lock("x", ttl=1).acquire(timeout=60)
"""


def answers(locks: Locks) -> bool:
    with contextlib.suppress(Unavailable):
        locks.inspect("x")
        return True
    return False


def connected_to(locks: object, ensemble: Ensemble) -> ZooKeeper:
    port = session_of(locks).client._connection._socket.getpeername()[1]  # type: ignore[arg-type]
    return next(member for member in ensemble.members if member.port == port)


# ---- the ensemble


def test_a_leader_killed_and_restarted_loses_no_lock_and_tokens_rise(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    holder, other = connect(ensemble.url + root), connect(ensemble.url + root)
    lease = holder.lock("x", ttl=9).acquire()
    waiting = Background(lambda: other.lock("x", ttl=9).acquire(timeout=60))
    until(lambda: holder.inspect("x").waiters)
    leader = ensemble.leader()
    leader.kill()
    assert ensemble.leader() is not leader
    renewed: list[float] = []
    holder.subscribe(lambda event: renewed.append(event.seconds), [events.RENEWED])
    until(lambda: renewed)
    lease.check()
    leader.restart()
    assert lease.release()
    taken = waiting.result()
    assert taken.token > lease.token
    assert taken.release()


def test_with_one_member_down_locks_go_on(ensemble: Ensemble, connect: Connect, root: str) -> None:
    leader = ensemble.leader()
    down = next(member for member in ensemble.members if member is not leader)
    down.kill()
    try:
        locks, other = connect(ensemble.url + root), connect(ensemble.url + root)
        for one in (locks, other):
            until(partial(answers, one))  # the one that is down may have been tried first
        with locks.lock("x", ttl=9) as lease, pytest.raises(NotAcquired):
            other.lock("x").acquire(timeout=2)
        with other.lock("x", ttl=9) as after:
            assert after.token > lease.token
    finally:
        down.restart()


def test_a_paused_member_is_left_for_another_before_the_lease_is_over(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    locks = connect(ensemble.url + root)
    told: list[str] = []
    locks.subscribe(lambda event: told.append(event.kind), [events.IN_DANGER, events.RENEWED, events.LOST])
    lease = locks.lock("x", ttl=9).acquire()
    member = connected_to(locks, ensemble)
    member.pause()
    try:
        until(lambda: events.IN_DANGER in told)
        told.clear()
        until(lambda: told)
        assert told[0] == events.RENEWED
        lease.check()
    finally:
        member.resume()
    assert connected_to(locks, ensemble) is not member
    assert lease.release()


def test_24_no_quorum_no_lock_and_no_lease_outlives_its_ttl(ensemble: Ensemble, connect: Connect, root: str) -> None:
    locks = connect(f"{ensemble.url}{root}?timeout=0.5")
    lease = locks.lock("x", ttl=1).acquire()
    stopped = ensemble.members[:2]
    for member in stopped:
        member.pause()
    try:
        assert lease.lost.wait(SOON)
        with pytest.raises(Unavailable):
            locks.lock("y", ttl=1, timeout=0).acquire()
    finally:
        for member in stopped:
            member.resume()
    ensemble.mend()
    until(lambda: free(locks))
    assert locks.lock("x", ttl=1).acquire(timeout=SOON).token > lease.token


def free(locks: object) -> bool:
    """Nothing is left, as soon as anybody can tell."""
    try:
        return locks.names() == []  # type: ignore[attr-defined, no-any-return]
    except Unavailable:
        return False


# ---- the network


def test_24_a_holder_that_is_cut_off_has_lost_before_another_gets_in(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    with proxied(ensemble) as (hosts, proxies):
        holder, other = connect(f"zookeeper://{hosts}{root}"), connect(ensemble.url + root)
        told: list[tuple[str, float]] = []
        holder.subscribe(
            lambda event: told.append((event.kind, time.monotonic())), [events.IN_DANGER, events.LOST, events.RENEWED]
        )
        lease = holder.lock("x", ttl=2).acquire()
        waiting = Background(lambda: other.lock("x", ttl=2).acquire(timeout=60))
        until(lambda: told)  # renewed: the deadline is the last one's
        for proxy in proxies:
            proxy.to_server.hold()
            proxy.to_client.hold()
        taken = waiting.result()
        kinds = [kind for kind, _ in told]
        assert kinds[-2:] == [events.IN_DANGER, events.LOST]
        assert told[-1][1] < waiting.ended_at
        assert taken.token > lease.token
        for proxy in proxies:
            proxy.flow()
        assert not lease.held
        assert lease.release() is False
        taken.check()
        # The old session is gone, and a claim starts afresh.
        with pytest.raises(LeaseLost):
            lease.check()
        assert taken.release()
        assert holder.lock("x", ttl=2).acquire(timeout=SOON).token > taken.token


def test_25_a_node_whose_creation_was_not_answered_is_found_again(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    with proxied(ensemble) as (hosts, proxies), admin(ensemble.hosts) as look:
        locks = connect(f"zookeeper://{hosts}{root}")
        locks.lock("x").acquire().release()
        for proxy in proxies:
            proxy.to_client.drop(when=lambda chunk: b".1.1.f." in chunk)
        claiming = Background(lambda: locks.lock("x").acquire(timeout=30))
        until(lambda: look.get_children(f"{root}/locks/x"))
        until(lambda: any(proxy.to_client.caught.chunks for proxy in proxies))
        for proxy in proxies:
            proxy.to_client.flow()
            proxy.cut()
        lease = claiming.result()
        (node,) = look.get_children(f"{root}/locks/x")
        _, stat = look.get(f"{root}/locks/x/{node}")
        assert lease.token == stat.czxid
        assert stat.ephemeralOwner == session_of(locks).id
        assert lease.release()


def test_14_a_claim_that_lands_after_its_client_gave_up_is_taken_away(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    with proxied(ensemble) as (hosts, proxies):
        locks, other = connect(f"zookeeper://{hosts}{root}?timeout=0.3"), connect(ensemble.url + root)
        locks.lock("x", ttl=6).acquire().release()
        for proxy in proxies:
            proxy.to_server.hold()
        with pytest.raises(Unavailable):
            locks.lock("x", ttl=6, timeout=0).acquire()
        for proxy in proxies:
            proxy.flow()
        until(lambda: other.names() == [])
        with other.lock("x", timeout=SOON):
            pass


# ---- processes and people


def test_36_a_waiter_that_is_killed_holds_up_nobody_for_long(ensemble: Ensemble, connect: Connect, root: str) -> None:
    url = ensemble.url + root
    holder, other = connect(url), connect(url)
    lease = holder.lock("x", ttl=9).acquire()
    waiter = subprocess.Popen([sys.executable, "-c", _WAIT_IN_LINE, url])
    try:
        until(lambda: len(holder.inspect("x").waiters) == 1)
        waiting = Background(lambda: other.lock("x", ttl=9).acquire(timeout=60))
        until(lambda: len(holder.inspect("x").waiters) == 2)
    finally:
        waiter.kill()
        waiter.wait()
    lease.release()
    taken = waiting.result()
    assert taken.token > lease.token
    assert taken.release()


def test_24_a_session_killed_by_an_admin_is_a_loss_and_claims_start_afresh(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    holder, other = connect(ensemble.url + root), connect(ensemble.url + root)
    lease = holder.lock("x", ttl=3).acquire()
    keeps = other.lock("y", ttl=3).acquire()
    waits = Background(lambda: holder.lock("y", ttl=3).acquire(timeout=60))
    until(lambda: other.inspect("y").waiters)
    with admin(ensemble.hosts, client_id=session_of(holder).client.client_id):
        pass  # whoever leaves in its name ends it
    assert lease.lost.wait(SOON)
    taken = other.lock("x", ttl=3).acquire(timeout=SOON)
    assert taken.token > lease.token
    keeps.release()
    assert waits.result().token > keeps.token  # it joined again, in a new session


def test_37_a_node_deleted_by_an_admin_is_a_loss(ensemble: Ensemble, connect: Connect, root: str) -> None:
    locks = connect(ensemble.url + root)
    lost = locks.lock("x", ttl=1.5).acquire()
    kept = locks.lock("y", ttl=1.5).acquire()
    with admin(ensemble.hosts) as look:
        (node,) = look.get_children(f"{root}/locks/x")
        look.delete(f"{root}/locks/x/{node}")
    assert lost.lost.wait(SOON)
    kept.check()
    assert kept.release()
