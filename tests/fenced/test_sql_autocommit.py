"""Autocommit in every spelling: a seal that would be committed by itself guards nothing, and is refused."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import fenced, sql
from holdfast.databases.connections import ASYNCIO, THREADS, wire_for
from holdfast.databases.wire import settle
from holdfast.drivers.base import finish
from holdfast.errors import Misuse
from holdfast.fenced import aio
from holdfast.fenced.mark import Mark
from holdfast.fenced.sql.place import Place
from holdfast.sql import aio as sql_aio

from .sql_drivers import DRIVERS, Driver, _engine_url, _mysql, close_with_async_engine, close_with_engine
from .sql_under_test import OneLoop

NEW = sys.version_info >= (3, 12)  # sqlite3's autocommit=


def sqlite_by_hand(url: str) -> Any:
    options: Any = {"autocommit": True}
    return sqlite3.connect(url, timeout=30, check_same_thread=False, **options)


async def aiosqlite_with(url: str, **options: Any) -> Any:
    import aiosqlite

    return await aiosqlite.connect(url, timeout=30, **options)


def pymysql(url: str) -> Any:
    import pymysql

    return pymysql.connect(database="holdfast", autocommit=True, **_mysql(url))


async def psycopg_async(url: str) -> Any:
    import psycopg

    return await psycopg.AsyncConnection.connect(url, autocommit=True)


async def aiomysql(url: str) -> Any:
    import aiomysql

    return await aiomysql.connect(db="holdfast", autocommit=True, **_mysql(url))


def engine(driver: str, kind: str = "connection", then: dict[str, Any] | None = None, **options: Any) -> Driver:
    """`then`: execution options of the engine."""
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
    from sqlalchemy.orm import Session

    server = "postgresql" if "pg" in driver else "mariadb" if "my" in driver else "sqlite_file"
    asynchronous = driver in ("asyncpg", "aiosqlite", "aiomysql")

    def connect(url: str) -> Any:
        from sqlalchemy import create_engine

        made: Any = (create_async_engine if asynchronous else create_engine)(_engine_url(url, driver), **options)
        made = made.execution_options(**then) if then else made
        if kind == "session":
            session = AsyncSession(made) if asynchronous else Session(made)
            return session if not asynchronous else _given(session)
        return made.connect() if not asynchronous else made.connect().start()

    close = close_with_async_engine if asynchronous else close_with_engine
    return Driver(server, ASYNCIO if asynchronous else THREADS, connect, close)


async def _given(thing: Any) -> Any:
    return thing


SPELLINGS: dict[str, Driver] = {
    "isolation_level, psycopg": engine("psycopg", isolation_level="AUTOCOMMIT"),
    "isolation_level in lower case, psycopg": engine("psycopg", isolation_level="autocommit"),
    "execution option of the engine, psycopg": engine("psycopg", then={"isolation_level": "autocommit"}),
    "the driver's own option, psycopg": engine("psycopg", connect_args={"autocommit": True}),
    "the driver's own option, psycopg, Session": engine("psycopg", "session", connect_args={"autocommit": True}),
    "isolation_level in lower case, asyncpg": engine("asyncpg", isolation_level="autocommit"),
    "isolation_level in lower case, asyncpg, AsyncSession": engine("asyncpg", "session", isolation_level="autocommit"),
    "the driver's own option, pymysql": engine("pymysql", connect_args={"autocommit": True}),
    "the first command, pymysql": engine(
        "pymysql", connect_args={"autocommit": None, "init_command": "SET autocommit=1"}
    ),
    "the first command, pymysql, Session": engine(
        "pymysql", "session", connect_args={"autocommit": None, "init_command": "SET autocommit=1"}
    ),
    "the driver's own option, aiomysql": engine("aiomysql", connect_args={"autocommit": True}),
    "isolation_level in lower case, pysqlite": engine("pysqlite", isolation_level="autocommit"),
    "the driver's own option, pysqlite": engine("pysqlite", connect_args={"isolation_level": None}),
    "the driver's own option, aiosqlite": engine("aiosqlite", connect_args={"isolation_level": None}),
}
BARE: dict[str, Driver] = {
    "sqlite3": DRIVERS["sqlite3"],
    "aiosqlite": Driver("sqlite_file", ASYNCIO, lambda url: aiosqlite_with(url, isolation_level=None)),
    "psycopg": DRIVERS["psycopg autocommit"],
    "psycopg async": Driver("postgresql", ASYNCIO, psycopg_async),
    "asyncpg": DRIVERS["asyncpg"],
    "pymysql": Driver("mariadb", THREADS, pymysql),
    "aiomysql": Driver("mariadb", ASYNCIO, aiomysql, lambda connection: connection.ensure_closed()),
    "django sqlite": DRIVERS["django sqlite"],
    "django postgresql": DRIVERS["django postgresql"],
    "django mysql": DRIVERS["django mysql"],
}
FOUND_OUT_AFTERWARDS: dict[str, Driver] = {}
if NEW:
    BARE["sqlite3 autocommit=True"] = Driver("sqlite_file", THREADS, sqlite_by_hand)
    # aiosqlite's connection would tell it beforehand, but only in a thread of its own.
    FOUND_OUT_AFTERWARDS["aiosqlite autocommit=True"] = Driver(
        "sqlite_file", ASYNCIO, lambda url: aiosqlite_with(url, autocommit=True)
    )


def params(drivers: dict[str, Driver], but: str = "") -> list[Any]:
    return [
        pytest.param(driver, id=name, marks=() if driver.server == "sqlite_file" else pytest.mark.server)
        for name, driver in drivers.items()
        if driver.server != but
    ]


def connected(driver: Driver, url: str, work: Callable[[Any, Any], Coroutine[Any, Any, None]]) -> None:
    """`work` gets the module to use and a connection. In the world where the driver lives."""

    async def all_of_it(module: Any) -> None:
        plain = {"sqlite_file": "sqlite3", "postgresql": "asyncpg" if module is aio else "psycopg"}
        if driver.server in plain and (driver.server == "postgresql" or module is fenced):
            other = DRIVERS[plain[driver.server]]
        else:
            other = DRIVERS[
                "aiosqlite" if driver.server == "sqlite_file" else "pymysql" if module is fenced else "aiomysql"
            ]
        setup = await settle(other.connect(url))
        await settle(module.create_table(setup))
        await settle(other.close(setup))
        connection = await settle(driver.connect(url))
        try:
            await work(module, connection)
        finally:
            await settle(driver.close(connection))

    if driver.world == THREADS:
        finish(all_of_it(fenced))
        return
    loop = OneLoop()
    try:
        loop(all_of_it(aio))
    finally:
        loop.close()


@pytest.mark.parametrize("driver", params({**BARE, **SPELLINGS, **FOUND_OUT_AFTERWARDS}))
def test_a_seal_outside_of_a_transaction_is_refused(driver: Driver, request: pytest.FixtureRequest) -> None:
    async def work(module: Any, connection: Any) -> None:
        with pytest.raises(Misuse, match="no transaction is open"):
            await settle(module.seal(connection, (f"outside {time.time_ns()}", 1)))

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.parametrize("driver", params(BARE))
def test_a_seal_that_is_refused_leaves_no_mark(driver: Driver, request: pytest.FixtureRequest) -> None:
    """Where the driver says beforehand that it would be committed by itself."""

    async def work(module: Any, connection: Any) -> None:
        wire, mark = wire_for(connection, driver.world), Mark(f"unmarked {time.time_ns()}", 1)
        with pytest.raises(Misuse):
            await settle(module.seal(connection, mark))
        assert await wire.row(Place(mark, None, wire.dialect, wire.style).look) is None

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.parametrize("driver", params(SPELLINGS))
def test_a_transaction_that_would_be_none_is_refused(driver: Driver, request: pytest.FixtureRequest) -> None:
    async def work(module: Any, connection: Any) -> None:
        entered = False
        with pytest.raises(Misuse, match="AUTOCOMMIT mode"):
            if module is aio:
                async with aio.transaction(connection, (f"none {time.time_ns()}", 1)):
                    entered = True
            else:
                with fenced.transaction(connection, (f"none {time.time_ns()}", 1)):
                    entered = True
        assert not entered

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.parametrize("driver", params(SPELLINGS, but="sqlite_file"))
@pytest.mark.parametrize("timeout", [0, 5, None])
def test_a_lock_of_a_transaction_that_is_none_is_refused(
    driver: Driver, timeout: float | None, request: pytest.FixtureRequest
) -> None:
    async def work(module: Any, connection: Any) -> None:
        locks = sql_aio if module is aio else sql
        if driver.server == "mariadb":
            await settle(locks.create_table(connection))
            await settle(connection.rollback())
        with pytest.raises(Misuse, match="no transaction is open"):
            await settle(locks.lock(connection, f"none {time.time_ns()}", timeout=timeout))
        await settle(connection.rollback())
        with pytest.raises(Misuse, match="no transaction is open"):
            await settle(locks.lock_row(connection, "holdfast_fences", {"token": 1}, timeout=timeout))

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.parametrize("name", ["sqlite3 legacy", *[one for one in DRIVERS if one.startswith("sqlalchemy")]])
@pytest.mark.server
def test_a_seal_may_begin_the_transaction_where_statements_do(name: str, request: pytest.FixtureRequest) -> None:
    driver = DRIVERS[name]

    async def work(module: Any, connection: Any) -> None:
        await settle(module.seal(connection, (f"begins {time.time_ns()}", 1)))
        await settle(connection.rollback())

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.server
def test_a_transaction_that_an_event_began_is_not_enough_on_mysql(mariadb: str) -> None:
    """A deadlock undoes the whole of it, and what follows would be committed statement by statement."""
    from sqlalchemy import create_engine, event

    made = create_engine(_engine_url(mariadb, "pymysql"), connect_args={"autocommit": True})
    event.listen(made, "begin", lambda connection: connection.exec_driver_sql("START TRANSACTION") and None)
    connection = made.connect()
    with pytest.raises(Misuse, match="AUTOCOMMIT mode"), fenced.transaction(connection, ("begun", 1)):
        pytest.fail("let in")
    connection.close()
    made.dispose()
