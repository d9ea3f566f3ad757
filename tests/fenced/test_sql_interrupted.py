"""Cancelled at every point, or with the connection cut in the middle: what is heard is what happened, and nothing stays open."""

from __future__ import annotations

import asyncio
import threading
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from holdfast import sql
from holdfast.databases.connections import ASYNCIO, wire_for
from holdfast.databases.statements import POSTGRESQL
from holdfast.databases.wire import Wire, settle
from holdfast.sql import aio as sql_aio

from .sql_drivers import DRIVERS, Driver
from .sql_drivers import psycopg_autocommit as plain_postgresql
from .sql_drivers import pymysql as plain_mysql
from .test_sql_autocommit import connected, params
from .test_sql_commit_inside import ALL, guarded, said

SECONDS = 20.0
OF_ASYNCIO = {name: driver for name, driver in ALL.items() if driver.world == ASYNCIO}
OVER_A_NETWORK = {name: driver for name, driver in DRIVERS.items() if driver.server != "sqlite_file"}


NOTHING = "UPDATE holdfast_fences SET token = token WHERE 1 = 0"


class Interrupted(BaseException):
    """As KeyboardInterrupt is one."""


@types.coroutine
def cancelled_at(point: int, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, bool]:
    """Run it, and cancel what it waits for when it waits for the n-th time. False: it did not wait so often."""
    reached = 0
    error: BaseException | None = None
    while True:
        try:
            waited_for = work.send(None) if error is None else work.throw(error)
        except StopIteration:
            return False
        if waited_for is not None:
            if reached == point:
                waited_for.cancel()  # as Task.cancel() does
            reached += 1
        try:
            error = None
            yield waited_for
        except BaseException as thrown:
            error = thrown


async def check_that_nothing_is_open(wire: Wire) -> None:
    """Asked after a query, by when everything that was under way has arrived; where a query does not begin a transaction."""
    if wire.standalone() or wire.reads_apart:
        await wire.row(said("SELECT 1"))
        assert not wire.busy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("driver", params(OF_ASYNCIO))
def test_a_transaction_cancelled_at_any_point_ends_as_cancelled_and_leaves_nothing_open(
    driver: Driver, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(driver.server)

    async def work(module: Any, connection: Any) -> None:
        standalone = wire_for(connection, ASYNCIO).standalone()
        for point in range(100):
            name = f"cancelled {time.time_ns()}"

            async def nothing() -> None:
                # No query: sqlite3 keeps a connection open, and its lock, that was closed with one unfinished.
                await wire_for(connection, ASYNCIO).run(said(NOTHING))  # noqa: B023  # called before the next round

            try:
                if not await cancelled_at(point, guarded(module, connection, name, nothing)):
                    break
            except asyncio.CancelledError:
                pass  # and nothing else: whoever cancels waits for this
            else:
                pytest.fail(f"cancelled at point {point}, it went on")
            try:
                async with asyncio.timeout(SECONDS):
                    await check_that_nothing_is_open(wire_for(connection, ASYNCIO))
                    await guarded(module, connection, name, nothing, token=2)
                    assert wire_for(connection, ASYNCIO).standalone() == standalone
            except Exception as error:
                if "Cancelled during execution" not in str(error):
                    raise
                # Drivers of MySQL close a connection that was cancelled in mid-answer. The next one is not kept waiting.
                connection = await settle(driver.connect(url))
                async with asyncio.timeout(SECONDS):
                    await guarded(module, connection, name, nothing, token=3)
        assert point > 0  # how often it waits depends on how soon the server answers
        await settle(driver.close(connection))

    connected(driver, url, work)


def test_what_was_cancelled_before_aiosqlite_began_it_is_undone_behind_it(request: pytest.FixtureRequest) -> None:
    """Its thread has the call in its queue, and makes it though nobody waits any more."""
    driver = DRIVERS["aiosqlite"]

    async def until_it_has(connection: Any, calls: int, or_done: asyncio.Task[None] | None = None) -> None:
        async with asyncio.timeout(SECONDS):
            while connection._tx.qsize() != calls and not (or_done and or_done.done()):  # noqa: ASYNC110 - it is a thread
                await asyncio.sleep(0)

    async def work(module: Any, connection: Any) -> None:
        go_on = threading.Event()
        busy = asyncio.create_task(connection._execute(go_on.wait, SECONDS))
        await asyncio.sleep(0)  # it is in the queue
        await until_it_has(connection, 0)  # and no longer
        late = asyncio.create_task(guarded(module, connection, f"late {time.time_ns()}", asyncio.Event().wait))
        await until_it_has(connection, 1)
        late.cancel()
        await until_it_has(connection, 2, late)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await late
        await busy
        await check_that_nothing_is_open(wire_for(connection, ASYNCIO))

    connected(driver, request.getfixturevalue(driver.server), work)


async def cut(wire: Wire, url: str) -> None:
    """By the server, as a restart would."""
    if wire.dialect == POSTGRESQL:
        (ours,) = await wire.row(said("SELECT pg_backend_pid()")) or ()
        with plain_postgresql(url) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", (ours,))
        return
    (ours,) = await wire.row(said("SELECT CONNECTION_ID()")) or ()
    other, deadline = plain_mysql(url), time.monotonic() + SECONDS
    cursor = other.cursor()
    cursor.execute(f"KILL {ours}")
    while cursor.execute("SELECT 1 FROM information_schema.processlist WHERE id = %s", (ours,)):
        assert time.monotonic() < deadline
    other.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("driver", params(OVER_A_NETWORK))
def test_what_the_body_raised_is_heard_though_the_connection_is_gone(
    driver: Driver, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(driver.server)

    async def work(module: Any, connection: Any) -> None:
        wire = wire_for(connection, driver.world)

        async def interrupted() -> None:
            await cut(wire, url)
            raise Interrupted

        with pytest.raises(Interrupted):
            await guarded(module, connection, f"heard {time.time_ns()}", interrupted)

    connected(driver, url, work)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("driver", params(OVER_A_NETWORK))
def test_a_commit_that_could_not_be_sent_is_no_success(driver: Driver, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(driver.server)

    async def work(module: Any, connection: Any) -> None:
        wire = wire_for(connection, driver.world)
        with pytest.raises(Exception, match=r"(?i)lost|gone|closed|terminat"):
            await guarded(module, connection, f"unsent {time.time_ns()}", lambda: cut(wire, url))

    connected(driver, url, work)


@pytest.mark.server
@pytest.mark.parametrize("name", ["psycopg async", "aiomysql", "asyncmy"])
def test_a_wait_for_a_lock_that_is_cancelled_ends_as_cancelled(name: str, request: pytest.FixtureRequest) -> None:
    driver = DRIVERS[name]
    url = request.getfixturevalue(driver.server)

    async def work(module: Any, connection: Any) -> None:
        lock = f"waited for {time.time_ns()}"
        holder = {"postgresql": plain_postgresql, "mariadb": plain_mysql}[driver.server](url)
        sql.create_table(holder)
        holder.cursor().execute("BEGIN")
        sql.lock(holder, lock)
        await settle(connection.rollback())

        async def wait() -> None:
            await sql_aio.lock(connection, lock, timeout=SECONDS)

        waiting = asyncio.create_task(wait())
        try:
            async with asyncio.timeout(0.3):
                await asyncio.shield(waiting)
        except TimeoutError:
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        holder.close()

    connected(driver, url, work)
