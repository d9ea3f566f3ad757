"""Fault 31: PgBouncer in transaction mode, where a connection is somebody else's after every transaction."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from holdfast import Misuse, NotAcquired, aio
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.servers.postgresql import PgBouncer

from ..hands import SOON, Connect, in_background, until

pytestmark = pytest.mark.server


@pytest.mark.parametrize("options", ["", "?bell=no"])
def test_31_the_lease_table_works_and_says_that_it_polls(
    pgbouncer: PgBouncer, connect: Connect, caplog: pytest.LogCaptureFixture, options: str
) -> None:
    locks, others = connect(pgbouncer.url, options), connect(pgbouncer.url, options)
    tokens = []
    for _ in range(20):
        lease = locks.lock("x").acquire()
        tokens.append(lease.token)
        assert lease.release()
    assert tokens == sorted(set(tokens))
    lease = locks.lock("x", ttl=1.2).acquire()
    got: list[float] = []
    with caplog.at_level(logging.WARNING, "holdfast"):
        thread = in_background(lambda: got.append(others.lock("x", timeout=SOON).acquire().token))
        until(lambda: bool(locks.inspect("x").waiters))
        until(lambda: locks.inspect("x").holders[0].age > 1.3)  # it is renewed through the pooler, too
        started = time.monotonic()
        assert lease.release()
        thread.join(SOON)
    assert got
    assert got[0] > tokens[-1]
    assert time.monotonic() - started < 3
    assert others.traits.bell is False
    assert ("waiting polls" in caplog.text) == (not options)


def test_31_our_settings_do_not_leak_to_others_through_the_pooler(pgbouncer: PgBouncer, connect: Connect) -> None:
    before = pgbouncer.query("SHOW statement_timeout"), pgbouncer.query("SHOW search_path")
    with connect(pgbouncer.url).lock("x"):
        assert (pgbouncer.query("SHOW statement_timeout"), pgbouncer.query("SHOW search_path")) == before


def test_31_in_asyncio_too(pgbouncer: PgBouncer) -> None:
    async def main() -> list[int]:
        async with aio.connect(pgbouncer.url) as locks, aio.connect(pgbouncer.url) as others:
            leases = await asyncio.gather(*(locks.lock(f"n{number}").acquire() for number in range(20)))
            waiting = asyncio.ensure_future(others.lock("n0", timeout=SOON).acquire())
            while not (await locks.inspect("n0")).waiters:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.gather(*(lease.release() for lease in leases))
            last = await waiting
            return [leases[0].token, last.token]

    first, last = asyncio.run(main())
    assert last > first


def test_31_session_locks_are_refused_with_advice(pgbouncer: PgBouncer, connect: Connect) -> None:
    locks = connect(pgbouncer.url, "?mode=session")
    for _ in range(2):
        with pytest.raises(Misuse, match="pool_mode of session"):
            locks.lock("x", timeout=0).acquire()

    async def main() -> None:
        async with aio.connect(pgbouncer.url + "?mode=session") as tasks:
            with pytest.raises(Misuse, match="pool_mode of session"):
                await tasks.lock("x", timeout=0).acquire()

    asyncio.run(main())


def test_a_pooler_in_session_mode_is_as_good_as_none(connect: Connect) -> None:
    with servers.start("pgbouncer", "pool_mode = session", "ignore_startup_parameters = extra_float_digits") as pooler:
        locks, others = connect(pooler.url), connect(pooler.url)
        lease = locks.lock("x").acquire()
        thread = in_background(lambda: others.lock("x", timeout=SOON).acquire().release())
        until(lambda: bool(locks.inspect("x").waiters))
        lease.release()
        thread.join(SOON)
        assert others.traits.bell is True
        sessions, waiters = (connect(pooler.url, "?mode=session&timeout=60") for _ in range(2))
        with sessions.lock("y").acquire(timeout=SOON):
            started = time.monotonic()
            with pytest.raises(NotAcquired):  # whose wait has to be cancelled, at the backend and not at the pooler
                waiters.lock("y").acquire(timeout=0.3)
            assert time.monotonic() - started < 20


def test_behind_a_pooler_in_session_mode_a_wait_ends_when_it_was_told_to(connect: Connect) -> None:
    """Here it took 3.5 s: what was cancelled was the pooler's number, and not the backend's."""
    with servers.start("pgbouncer", "pool_mode = session", "ignore_startup_parameters = extra_float_digits") as pooler:
        holder, waiter = (connect(pooler.url, "?mode=session") for _ in range(2))
        with holder.lock("x").acquire(timeout=SOON):
            waiter.lock("warm").acquire(timeout=SOON).release()
            started = time.monotonic()
            with pytest.raises(NotAcquired):
                waiter.lock("x").acquire(timeout=0.5)
            assert time.monotonic() - started < 3
            assert [one.owner for one in holder.inspect("x").waiters] == []


def test_31_a_role_whose_transactions_are_serializable_gets_its_turn_behind_a_pooler(connect: Connect) -> None:
    """There nothing can be SET, so the server refuses some of those who stand in each other's way: they ask again."""
    with servers.start("pgbouncer") as pooler:
        assert isinstance(pooler, PgBouncer)
        pooler.postgresql.query("ALTER ROLE postgres SET default_transaction_isolation = 'serializable'")
        stores = [connect(pooler.url, "?timeout=30") for _ in range(4)]
        entered: list[int] = []

        def work(locks: Locks) -> None:
            for _ in range(10):
                with locks.lock("hot").acquire(timeout=60) as lease:
                    entered.append(lease.token)

        threads = [in_background(lambda locks=locks: work(locks)) for locks in stores]  # type: ignore[misc]
        for thread in threads:
            thread.join(60)
        assert entered == sorted(entered)
        assert len(entered) == 40
