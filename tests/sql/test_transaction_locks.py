"""Locks of a transaction, on real servers and through every kind of driver."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import sql
from holdfast.errors import Misuse, NotAcquired, Unavailable, Unsupported
from holdfast.sql import aio
from holdfast.sql.core import advisory_key
from holdfast.testing import servers

pytestmark = pytest.mark.server


def _mysql(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {"host": parts.hostname, "port": parts.port, "user": parts.username}


def pymysql(url: str) -> Any:
    import pymysql

    return pymysql.connect(database="holdfast", ssl_disabled=True, **_mysql(url))


def psycopg(url: str) -> Any:
    import psycopg

    return psycopg.connect(url)


def engine(url: str) -> Any:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool  # what is closed is closed

    driver = url.replace("postgresql:", "postgresql+psycopg:").replace("mysql:", "mysql+pymysql:")
    return create_engine(driver, poolclass=NullPool)


def alchemy(url: str) -> Any:
    return engine(url).connect()


def session(url: str) -> Any:
    from sqlalchemy.orm import Session

    return Session(engine(url))


KINDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "psycopg": ("postgresql", psycopg),
    "pymysql": ("mariadb", pymysql),
    "sqlalchemy psycopg": ("postgresql", alchemy),
    "sqlalchemy pymysql": ("mariadb", alchemy),
    "sqlalchemy Session": ("postgresql", session),
}
TEXT = {"key": "SHOW lock_timeout", "maria": "SELECT @@SESSION.innodb_lock_wait_timeout"}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with (
        servers.start("postgresql", "-c", "fsync=off") as postgresql,
        servers.start("mariadb", "--innodb-flush-log-at-trx-commit=0") as mariadb,
    ):
        found = {"postgresql": postgresql.url, "mariadb": mariadb.url}
        for kind, connect in (("postgresql", psycopg), ("mariadb", pymysql)):
            connection = connect(found[kind])
            sql.create_table(connection)
            cursor = connection.cursor()
            cursor.execute("CREATE TABLE accounts (id INT PRIMARY KEY, balance INT)")
            cursor.execute("INSERT INTO accounts VALUES (1, 100), (2, 100), (3, 100)")
            connection.commit()
            connection.close()
        yield found


@pytest.fixture(params=KINDS)
def two(request: pytest.FixtureRequest, urls: dict[str, str]) -> Iterator[tuple[Any, Any]]:
    server, connect = KINDS[request.param]
    one, other = connect(urls[server]), connect(urls[server])
    yield one, other
    for connection in (one, other):
        connection.rollback()
        connection.close()


def patience(connection: Any) -> object:
    """What the connection's own limit is."""
    maria = "mysql" in str(type(connection)) or getattr(getattr(connection, "dialect", None), "name", "") in (
        "mysql",
        "mariadb",
    )
    statement = TEXT["maria" if maria else "key"]
    if hasattr(connection, "dialect") or hasattr(connection, "get_bind"):
        from sqlalchemy import text

        return connection.execute(text(statement)).fetchone()[0]
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_a_lock_is_held_until_its_transaction_ends(two: tuple[Any, Any]) -> None:
    one, other = two
    sql.lock(one, "account:42")
    sql.lock(one, "account:42")  # again: it is ours
    with pytest.raises(NotAcquired) as refused:
        sql.lock(other, "account:42", timeout=0)
    assert "'account:42'" in str(refused.value)
    assert refused.value.name == "account:42"
    sql.lock(other, "account:43", timeout=0)  # another name; and the transaction is still good
    one.commit()
    sql.lock(other, "account:42", timeout=5)
    other.rollback()
    sql.lock(one, "account:42", timeout=5)


def test_a_wait_that_runs_out_leaves_the_transaction_and_the_users_own_limit_as_they_were(two: tuple[Any, Any]) -> None:
    one, other = two
    before = patience(other)
    sql.lock(one, "x")
    started = time.monotonic()
    with pytest.raises(NotAcquired, match=r"within 0\.3 s"):
        sql.lock(other, "a", "x", timeout=0.3)
    assert 0.25 < time.monotonic() - started < 15
    assert patience(other) == before
    one.rollback()
    sql.lock(other, "a", "x", timeout=5)
    assert patience(other) == before


