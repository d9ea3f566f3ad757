"""A transaction that was ended inside of the guarded block: noticed on every driver, and nothing more is kept."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from holdfast import fenced
from holdfast.databases.connections import wire_for
from holdfast.databases.statements import Statement
from holdfast.databases.wire import Wire, settle
from holdfast.errors import Misuse
from holdfast.fenced import aio

from .sql_drivers import DRIVERS, Driver
from .test_sql_autocommit import connected, params

# After a COMMIT in the user's own words these commit each statement by itself: what comes later cannot be undone by anybody.
# (PostgreSQL never ends a transaction by itself.)
COMMITS_ON = [
    DRIVERS[name]
    for name in (
        "psycopg autocommit",
        "asyncpg",
        "sqlalchemy AsyncConnection asyncpg",
        "sqlalchemy AsyncSession asyncpg",
    )
]


async def aiosqlite_autocommit(url: str) -> Any:
    import aiosqlite

    return await aiosqlite.connect(url, timeout=30, isolation_level=None)


async def asyncmy_autocommit(url: str) -> Any:
    connection = await settle(DRIVERS["asyncmy"].connect(url))
    await connection.autocommit(True)
    return connection


async def aiomysql_autocommit(url: str) -> Any:
    connection = await settle(DRIVERS["aiomysql"].connect(url))
    await connection.autocommit(True)
    return connection


def begun_by_an_event(driver: Driver) -> Driver:
    """As SQLAlchemy's documentation says it for savepoints of SQLite: the driver in autocommit, and BEGIN by hand."""

    def connect(url: str) -> Any:
        from sqlalchemy import event

        connection = driver.connect(url)
        engine = connection.get_bind() if hasattr(connection, "get_bind") else connection.engine
        connection.close()
        engine.dispose()
        event.listen(engine, "connect", lambda driver, _: setattr(driver, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN") and None)
        return connection if hasattr(connection, "get_bind") else engine.connect()

    return driver._replace(connect=connect)


ALL = {
    **DRIVERS,
    "sqlalchemy sqlite, begun by an event": begun_by_an_event(DRIVERS["sqlalchemy sqlite"]),
    "sqlalchemy Session sqlite, begun by an event": begun_by_an_event(DRIVERS["sqlalchemy Session sqlite"]),
    "aiosqlite autocommit": DRIVERS["aiosqlite"]._replace(connect=aiosqlite_autocommit),
    "asyncmy autocommit": DRIVERS["asyncmy"]._replace(connect=asyncmy_autocommit),
    "aiomysql autocommit": DRIVERS["aiomysql"]._replace(connect=aiomysql_autocommit),
}
TABLE = "CREATE TABLE IF NOT EXISTS ended (name VARCHAR(64), step VARCHAR(16))"
ON_MYSQL = {name: driver for name, driver in DRIVERS.items() if driver.server == "mariadb"}


def said(text: str) -> Statement:
    return Statement(text, (), {})


def insert(name: str, step: str) -> Statement:
    return said(f"INSERT INTO ended VALUES ('{name}', '{step}')")  # noqa: S608  # names are ours


async def guarded(module: Any, connection: Any, resource: str, steps: Any, token: int = 1) -> None:
    if module is aio:
        async with aio.transaction(connection, (resource, token)):
            await steps()
    else:
        with fenced.transaction(connection, (resource, token)):
            await steps()


async def found(wire: Wire, connection: Any, name: str) -> list[object]:
    rows = await wire.rows(said(f"SELECT step FROM ended WHERE name = '{name}' ORDER BY step"))  # noqa: S608
    if hasattr(connection, "rollback") and not hasattr(connection, "vendor"):
        await settle(connection.rollback())
    return [row[0] for row in rows]


async def table(connection: Any, wire: Wire) -> None:
    try:
        await wire.begin(said(TABLE))
    except Exception as error:  # "already exists", says a driver that raises warnings
        await wire.end(error)
    else:
        await wire.end(None)


@pytest.mark.filterwarnings("ignore")  # MariaDB warns that the table exists
@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("driver", params(ALL))
def test_a_transaction_ended_by_a_statement_is_noticed(
    driver: Driver, ending: str, request: pytest.FixtureRequest
) -> None:
    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, driver.world), f"ended {time.time_ns()}"
        await table(connection, wire)
        standalone = wire.standalone()

        async def steps() -> None:
            await wire.run(insert(name, "before"))
            await wire.run(said(ending))
            if driver not in COMMITS_ON:
                await wire.run(insert(name, "later"))

        with pytest.raises(Misuse, match="ended inside"):
            await guarded(module, connection, name, steps)
        assert await found(wire, connection, name) == (["before"] if ending == "COMMIT" else [])

        async def good() -> None:
            await wire.run(insert(name, "good"))

        await guarded(module, connection, name, good)  # the connection is as good as ever
        assert "good" in await found(wire, connection, name)
        assert wire_for(connection, driver.world).standalone() == standalone

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "driver",
    params({name: one for name, one in DRIVERS.items() if "psycopg" not in name.split()[0] and name != "asyncpg"}),
)
def test_the_connections_own_commit_is_noticed(driver: Driver, request: pytest.FixtureRequest) -> None:
    """psycopg forbids it by itself, and asyncpg has none."""

    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, driver.world), f"own {time.time_ns()}"
        await table(connection, wire)

        async def steps() -> None:
            await wire.run(insert(name, "before"))
            if hasattr(connection, "vendor"):
                connection.connection.commit()  # Django's own commit() is refused in `atomic`
            else:
                await settle(connection.commit())
            if driver not in COMMITS_ON:
                await wire.run(insert(name, "later"))

        with pytest.raises(Misuse, match="ended inside"):
            await guarded(module, connection, name, steps)
        assert await found(wire, connection, name) == ["before"]

    connected(driver, request.getfixturevalue(driver.server), work)


