"""Session locks: the lock lives with its connection, and the holder knows at once when that has ended."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import psycopg
import pytest

from holdfast import LeaseLost, Unavailable, Unsupported, aio
from holdfast.claim import Grant, Place
from holdfast.stores.postgresql import session as session_store
from holdfast.stores.postgresql import session_wire
from holdfast.stores.postgresql.statements import long
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PgBouncer, PostgreSQL

from ..black_hole import BlackHole
from ..hands import SOON, Connect, claim_of, in_background, until
from .stores import OpenStore, Stored

pytestmark = pytest.mark.server
SESSION = "?mode=session"
HOLDERS = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted"
ADVISORY = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


def test_30_a_killed_backend_is_a_loss_told_at_once(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, SESSION)
    lease = locks.lock("x", ttl=300).acquire()
    started = time.monotonic()
    postgresql.query(HOLDERS)
    assert lease.lost.wait(SOON)
    assert time.monotonic() - started < 5, "was told by a renewal only"
    with pytest.raises(LeaseLost):
        lease.check()
    assert lease.release() is False
    successor = locks.lock("x", timeout=SOON).acquire()
    assert successor.token > lease.token


def test_a_loss_is_told_though_the_watcher_naps_while_locks_come_and_go(
    postgresql: PostgreSQL, connect: Connect
) -> None:
    locks = connect(postgresql.url, SESSION)
    for _ in range(20):  # it is awake by now, and is not woken for each
        locks.lock("x").acquire().release()
    lease = locks.lock("x", ttl=300).acquire()
    postgresql.query(HOLDERS)
    assert lease.lost.wait(4.0)


def test_30_in_asyncio_the_body_is_cancelled_at_once(postgresql: PostgreSQL) -> None:
    async def main() -> float:
        async with aio.connect(postgresql.url + SESSION) as locks:
            started = time.monotonic()
            with pytest.raises(LeaseLost):
                async with locks.lock("x", ttl=300):
                    await asyncio.to_thread(postgresql.query, HOLDERS)
                    await asyncio.sleep(60)
            return time.monotonic() - started

    assert asyncio.run(main()) < SOON


def test_what_was_held_when_its_loop_ended_is_released_without_an_alarm(
    postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We hung up, and then asked whether it was there: a busy server had seen that first, and it was told as lost."""
    drop = session_store.SessionStore._drop

    def drop_and_be_seen(self: session_store.SessionStore, record: session_store.Record) -> None:
        drop(self, record)
        until(lambda: postgresql.query(ADVISORY) == [("0",)])

    async def held() -> tuple[aio.Locks, aio.Lease]:
        locks = aio.connect(postgresql.url + SESSION)
        return locks, await locks.lock("x", ttl=300).acquire()

    async def released(locks: aio.Locks, lease: aio.Lease) -> bool:
        store: Any = locks._engine.store
        (record,) = store._records.values()
        try:
            with pytest.raises(Unavailable):  # at once
                await record.session.ask(store._sql.ping, (long(1),), SOON)
            return await lease.release()
        finally:
            await locks.close()

    locks, lease = asyncio.run(held())
    monkeypatch.setattr(session_store.SessionStore, "_drop", drop_and_be_seen)
    assert asyncio.run(released(locks, lease))


def test_30_a_waiter_whose_backend_was_killed_waits_on(postgresql: PostgreSQL, connect: Connect) -> None:
    locks, others = connect(postgresql.url, SESSION), connect(postgresql.url, SESSION)
    held = locks.lock("x").acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(others.lock("x", timeout=30).acquire().token))
    until(lambda: bool(locks.inspect("x").waiters))
    until(lambda: postgresql.query(f"{ADVISORY} AND NOT granted") == [("1",)])
    postgresql.query(HOLDERS.replace("AND granted", "AND NOT granted"))
    held.release()
    thread.join(SOON)
    assert got


