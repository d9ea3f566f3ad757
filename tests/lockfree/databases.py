"""Every SQL driver, for tests that are written once: as coroutines, which threads run on the spot and asyncio in a loop."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from holdfast.databases.connections import ASYNCIO, wire_for
from holdfast.databases.statements import Statement, bind
from holdfast.databases.wire import Wire, settle
from holdfast.drivers.base import finish

from ..fenced.sql_drivers import DRIVERS, Driver

T = TypeVar("T")
# Django has one connection a thread: a second one has to be of another driver.
RIVALS = {"django sqlite": "sqlite3", "django postgresql": "psycopg", "django mysql": "pymysql"}


def marked(names: list[str]) -> list[Any]:
    return [
        pytest.param(name, marks=() if DRIVERS[name].server == "sqlite_file" else pytest.mark.server) for name in names
    ]


# Where the driver makes no difference, one of each database will do, and one for asyncio.
FEW = marked(["sqlite3", "aiosqlite", "psycopg", "pymysql"])


class Database:
    """One driver and where its database is."""

    def __init__(self, name: str, url: str, driver: Driver | None = None) -> None:
        self.name = name
        self.driver: Driver = driver or DRIVERS[name]
        self.url = url
        self._runner = asyncio.Runner() if self.driver.world == ASYNCIO else None
        self._open: list[Any] = []

    @property
    def asynchronous(self) -> bool:
        return self._runner is not None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine) if self._runner else finish(coroutine)

    async def connect(self) -> Any:
        connection = await settle(self.driver.connect(self.url))
        self._open.append(connection)
        return connection

    def wire(self, connection: Any) -> Wire:
        return wire_for(connection, self.driver.world)

    async def execute(self, connection: Any, template: str, **values: object) -> None:
        """One statement in a transaction of its own."""
        wire = self.wire(connection)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Table … already exists", says MariaDB
            try:
                await wire.begin(self.sql(wire, template, **values))
            except BaseException as error:
                await wire.end(error)
                raise
            await wire.end(None)

    async def rows(self, connection: Any, template: str, **values: object) -> list[dict[str, Any]]:
        wire = self.wire(connection)
        await wire.begin(None)
        found = await wire.records(self.sql(wire, template, **values))
        await wire.end(None)
        return found

    @staticmethod
    def sql(wire: Wire, template: str, **values: object) -> Statement:
        return bind(template, wire.style, values)

    def close(self) -> None:
        async def close() -> None:
            for connection in self._open:
                self.driver.rest(connection)
                await settle(self.driver.close(connection))

        self.run(close())
        if self._runner:
            self._runner.close()


@contextmanager
def opened(name: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    database = Database(name, request.getfixturevalue(DRIVERS[name].server))
    try:
        yield database
    finally:
        database.close()
