"""Any SQL driver, as the conformance suite wants it: one integer a resource, in a table, in a fenced transaction.

Calls come from many threads, each with a connection to itself; those of asyncio run on one loop in a thread.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Coroutine
from hashlib import sha256
from typing import Any, Generic, TypeVar

from holdfast import fenced
from holdfast.databases.connections import ASYNCIO, wire_for
from holdfast.databases.statements import Statement, _compiled
from holdfast.databases.wire import Outcome, Wire, settle
from holdfast.drivers.base import finish
from holdfast.fenced import MAX_MARK, Row, aio

from .sql_drivers import Driver

T = TypeVar("T")
SECONDS = 60.0

CREATE = "CREATE TABLE IF NOT EXISTS holding (id VARCHAR(64) PRIMARY KEY, value BIGINT, fence BIGINT)"
SELECT = "SELECT value FROM holding WHERE id = :id"
FENCE = "SELECT fence FROM holding WHERE id = :id"
UPDATE = "UPDATE holding SET value = :value WHERE id = :id"
FOUND = "INSERT INTO holding (id) VALUES (:id)"


class Abandoned(Exception):
    pass


def sql(wire: Wire, template: str, **values: object) -> Statement:
    text, order = _compiled(template, wire.style, ())
    return Statement(text, tuple(values[name] for name in order), values)


class OneLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(SECONDS)
        self.loop.close()


class SqlUnderTest(Generic[T]):
    most = MAX_MARK
    transactional = True
    by_row = False  # the mark in the row itself, instead of in the fence table

    def __init__(self, driver: Driver, url: str) -> None:
        self.driver = driver
        self.url = url
        self.loop = OneLoop() if driver.world == ASYNCIO else None
        self._idle: list[Any] = []  # append and pop are atomic
        self._run(self._prepare())

    def close(self) -> None:
        for connection in self._idle:
            self._run(settle(self.driver.close(connection)))
        if self.loop:
            self.loop.close()

    # ---- the protocol of the suite

    def read(self, resource: str, token: int) -> int | None:
        value: int | None = self._run(self._work(resource, token, None))
        return value

    def write(self, resource: str, token: int, value: int) -> None:
        self._run(self._work(resource, token, value))

    def abandon(self, resource: str, token: int, value: int) -> None:
        try:
            self._run(self._work(resource, token, value, abandon=True))
        except Abandoned:
            return

    def seen(self, resource: str) -> int:
        return int(self._run(self._seen(resource)))

    # ---- and how

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop(coroutine) if self.loop else finish(coroutine)

    async def connection(self) -> Any:
        """One that nobody else uses now; opened when all are in use."""
        return self._idle.pop() if self._idle else await settle(self.driver.connect(self.url))

    async def _done(self, connection: Any) -> None:
        self.driver.rest(connection)
        self._idle.append(connection)

    async def _prepare(self) -> None:
        connection = await self.connection()
        wire = wire_for(connection, self.driver.world)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Table 'holding' already exists", says MariaDB
            await wire.begin(sql(wire, CREATE))
            await wire.end(None)
        await settle((aio if self.loop else fenced).create_table(connection))
        await self._done(connection)

    async def _ensure(self, wire: Wire, key: str) -> None:
        if self.by_row:
            await self._insert(wire, key)

    async def _insert(self, wire: Wire, key: str) -> None:
        try:
            await wire.begin(sql(wire, FOUND, id=key))
            await wire.end(None)
        except Exception as error:
            await wire.end(error)  # it is there already

    async def _work(self, resource: str, token: int, value: int | None, abandon: bool = False) -> int | None:
        connection = await self.connection()
        try:
            wire = wire_for(connection, self.driver.world)
            key = sha256(repr(resource).encode()).hexdigest()
            await self._ensure(wire, key)
            row = Row("holding", {"id": key}) if self.by_row else None
            if self.loop:
                async with aio.transaction(connection, (resource, token), row=row):
                    return await self._inside(wire, key, value, abandon)
            with fenced.transaction(connection, (resource, token), row=row):
                return await self._inside(wire, key, value, abandon)
        finally:
            await self._done(connection)

    async def _inside(self, wire: Wire, key: str, value: int | None, abandon: bool) -> int | None:
        if value is None:
            found = await wire.row(sql(wire, SELECT, id=key))
            return None if found is None or found[0] is None else int(str(found[0]))
        outcome: Outcome = await wire.run(sql(wire, UPDATE, id=key, value=value))
        if outcome.rows == 0 and await wire.row(sql(wire, SELECT, id=key)) is None:
            await wire.run(sql(wire, FOUND, id=key))
            await wire.run(sql(wire, UPDATE, id=key, value=value))
        if abandon:
            raise Abandoned
        return None

    async def _seen(self, resource: str) -> int:
        connection = await self.connection()
        wire = wire_for(connection, self.driver.world)
        if self.by_row:
            look = sql(wire, FENCE, id=sha256(repr(resource).encode()).hexdigest())
        else:
            from holdfast.fenced.mark import Mark
            from holdfast.fenced.sql.place import Place

            look = Place(Mark(resource, 1), None, wire.dialect, wire.style).look
        found = await wire.row(look)
        if hasattr(connection, "rollback"):
            await settle(connection.rollback())
        await self._done(connection)
        return 0 if found is None or found[0] is None else int(str(found[0]))


class RowUnderTest(SqlUnderTest[T]):
    by_row = True