ON_SQLITE = {name: one for name, one in ALL.items() if one.server == "sqlite_file"}
# What Python's driver does not take for a change, and does not begin a transaction for.
WITH = "WITH one AS (SELECT 1) INSERT INTO ended SELECT '{name}', 'later' FROM one"
CREATE = "CREATE TABLE ended_{number} (id INTEGER)"


@pytest.mark.parametrize(
    ("driver", "later"),
    [
        pytest.param(driver, "INSERT INTO ended VALUES ('{name}', 'later')", id=name)
        for name, driver in ON_SQLITE.items()
    ]
    + [
        pytest.param(driver, later, id=f"{name} {later[:6].strip()}")
        for name, driver in ON_SQLITE.items()
        if name.startswith(("sqlalchemy", "django"))
        for later in (WITH, CREATE)
    ],
)
def test_who_overlooks_that_sqlite_ended_the_transaction_changes_nothing_more(
    driver: Driver, later: str, request: pytest.FixtureRequest
) -> None:
    """As it does by itself when the disk is full."""

    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, driver.world), f"overlooked {time.time_ns()}"
        await table(connection, wire)
        await wire.begin(said("CREATE UNIQUE INDEX IF NOT EXISTS steps ON ended (name, step)"))
        await wire.end(None)

        async def steps() -> None:
            await wire.run(insert(name, "before"))
            with pytest.raises(Exception, match="UNIQUE"):
                await wire.run(said(f"INSERT OR ROLLBACK INTO ended VALUES ('{name}', 'before')"))  # noqa: S608
            await wire.run(said(later.format(name=name, number=number)))

        number = time.time_ns()
        with pytest.raises(Misuse, match="ended inside"):
            await guarded(module, connection, name, steps)
        assert await found(wire, connection, name) == []
        made = await wire.rows(said(f"SELECT 1 FROM sqlite_master WHERE name = 'ended_{number}'"))  # noqa: S608
        assert made == []
        if hasattr(connection, "rollback") and not hasattr(connection, "vendor"):
            await settle(connection.rollback())
        await wire.begin(said("DROP INDEX steps"))
        await wire.end(None)

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.server
def test_a_stale_holder_that_overlooks_a_deadlock_changes_nothing_more(mariadb: str) -> None:
    """MySQL undoes the whole transaction of a deadlock's victim, and lets go of the mark with it."""
    connect = DRIVERS["pymysql FOUND_ROWS"].connect
    stale, rival = connect(mariadb), connect(mariadb)
    name = f"deadlock {time.time_ns()}"

    def say(connection: Any, text: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall()

    fenced.create_table(stale)
    say(stale, "DROP TABLE IF EXISTS embraced")
    say(stale, "CREATE TABLE embraced (id INT PRIMARY KEY, state VARCHAR(16))")
    say(stale, "INSERT INTO embraced VALUES (1, 'old'), (2, 'old'), (3, 'old')")
    say(rival, "START TRANSACTION")
    for number in range(10, 60):  # whoever has changed less is the victim
        say(rival, f"INSERT INTO embraced VALUES ({number}, 'many')")  # noqa: S608
    say(rival, "UPDATE embraced SET state = 'rival' WHERE id = 2")
    with pytest.raises(Misuse, match="ended inside"), fenced.transaction(stale, (name, 5)):
        say(stale, "UPDATE embraced SET state = 'stale' WHERE id = 1")
        waiting = threading.Thread(target=say, args=(rival, "UPDATE embraced SET state = 'rival' WHERE id = 1"))
        waiting.start()
        with pytest.raises(Exception, match="Deadlock"):
            say(stale, "UPDATE embraced SET state = 'stale' WHERE id = 2")
        waiting.join(30)
        rival.commit()
        with fenced.transaction(rival, (name, 6)):
            say(rival, "UPDATE embraced SET state = 'newer' WHERE id = 3")
        say(stale, "UPDATE embraced SET state = 'stale' WHERE id = 3")
    assert say(rival, "SELECT state FROM embraced WHERE id < 4 ORDER BY id") == (("rival",), ("rival",), ("newer",))
    say(stale, "UPDATE embraced SET state = 'by itself' WHERE id = 1")  # its autocommit is back
    assert say(rival, "SELECT state FROM embraced WHERE id = 1") == (("by itself",),)
    say(rival, "DROP TABLE embraced")
    stale.close()
    rival.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("driver", params(ON_MYSQL))
def test_a_table_created_inside_commits_on_mysql_and_is_noticed(driver: Driver, request: pytest.FixtureRequest) -> None:
    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, driver.world), f"created_{time.time_ns()}"

        async def steps() -> None:
            await wire.run(said(f"CREATE TABLE {name} (id INT)"))

        with pytest.raises(Misuse, match="ended inside"):
            await guarded(module, connection, name, steps)
        await wire.begin(said(f"DROP TABLE {name}"))
        await wire.end(None)

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("driver", params(DRIVERS))
def test_savepoints_of_ones_own_go_on_working_inside(driver: Driver, request: pytest.FixtureRequest) -> None:
    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, driver.world), f"nested {time.time_ns()}"
        await table(connection, wire)

        async def steps() -> None:
            await wire.run(said("SAVEPOINT mine"))
            await wire.run(insert(name, "undone"))
            await wire.run(said("ROLLBACK TO SAVEPOINT mine"))
            await wire.run(insert(name, "kept"))

        await guarded(module, connection, name, steps)
        assert await found(wire, connection, name) == ["kept"]

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.parametrize("driver", params(ALL))
def test_who_is_entered_twice_stays_entered_once(driver: Driver, request: pytest.FixtureRequest) -> None:
    """One that is refused must not end what it found begun."""

    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, driver.world), f"twice {time.time_ns()}"
        await table(connection, wire)
        guard = module.transaction(connection, (name, 5))
        enter, leave = (guard.__aenter__, guard.__aexit__) if module is aio else (guard.__enter__, guard.__exit__)
        await settle(enter())
        with pytest.raises(Misuse, match="open already"):
            await settle(enter())
        await wire.run(insert(name, "undone"))
        await settle(leave(KeyError, KeyError("what the block raised"), None))
        assert await found(wire, connection, name) == []

    connected(driver, request.getfixturevalue(driver.server), work)


