"""What PostgreSQL, its administrators and the network do to a lock, done to it. The numbers are those of the table of faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import psycopg
import pytest

from holdfast import LeaseLost, NotAcquired, Unavailable
from holdfast.claim import MAX_TOKEN
from holdfast.drivers.base import finish
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import SOON, Connect, in_background, until
from .hands import BACKENDS

pytestmark = pytest.mark.server

EARS = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'"


# ---- backends and servers that go


@pytest.mark.parametrize("pool", ["", "?pool=1"])
def test_30_backends_killed_while_holding_are_replaced_and_the_lease_lives(
    postgresql: PostgreSQL, connect: Connect, pool: str
) -> None:
    locks = connect(postgresql.url, pool)
    lease = locks.lock("x", ttl=1.5).acquire()
    since = time.monotonic()
    until(lambda: locks.inspect("x").holders[0].left > 1.5 - 0.4 and time.monotonic() - since > 0.5)  # renewed once
    postgresql.query(BACKENDS)
    until(lambda: time.monotonic() - since > 2.5)
    lease.check()
    assert lease.release()


def test_30_a_waiter_whose_ear_was_killed_is_let_in_all_the_same(postgresql: PostgreSQL, connect: Connect) -> None:
    locks, others = connect(postgresql.url), connect(postgresql.url)
    held = others.lock("x").acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(locks.lock("x", timeout=30).acquire().token))
    until(lambda: bool(others.inspect("x").waiters))
    postgresql.query(EARS)
    held.release()
    thread.join(SOON)
    assert got, "the bell was lost with the connection"


def test_8_a_restarted_server_has_kept_the_lock_and_the_line_goes_on(
    own_postgresql: PostgreSQL, connect: Connect
) -> None:
    locks, others = connect(own_postgresql.url), connect(own_postgresql.url)
    held = others.lock("x", ttl=30).acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(locks.lock("x", timeout=30).acquire().token))
    until(lambda: bool(others.inspect("x").waiters))
    own_postgresql.kill()
    own_postgresql.restart()
    until(lambda: [one.token for one in others.inspect("x").holders] == [held.token])
    assert not got, "a durable claim was forgotten"
    assert held.release()
    thread.join(SOON)
    assert got
    assert got[0] > held.token


def test_8_a_failover_to_an_empty_server_creates_the_schema_anew_and_tokens_rise(
    own_postgresql: PostgreSQL, connect: Connect
) -> None:
    locks = connect(own_postgresql.url)
    before = locks.lock("x").acquire()
    own_postgresql.query("DROP SCHEMA holdfast CASCADE")
    after = locks.lock("x", timeout=5).acquire()
    assert after.token > before.token
    assert before.release() is False
    own_postgresql.kill()
    own_postgresql.restart(empty=True)
    last = locks.lock("x", timeout=5).acquire()
    assert last.token > after.token
    assert last.release()


def test_10_tokens_rise_when_rows_are_deleted(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    tokens = []
    for _ in range(5):
        tokens.append(locks.lock("x").acquire().token)
        postgresql.query("DELETE FROM holdfast.locks")
    assert tokens == sorted(set(tokens))


def test_34_tokens_at_their_limit_are_refused_and_never_wrap(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    locks.lock("x").acquire().release()
    postgresql.query(f"UPDATE holdfast.locks SET last = {MAX_TOKEN}")  # noqa: S608
    with pytest.raises(Unavailable, match="used up"):
        locks.lock("x", timeout=0).acquire()


def test_37_a_deleted_lock_is_reported_as_lost_by_the_next_renewal(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    lease = locks.lock("x", ttl=1.5).acquire()
    postgresql.query("DELETE FROM holdfast.locks")
    assert lease.lost.wait(SOON)
    with pytest.raises(LeaseLost, match="no longer has it"):
        lease.check()


def test_36_a_waiter_that_was_killed_holds_up_nobody(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    held = locks.lock("x").acquire()
    waiter = subprocess.Popen(
        [sys.executable, "-c", f"import holdfast; holdfast.connect({postgresql.url!r}).lock('x').acquire()"]
    )
    until(lambda: len(locks.inspect("x").waiters) == 1)
    os.kill(waiter.pid, signal.SIGKILL)
    waiter.wait()
    got: list[float] = []
    second = connect(postgresql.url)
    thread = in_background(lambda: got.append(second.lock("x", timeout=25).acquire().token))
    until(lambda: len(locks.inspect("x").waiters) == 2)
    started = time.monotonic()
    held.release()
    thread.join(20)
    assert got
    assert time.monotonic() - started < 5, "waited for the dead one's ttl"


# ---- what is between


def test_15_a_grant_whose_reply_was_lost_is_found_again(postgresql: PostgreSQL, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=0.7")
    locks.lock("warm").acquire().release()
    proxy.to_client.drop(chunks=1)
    lease = locks.lock("x").acquire(timeout=0)
    snapshot = connect(postgresql.url).inspect("x")
    assert [holding.token for holding in snapshot.holders] == [lease.token]
    assert lease.release()


def test_12_a_reply_that_comes_after_the_ttl_is_no_grant(
    postgresql: PostgreSQL, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.address, "?timeout=3")
    locks.lock("warm").acquire().release()
    proxy.to_client.delay(0.5)
    with pytest.raises((NotAcquired, Unavailable)):
        locks.lock("x", ttl=0.3, timeout=0.4).acquire()
    proxy.to_client.flow()
    until(lambda: connect(postgresql.url).names() == [])


def test_13_a_release_that_comes_late_leaves_the_successor_alone(
    postgresql: PostgreSQL, proxy: Proxy, connect: Connect
) -> None:
    locks, direct = connect(proxy.address, "?timeout=0.2"), connect(postgresql.url)
    lease = locks.lock("x", ttl=0.6, renew=False).acquire()
    proxy.to_server.hold()
    with pytest.raises(Unavailable):
        lease.release()
    successor = direct.lock("x", timeout=SOON).acquire()
    proxy.to_server.flow()
    proxy.wait_until(lambda: proxy.connections == 0)
    assert [one.token for one in direct.inspect("x").holders] == [successor.token]
    assert successor.release()


def test_a_silent_server_is_an_error_within_the_timeout_and_recovers(
    postgresql: PostgreSQL, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.address, "?timeout=0.4")
    locks.lock("x").acquire().release()
    proxy.to_client.hold()
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not answer within|cannot connect"):
        locks.lock("y", timeout=0).acquire()
    assert time.monotonic() - started < 5
    proxy.flow()
    with locks.lock("x", timeout=SOON):
        pass


def test_22_renewal_goes_on_when_all_connections_are_busy(postgresql: PostgreSQL, connect: Connect) -> None:
    locks, looker = connect(postgresql.url, "?pool=1&timeout=1.5"), connect(postgresql.url)
    lease = locks.lock("mine", ttl=0.9).acquire()
    locks.lock("busy").acquire().release()
    failures: list[Exception] = []

    def busy() -> None:
        try:
            locks.lock("busy", timeout=0).acquire()
        except Unavailable as error:
            failures.append(error)

    with psycopg.connect(postgresql.url) as other:
        other.execute("SELECT FROM holdfast.locks WHERE name = 'busy' FOR UPDATE")  # somebody sits on a row of ours
        thread = in_background(busy)
        until(lambda: looker.inspect("mine").holders[0].age > 1.2)
        lease.check()
        thread.join(SOON)
        assert failures
        other.rollback()
    assert lease.release()


def test_a_row_locked_by_a_stranger_is_told_and_leaves_no_ghost(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, "?timeout=0.4")
    locks.lock("x").acquire().release()
    with psycopg.connect(postgresql.url) as other:
        other.execute("SELECT FROM holdfast.locks FOR UPDATE")
        with pytest.raises(Unavailable, match="timeout"):
            locks.lock("x", timeout=0).acquire()
        other.rollback()
    assert locks.names() == []
    assert locks.lock("x").acquire(timeout=1).release()


# ---- what it costs


def test_where_there_was_a_line_an_acquisition_asks_twice_to_join_and_to_enter(
    postgresql: PostgreSQL, connect: Connect
) -> None:
    """And does not first find out, once more, that it has to wait."""
    locks, others = connect(postgresql.url), connect(postgresql.url)
    wire, asked = others._engine.store._wire, []  # type: ignore[attr-defined]
    ask = wire.ask

    def told(statement: Any, *words: Any) -> Any:
        asked.append(statement.name.decode().removeprefix("holdfast_"))
        return ask(statement, *words)

    wire.ask = told

    def wait_once() -> None:
        held = locks.lock("x").acquire(timeout=SOON)
        thread = in_background(lambda: inside.append(others.lock("x", timeout=SOON).acquire()))
        until(lambda: bool(locks.inspect("x").waiters))
        held.release()
        thread.join(SOON)
        asked.append("inside")

    inside: list[Any] = []
    wait_once()
    assert asked == ["claim", "claim", "claim", "inside"]
    asked.clear()
    inside.pop().release()
    asked.clear()
    wait_once()
    assert asked == ["claim", "claim", "inside"]


# ---- nothing is left behind


def test_names_used_once_leave_nothing_after_the_retention_time(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, "?retention=0.1&durability=relaxed")
    for number in range(600):
        locks.lock(f"once:{number}").acquire().release()
    store = locks._engine.store

    def is_empty_after_a_sweep() -> bool:
        finish(store._wire.sweep(store._sql.sweep, time.clock_gettime(time.CLOCK_BOOTTIME) + SOON))  # type: ignore[attr-defined]
        return postgresql.query("SELECT count(*) FROM holdfast.locks") == [("0",)]

    until(is_empty_after_a_sweep)


def test_many_cycles_do_not_bloat_the_table_even_without_vacuum(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, "?durability=relaxed")
    postgresql.query("ALTER TABLE holdfast.locks SET (autovacuum_enabled = off)")
    try:
        for _ in range(1500):
            locks.lock("x").acquire().release()
        ((size,),) = postgresql.query("SELECT pg_relation_size('holdfast.locks') + pg_indexes_size('holdfast.locks')")
        assert int(size) <= 65536
    finally:
        postgresql.query("ALTER TABLE holdfast.locks RESET (autovacuum_enabled)")