def test_a_waiter_gets_it_when_the_other_commits(two: tuple[Any, Any]) -> None:
    one, other = two
    before = patience(other)
    sql.lock(one, "x")
    got: list[float] = []

    def wait() -> None:
        sql.lock(other, "x", timeout=30)
        got.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    assert not got
    committed = time.monotonic()
    one.commit()
    thread.join(30)
    assert got[0] >= committed
    assert patience(other) == before


def test_rows_are_locked_skipped_or_refused(two: tuple[Any, Any]) -> None:
    one, other = two
    assert sql.lock_row(one, "accounts", {"id": 1}) == (1, 100)
    assert sql.lock_row(other, "accounts", {"id": 1}, skip_locked=True) is None
    for how in ({"nowait": True}, {"timeout": 0}, {"timeout": 0.2}):
        with pytest.raises(NotAcquired, match="accounts"):
            sql.lock_row(other, "accounts", {"id": 1}, **how)
    assert sql.lock_row(other, "accounts", {"id": 2}, nowait=True) == (2, 100)
    one.rollback()
    assert sql.lock_rows(other, "accounts", {"id": 3}, {"id": 1}, timeout=5) == [(3, 100), (1, 100)]


def test_two_transfers_in_opposite_directions_do_not_deadlock(two: tuple[Any, Any]) -> None:
    failures: list[Exception] = []

    def transfer(connection: Any, *accounts: int) -> None:
        try:
            for _ in range(15):
                sql.lock(connection, *(f"transfer:{account}" for account in accounts), timeout=30)
                sql.lock_rows(connection, "accounts", *({"id": account} for account in accounts), timeout=30)
                connection.commit()
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=transfer, args=(two[0], 1, 2, 3)),
        threading.Thread(target=transfer, args=(two[1], 3, 2, 1)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


@pytest.mark.parametrize("kind", ["psycopg", "pymysql"])
def test_a_deadlock_of_ones_own_is_retried(urls: dict[str, str], kind: str) -> None:
    server, connect = KINDS[kind]
    barrier = threading.Barrier(2)
    runs: list[int] = []
    failures: list[Exception] = []

    @sql.retrying(attempts=20)
    def transfer(connection: Any, first: int, second: int) -> None:
        runs.append(first)
        try:
            sql.lock_row(connection, "accounts", {"id": first})
            if len(runs) <= 2:
                barrier.wait(20)  # both have their first: now they must collide
            sql.lock_row(connection, "accounts", {"id": second})
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def run(first: int, second: int) -> None:
        connection = connect(urls[server])
        try:
            transfer(connection, first, second)
        except Exception as error:
            failures.append(error)
        connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(runs) >= 3


def test_who_keeps_colliding_is_told_and_other_errors_come_through() -> None:
    class Deadlock(Exception):
        sqlstate = "40P01"

    calls: list[int] = []

    @sql.retrying(attempts=3, pause=0.001)
    def collide() -> None:
        calls.append(1)
        raise Deadlock

    with pytest.raises(Unavailable, match="undone 3 times") as gave_up:
        collide()
    assert isinstance(gave_up.value.__cause__, Deadlock)
    assert len(calls) == 3

    for number in (1213, 1020, "40P01"):  # of the user's own, though a database knows it as well

        @sql.retrying
        async def break_down(number: object = number) -> None:
            calls.append(1)
            raise KeyError(number)

        with pytest.raises(KeyError):
            asyncio.run(break_down())
    assert len(calls) == 6
    with pytest.raises(Misuse):
        sql.retrying(attempts=0)


@pytest.mark.parametrize("kind", ["psycopg", "pymysql"])
def test_outside_a_transaction_it_is_refused(urls: dict[str, str], kind: str) -> None:
    server, connect = KINDS[kind]
    connection = connect(urls[server])
    connection.autocommit(True) if kind == "pymysql" else setattr(connection, "autocommit", True)
    with pytest.raises(Misuse, match="no transaction is open"):
        sql.lock(connection, "x")
    with pytest.raises(Misuse, match="no transaction is open"):
        sql.lock_row(connection, "accounts", {"id": 1})
    connection.close()


def test_sqlite_says_what_to_do_instead() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(Unsupported, match="BEGIN IMMEDIATE"):
        sql.lock(connection, "x")
    connection.close()


def test_bad_input_is_refused(two: tuple[Any, Any]) -> None:
    one, _ = two
    attempts: tuple[Callable[[], object], ...] = (
        lambda: sql.lock(one),
        lambda: sql.lock(one, ""),
        lambda: sql.lock(one, "x", timeout=-1),
        lambda: sql.lock_row(one, "accounts", {}),
        lambda: sql.lock_row(one, "accounts", {"id": None}),
        lambda: sql.lock_row(one, "accounts", {"id": 1}, nowait=True, skip_locked=True),
        lambda: sql.lock_row(one, "", {"id": 1}),
        lambda: sql.lock(object(), "x"),
    )
    for attempt in attempts:
        with pytest.raises(Misuse):
            attempt()
    with pytest.raises(Exception, match="exist"):
        sql.lock_row(one, 'accounts"; DROP TABLE accounts', {"id": 1})
    one.rollback()
    assert sql.lock_row(one, "accounts", {"id": 1}) is not None


def test_keys_depend_on_the_whole_name_and_fit_into_64_bits() -> None:
    names = [f"account:{number}" for number in range(10_000)] + ["a", "A", "a "]
    keys = {advisory_key(name) for name in names}
    assert len(keys) == len(names)
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert advisory_key("account:42") == advisory_key("account:42")


def test_without_its_table_mysql_says_what_to_create(urls: dict[str, str]) -> None:
    assert "holdfast_transaction_locks" in sql.schema("mysql")
    assert sql.schema("postgresql") == ""
    connection = pymysql(urls["mariadb"])
    cursor = connection.cursor()
    sql.lock(connection, "forgotten soon")
    connection.commit()
    sql.tidy(connection)
    connection.commit()
    cursor.execute("SELECT COUNT(*) FROM holdfast_transaction_locks")
    assert cursor.fetchone() == (0,)
    cursor.execute("DROP TABLE holdfast_transaction_locks")
    try:
        with pytest.raises(Misuse, match="create_table"):
            sql.lock(connection, "x")
    finally:
        connection.rollback()
        sql.create_table(connection)
        connection.close()


async def _psycopg_async(url: str) -> Any:
    import psycopg

    return await psycopg.AsyncConnection.connect(url)


async def _asyncmy(url: str) -> Any:
    import asyncmy

    return await asyncmy.connect(db="holdfast", **_mysql(url))


@pytest.mark.parametrize(("server", "connect"), [("postgresql", _psycopg_async), ("mariadb", _asyncmy)])
def test_in_asyncio_the_same(urls: dict[str, str], server: str, connect: Callable[[str], Any]) -> None:
    async def main() -> None:
        one, other = await connect(urls[server]), await connect(urls[server])
        with pytest.raises(Misuse, match=r"holdfast\.sql\.aio"):
            sql.lock(one, "x")
        await aio.lock(one, "x", "y")
        for timeout in (0, 0.2):
            with pytest.raises(NotAcquired):
                await aio.lock(other, "x", timeout=timeout)
        waiting = asyncio.create_task(aio.lock(other, "y", "x", timeout=20))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await one.commit()
        await waiting
        assert await aio.lock_row(other, "accounts", {"id": 1}) == (1, 100)
        assert await aio.lock_row(one, "accounts", {"id": 1}, skip_locked=True) is None
        with pytest.raises(NotAcquired):
            await aio.lock_row(one, "accounts", {"id": 1}, nowait=True)
        await other.rollback()
        await one.rollback()
        for connection in (one, other):
            await (connection.close() if server == "postgresql" else connection.ensure_closed())

    asyncio.run(main())


def test_django_inside_atomic_only(urls: dict[str, str]) -> None:
    from django import setup
    from django.conf import settings
    from django.db import connections, transaction

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        setup()
    parts = urlsplit(urls["postgresql"])
    connections.settings["locked"] = {
        **connections.settings["default"],
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
    }
    connection = connections["locked"]
    other = psycopg(urls["postgresql"])
    try:
        with pytest.raises(Misuse, match="no transaction is open"):
            sql.lock(connection, "x")
        with transaction.atomic(using="locked"):
            sql.lock(connection, "x")
            with pytest.raises(NotAcquired):
                sql.lock(other, "x", timeout=0)
            other.rollback()
        sql.lock(other, "x", timeout=5)
        with transaction.atomic(using="locked"):
            with pytest.raises(NotAcquired):
                sql.lock(connection, "x", timeout=0.2)
            assert sql.lock_row(connection, "accounts", {"id": 1}) == (1, 100)
    finally:
        connection.close()
        other.close()