def test_a_waiter_whose_place_ended_without_a_word_joins_again(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the server's side of its connection has ended, and nobody told ours: it would wait for ever."""
    monkeypatch.setattr(session_store, "_ARRIVED", 0.0)
    holder = opened(postgresql.url, SESSION)
    held, mine = holder.grant(claim_of("x")), claim_of("x", ttl=300)
    with BlackHole(postgresql.address) as between:
        waiter = opened(("127.0.0.1", between.port), SESSION)
        assert isinstance(waiter.claim(mine), Place)
        until(lambda: postgresql.query(f"{ADVISORY} AND NOT granted") == [("1",)])
        between.swallow()
        postgresql.query(HOLDERS.replace("AND granted", "AND NOT granted"))
        until(lambda: postgresql.query(f"{ADVISORY} AND NOT granted") == [("0",)])
        assert holder.release(held.claim)
        with pytest.raises(
            Unavailable
        ):  # the connection that the server is asked on has vanished, too: the next has not
            waiter.claim(mine, 0.5)
        until(lambda: isinstance(waiter.claim(mine), Grant), within=40)
        assert waiter.release(mine)


def test_a_waiter_that_is_in_line_keeps_its_place(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_store, "_ARRIVED", 0.0)
    store = opened(postgresql.url, SESSION)
    held, mine = store.grant(claim_of("x")), claim_of("x")
    assert isinstance(store.claim(mine), Place)
    until(lambda: postgresql.query(f"{ADVISORY} AND NOT granted") == [("1",)])
    its = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    before = postgresql.query(its)
    assert isinstance(store.claim(mine), Place)
    assert postgresql.query(its) == before
    assert store.release(held.claim)
    until(lambda: isinstance(store.claim(mine), Grant))
    assert store.release(mine)


def test_the_line_that_is_shown_is_the_servers_own(postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore) -> None:
    """Who has asked, but has not come so far, stands behind whoever came meanwhile: and is not listed before them."""
    near, far = opened(postgresql.url, SESSION), opened(proxy.address, SESSION)
    held = near.grant(claim_of("x"))
    asks, comes = claim_of("x")._replace(owner="asks first"), claim_of("x")._replace(owner="comes first")
    proxy.to_server.hold(when=lambda data: b"holdfast_wait" in data and b"PREPARE" not in data)
    assert isinstance(far.claim(asks), Place)
    proxy.to_server.wait_for_caught(1)
    assert isinstance(near.claim(comes), Place)
    until(lambda: [one.owner for one in near.inspect("x").waiters] == ["comes first"])
    proxy.flow()
    until(lambda: [one.owner for one in near.inspect("x").waiters] == ["comes first", "asks first"])
    assert near.release(held.claim)
    until(lambda: isinstance(near.claim(comes), Grant))
    assert near.release(comes)
    until(lambda: isinstance(far.claim(asks), Grant))
    assert far.release(asks)


def test_a_server_that_crashes_ends_the_locks_and_their_holders_know(
    own_postgresql: PostgreSQL, connect: Connect
) -> None:
    locks = connect(own_postgresql.url, SESSION)
    lease = locks.lock("x", ttl=300).acquire()
    own_postgresql.kill()
    assert lease.lost.wait(SOON)
    own_postgresql.restart()
    assert locks.lock("x", timeout=SOON).acquire().token > lease.token


def test_a_wait_given_up_in_the_moment_of_the_grant_leaves_nothing(postgresql: PostgreSQL, connect: Connect) -> None:
    """The race of 55P03: the server may report that the wait has ended, and have granted the lock all the same."""
    locks, others = connect(postgresql.url, SESSION), connect(postgresql.url, SESSION)
    for round_ in range(30):
        held = locks.lock("x").acquire(timeout=SOON)
        waiter = threading.Thread(target=lambda: _try_for(others, 0.03))
        waiter.start()
        time.sleep(0.02 + round_ * 0.0007)
        held.release()
        waiter.join(SOON)
        until(lambda: postgresql.query(ADVISORY) == [("0",)], within=5)
    assert locks.names() == []


def _try_for(locks: object, seconds: float) -> None:
    lock = locks.lock("x")  # type: ignore[attr-defined]
    try:
        lock.acquire(timeout=seconds).release()
    except TimeoutError:
        return


def test_a_process_that_holds_nothing_keeps_nothing(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, SESSION)
    with locks.lock("x"), locks.rwlock("y").read(), locks.rwlock("y").read():
        assert postgresql.query(ADVISORY) == [("2",)]  # a reader that reads again is the same one
    assert postgresql.query(ADVISORY) == [("0",)]


def test_relaxed_tokens_rise_and_the_traits_say_so(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, f"{SESSION}&durability=relaxed")
    tokens = []
    for _ in range(3):
        with locks.lock("x") as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))
    assert "relaxed" in locks.traits.durable
    assert "relaxed" not in connect(postgresql.url, SESSION).traits.durable


