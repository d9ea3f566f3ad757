"""A transaction that was ended inside of the guarded block: noticed on every driver, and nothing more is kept."""

from __future__ import annotations

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

# After a COMMIT of the user's these commit each statement by itself: what comes later cannot be undone by anybody.
COMMITS_ON = [
    DRIVERS[name] for name in ("django sqlite", "sqlalchemy AsyncConnection asyncpg", "sqlalchemy AsyncSession asyncpg")
]
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
@pytest.mark.parametrize("driver", params(DRIVERS))
def test_a_transaction_ended_by_a_statement_is_noticed(
    driver: Driver, ending: str, request: pytest.FixtureRequest
) -> None:
    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, driver.world), f"ended {time.time_ns()}"
        await table(connection, wire)

        async def steps() -> None:
            await wire.run(insert(name, "before"))
            await wire.run(said(ending))
            if not wire.standalone() and driver not in COMMITS_ON:
                await wire.run(insert(name, "later"))

        with pytest.raises(Misuse, match="ended inside"):
            await guarded(module, connection, name, steps)
        assert await found(wire, connection, name) == (["before"] if ending == "COMMIT" else [])

        async def good() -> None:
            await wire.run(insert(name, "good"))

        await guarded(module, connection, name, good)  # the connection is as good as ever
        assert "good" in await found(wire, connection, name)

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
            if not wire.standalone() and driver not in COMMITS_ON:
                await wire.run(insert(name, "later"))

        with pytest.raises(Misuse, match="ended inside"):
            await guarded(module, connection, name, steps)
        assert await found(wire, connection, name) == ["before"]

    connected(driver, request.getfixturevalue(driver.server), work)


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
