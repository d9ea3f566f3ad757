"""What etcd and its operators do to a lock, done to it. The numbers are those of the table of faults in the guide."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial

import pytest

import holdfast
from holdfast import LeaseLost, Misuse, NotAcquired, aio
from holdfast.claim import Grant, Place
from holdfast.drivers.base import finish
from holdfast.stores.etcd import still_held
from holdfast.stores.etcd.requests import (
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    TXN,
)
from holdfast.stores.etcd.store import EtcdStore
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

from ..hands import SOON, Connect, claim_of, in_background, until
from ..hops import check_the_way
from .hands import admin, ask, base64, begin_with, by_the_hundred, leases_of, store_of

pytestmark = pytest.mark.server


# ---- members


def test_28_a_leader_that_is_killed_takes_no_lock_with_it_and_waiters_stay_in_line(
    cluster: Cluster[Etcd], connect: Connect
) -> None:
    a, b = connect(), connect()
    held = a.lock("x", ttl=6).acquire()
    other = a.lock("y", ttl=6).acquire()
    got: list[int] = []
    waiter = in_background(lambda: got.append(b.lock("x", ttl=6).acquire(timeout=60).token))
    until(lambda: a.inspect("x").waiters)
    leader = cluster.leader()
    leader.kill()
    try:
        cluster.leader()
        assert a.lock("z").acquire(timeout=SOON).release()
        until(lambda: other.remaining() > 4)  # renewed since, by the new leader
        assert held.release() is True
        waiter.join(SOON)
        assert got
        assert got[0] > held.token
        assert other.held
        assert other.release()
    finally:
        leader.restart()


def test_a_member_that_is_paused_is_passed_over(cluster: Cluster[Etcd], url: str) -> None:
    follower = next(member for member in cluster.members if member is not cluster.leader())
    for at in range(3):  # whichever member it would have begun with
        locks = holdfast.connect(f"{url}?timeout=0.6")
        begin_with(store_of(locks), cluster.members[at].port)
        follower.pause()
        try:
            before = time.monotonic()
            with locks.lock(f"x{at}", ttl=10).acquire(timeout=10) as lease:
                lease.check()
            assert time.monotonic() - before < 5
        finally:
            follower.resume()
        locks.close()


def test_the_old_leader_wakes_up_and_its_client_stays_out(cluster: Cluster[Etcd], prefix: str) -> None:
    """Two clients, on both sides: one knows only the leader, which is paused; the other knows the rest."""
    leader = cluster.leader()
    rest = ",".join(f"127.0.0.1:{member.port}" for member in cluster.members if member is not leader)
    a = holdfast.connect(f"etcd://127.0.0.1:{leader.port}/{prefix}?timeout=1")
    b = holdfast.connect(f"etcd://{rest}/{prefix}")
    old = a.lock("x", ttl=1).acquire()
    lost: list[float] = []
    old.on_lost(lambda _: lost.append(time.monotonic()))
    leader.pause()
    try:
        new = b.lock("x", ttl=1).acquire(timeout=SOON)
        entered = time.monotonic()
        assert new.token > old.token
        assert lost
        assert lost[0] < entered
    finally:
        leader.resume()
    with pytest.raises(LeaseLost):
        old.check()
    until(lambda: [one.token for one in b.inspect("x").holders] == [new.token])
    assert old.release() is False
    assert new.held
    for locks in (b, a):
        locks.close()
    cluster.leader()


def test_members_that_come_and_go_are_no_matter(cluster: Cluster[Etcd], connect: Connect) -> None:
    a = connect()
    member = cluster.members[0]
    held = a.lock("x", ttl=1).acquire()
    added = admin(member, "/v3/cluster/member/add", peerURLs=["http://127.0.0.1:1"])["member"]["ID"]
    try:
        with a.lock("y").acquire(timeout=SOON):
            held.check()
    finally:
        until(lambda: admin(member, "/v3/cluster/member/remove", ID=added))
    until(lambda: held.remaining() > 0.8)
    assert held.release() is True


# ---- leases


def test_27_a_lease_that_an_admin_revokes_is_told_and_the_others_go_on(
    cluster: Cluster[Etcd], connect: Connect
) -> None:
    a, b = connect(), connect()
    lease = a.lock("x", ttl=1).acquire()
    longer = a.lock("y", ttl=30).acquire()
    (session,) = [one for one in leases_of(a) if one != longer_session(a)]
    admin(cluster.members[0], "/v3/lease/revoke", ID=str(session))
    assert lease.lost.wait(SOON)
    with pytest.raises(LeaseLost):
        lease.check()
    taken = b.lock("x").acquire(timeout=SOON)
    assert taken.token > lease.token
    assert longer.held
    fresh = a.lock("z", ttl=1).acquire(timeout=SOON)  # on a new session
    assert [one.release() for one in (fresh, taken, longer)] == [True] * 3


def longer_session(locks: holdfast.sync.Locks) -> int:
    return max(store_of(locks)._sessions._sessions.items())[1].lease


def test_27_a_waiter_whose_lease_was_revoked_joins_again_and_never_enters_on_the_dead_one(
    cluster: Cluster[Etcd], connect: Connect
) -> None:
    a, b = connect(), connect()
    held = a.lock("x", ttl=30).acquire()
    mine = claim_of("x", 1.0)
    assert isinstance(ask(b, mine), Place)
    admin(cluster.members[0], "/v3/lease/revoke", ID=str(leases_of(b)[0]))
    until(lambda: not a.inspect("x").waiters)
    held.release()
    answer = ask(b, mine)  # the session that it believes in is dead
    assert isinstance(answer, Grant)
    (alive,) = leases_of(b)
    found = admin(cluster.members[0], "/v3/lease/timetolive", ID=str(alive), keys=True)
    assert len(found["keys"]) == 1
    assert int(found["TTL"]) > 0
    assert finish(store_of(b).release(mine))


def test_37_a_key_deleted_by_an_admin_is_told(cluster: Cluster[Etcd], connect: Connect, prefix: str) -> None:
    a = connect()
    lease, other = a.lock("x", ttl=1).acquire(), a.lock("y", ttl=1).acquire()
    start = f"{prefix}/@in/x\0".encode()
    admin(cluster.members[0], "/v3/kv/deleterange", key=base64(start), range_end=base64(start[:-1] + b"\1"))
    assert lease.lost.wait(SOON)
    assert other.held


def test_29_a_watch_whose_revision_was_compacted_looks_again(cluster: Cluster[Etcd], connect: Connect) -> None:
    a, b = connect(), connect()
    held = a.lock("x").acquire()
    mine = claim_of("x")
    place = ask(b, mine)
    assert isinstance(place, Place)
    held.release()
    for _ in range(3):
        a.lock("y").acquire(timeout=SOON).release()
    revision = admin(cluster.members[0], "/v3/kv/range", key=base64(b"nothing"))["header"]["revision"]
    admin(cluster.members[0], "/v3/kv/compaction", revision=revision)
    before = time.monotonic()
    finish(store_of(b).wait(place, 30))
    assert time.monotonic() - before < SOON
    assert isinstance(ask(b, mine), Grant)
    assert finish(store_of(b).release(mine))


# ---- clients

_WAIT = """
import sys, holdfast
locks = holdfast.connect(sys.argv[1])
lease = locks.lock("x", ttl=float(sys.argv[2])).acquire(timeout=60)
print(lease.token, flush=True)
sys.stdin.read()
"""


def in_use_by(locks: holdfast.sync.Locks, number: int) -> bool:
    snapshot = locks.inspect("x")
    return len(snapshot.holders) + len(snapshot.waiters) == number


def test_33_36_a_killed_holder_and_a_killed_waiter_are_passed_over(connect: Connect, url: str) -> None:
    locks = connect()
    crew = []
    try:
        for number in range(2):
            crew.append(subprocess.Popen([sys.executable, "-c", _WAIT, url, "1"], stdin=subprocess.PIPE))
            until(partial(in_use_by, locks, number + 1))
        token = locks.inspect("x").holders[0].token
        got: list[int] = []
        third = in_background(lambda: got.append(locks.lock("x", ttl=10).acquire(timeout=60).token))
        until(lambda: len(locks.inspect("x").waiters) == 2)
        for one in reversed(crew):
            one.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        third.join(SOON)
        assert got
        assert got[0] > token
        assert (
            time.monotonic() - killed < 1 + 2 + 2 + 3
        )  # the ttl, its session's more, the leader's, and a busy machine
    finally:
        for one in crew:
            one.kill()
            one.communicate()


def test_a_thousand_locks_are_one_lease_and_one_keep_alive(url: str) -> None:
    async def main() -> list[bytes]:
        calls: list[bytes] = []
        async with aio.connect(url) as locks:
            store = locks._engine.store
            assert isinstance(store, EtcdStore)
            ask_apart = store._wire.ask_apart

            async def counted(some: Sequence[tuple[bytes, bytes]], within: float) -> list[bytes | Exception]:
                calls.extend(path for path, _ in some)
                return await ask_apart(some, within)

            leases = await by_the_hundred([locks.lock(f"x{n}", ttl=60).acquire() for n in range(1000)])
            assert len(store._sessions._sessions) == 1
            store._wire.ask_apart = counted  # type: ignore[method-assign, assignment]
            grants = [lease._grant for lease in leases]
            assert await store.renew(grants, 20) == grants
            await by_the_hundred([lease.release() for lease in leases])
        return calls

    calls = asyncio.run(asyncio.wait_for(main(), 60))
    assert calls.count(LEASE_KEEP_ALIVE) == 1
    assert calls.count(TXN) == 10
    assert calls[11:] == [LEASE_REVOKE], "which closing asks for"


def test_one_claim_takes_no_more_files_and_hops_than_the_page_says(url: str) -> None:
    check_the_way("etcd", url)


def test_who_will_not_wait_is_told_who_holds_it_also_from_another_client(connect: Connect) -> None:
    a, b = connect(), connect()
    lease = a.lock("x").acquire()
    with pytest.raises(NotAcquired, match=f"held by .*token {lease.token}"):
        b.lock("x").acquire(timeout=0)


def test_a_transaction_of_ones_own_goes_through_only_while_the_lock_is_held(
    cluster: Cluster[Etcd], connect: Connect, prefix: str
) -> None:
    a, b = connect(), connect()
    lease = a.rwlock("x", ttl=30).write().acquire()
    write = {"request_put": {"key": base64(f"{prefix}-data".encode()), "value": base64(b"1")}}

    def goes_through(compare: dict[str, str]) -> bool:
        answer = admin(cluster.members[0], "/v3/kv/txn", compare=[compare], success=[write])
        return bool(answer.get("succeeded", False))

    as_writer = still_held(lease)
    assert goes_through(as_writer)
    lease.downgrade()
    assert not goes_through(as_writer)  # it stands elsewhere now
    as_reader = still_held(lease)
    assert goes_through(as_reader)
    b.force_release("x", token=lease.token)
    assert not goes_through(as_reader)
    with (
        holdfast.connect("memory://") as other,
        other.lock("x") as elsewhere,
        pytest.raises(Misuse, match="not kept in"),
    ):
        still_held(elsewhere)