def test_a_connection_that_was_given_back_may_be_silent_again(postgresql: PostgreSQL, connect: Connect) -> None:
    """The server's patience with a holder is the ttl; with a connection that holds nothing it has no end."""
    locks = connect(postgresql.url, SESSION)
    locks.lock("x", ttl=0.3, renew=False).acquire().release()
    patience = "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'"
    before = postgresql.query(patience)
    time.sleep(0.6)
    assert postgresql.query(patience) == before


def test_semaphores_are_refused_at_once(postgresql: PostgreSQL, connect: Connect) -> None:
    with pytest.raises(Unsupported, match="lease table"):
        connect(postgresql.url, SESSION).semaphore("x", 3, timeout=0).acquire()


def test_names_of_both_modes_are_kept_apart(postgresql: PostgreSQL, connect: Connect) -> None:
    lease, session = connect(postgresql.url), connect(postgresql.url, SESSION)
    with lease.lock("a"), session.lock("b"):
        assert (lease.names(), session.names()) == (["a"], ["b"])


def test_a_sweep_spares_the_living(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, f"{SESSION}&retention=0.1")
    with locks.lock("x"), psycopg.connect(postgresql.url, autocommit=True) as other:
        time.sleep(0.2)
        for _ in range(5):
            other.execute("SELECT holdfast.sweep(100000)")
        assert [one.token for one in locks.inspect("x").holders]


def test_one_name_in_two_schemas_is_two_locks(postgresql: PostgreSQL, connect: Connect) -> None:
    ours, theirs = connect(postgresql.url, "?mode=session"), connect(postgresql.url, "?mode=session&schema=theirs")
    mine = ours.lock("x").acquire(timeout=0)
    other = theirs.lock("x").acquire(timeout=SOON)
    assert theirs.force_release("x", token=other.token)  # which asks whether its backend has the lock
    until(lambda: other.lost.is_set())
    assert mine.release()
    postgresql.query("DROP SCHEMA theirs CASCADE")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # its bell: closed when it is forgotten
def test_a_watch_over_connections_that_was_interrupted_in_beginning_begins_with_the_next(
    postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Stored(postgresql.url + SESSION, asynchronous=False)  # in asyncio the loop watches
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "holdfast-watcher":
            monkeypatch.setattr(threading.Thread, "start", start)
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    mine = claim_of("x")
    with pytest.raises(KeyboardInterrupt):
        store.claim(mine)
    assert store.release(mine)
    grant = store.grant(claim_of("x"))
    assert store.renew([grant], SOON) == [grant]
    store.close()


def test_a_refusal_to_prepare_a_connection_is_told_in_our_words(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(postgresql.url, SESSION)
    monkeypatch.setattr(session_wire, "settings", lambda relaxed: "SELECT 1 / 0")
    with pytest.raises(Unavailable, match="division by zero"):
        store.claim(claim_of("x"))


def test_a_role_whose_transactions_see_the_past_gets_its_turn(connect: Connect) -> None:
    """Behind a pooler in session mode: who waited would see the row of before it waited, and be refused."""
    with servers.start("pgbouncer", "pool_mode = session") as pooler:
        assert isinstance(pooler, PgBouncer)
        pooler.postgresql.query("ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'")
        holder, waiter = (connect(pooler.url, "?mode=session&timeout=60") for _ in range(2))
        lease = holder.lock("x").acquire(timeout=SOON)
        tokens: list[int] = []
        thread = in_background(lambda: tokens.append(waiter.lock("x").acquire(timeout=30).token))
        until(lambda: bool(holder.inspect("x").waiters))
        lease.release()
        thread.join(40)
        assert tokens[0] > lease.token