@pytest.mark.server
@pytest.mark.parametrize("what", ["close", "swallow"])
@pytest.mark.parametrize("name", ["django sqlite", "django postgresql", "django mysql"])
def test_what_django_would_roll_back_without_a_word_is_told(
    name: str, what: str, request: pytest.FixtureRequest
) -> None:
    from django.db import transaction

    connection = DRIVERS[name].connect(request.getfixturevalue(DRIVERS[name].server))
    fenced.create_table(connection)
    ticket = f"told {time.time_ns()}", 1

    def undo() -> None:
        if what == "close":
            connection.close()
            return
        with pytest.raises(KeyError), transaction.mark_for_rollback_on_error(using=connection.alias):
            raise KeyError("as a failed save() does")

    with pytest.raises(Misuse, match="ended inside"), fenced.transaction(connection, ticket):
        undo()
    with fenced.transaction(connection, ticket):
        transaction.set_rollback(True, using=connection.alias)  # said aloud, it is no error
    with fenced.transaction(connection, ticket):
        pass
    connection.close()


def test_what_is_called_on_commit_is_outside(sqlite_file: str) -> None:
    from django.db import transaction

    connection, called = DRIVERS["django sqlite"].connect(sqlite_file), []

    def later() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            called.append(cursor.fetchone())
        with fenced.transaction(connection, (f"after commit {time.time_ns()}", 1)):  # a task that is done at once, say
            called.append(("fenced",))

    fenced.create_table(connection)
    try:
        with fenced.transaction(connection, (f"on commit {time.time_ns()}", 1)):
            transaction.on_commit(later, using=connection.alias)
            with pytest.raises(Misuse, match="open already"), fenced.transaction(connection, ("y", 1)):
                pytest.fail("let in")
    finally:
        left = connection.execute_wrappers[:]
        connection.execute_wrappers.clear()
    assert called == [(1,), ("fenced",)]
    assert left == []
    connection.close()


@pytest.mark.server
@pytest.mark.parametrize("name", [name for name, driver in DRIVERS.items() if driver.server == "postgresql"])
def test_an_error_that_was_swallowed_inside_is_not_told_as_success(name: str, request: pytest.FixtureRequest) -> None:
    """PostgreSQL answers to the COMMIT of a failed transaction with a rollback, and calls it a success."""
    driver = DRIVERS[name]

    async def work(module: Any, connection: Any) -> None:
        wire = wire_for(connection, driver.world)

        async def steps() -> None:
            with pytest.raises(Exception, match="division"):
                await wire.run(said("SELECT 1 / 0"))

        with pytest.raises(Exception, match="aborted"):
            await guarded(module, connection, f"swallowed {time.time_ns()}", steps)

    connected(driver, request.getfixturevalue(driver.server), work)
