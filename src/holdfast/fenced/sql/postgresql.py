"""psycopg 3, in threads and in asyncio, and asyncpg."""

from __future__ import annotations

from typing import Any

from .place import Outcome
from .statements import DOLLAR, FORMAT, POSTGRESQL, Statement
from .wire import settle


class PsycopgWire:
    """Its own Transaction object begins and ends, because that one forbids a commit() in between, which would unlock."""

    dialect = POSTGRESQL
    style = FORMAT

    def __init__(self, connection: Any) -> None:
        from psycopg import Pipeline
        from psycopg.rows import tuple_row

        self._connection = connection
        self._rows = tuple_row
        self._pipelined = Pipeline.is_supported()
        self._transaction: Any = None

    def busy(self) -> bool:
        return bool(self._connection.info.transaction_status != 0)  # IDLE

    async def begin(self, first: Statement) -> Outcome:
        """BEGIN and the seal travel together: a fenced transaction makes as many round trips as any other."""
        connection = self._connection
        transaction = connection.transaction()
        cursor = connection.cursor(row_factory=self._rows)
        if hasattr(transaction, "__aenter__"):
            if self._pipelined:
                async with connection.pipeline():
                    await self._enter(transaction)
                    await cursor.execute(first.text, first.values)
            else:
                await self._enter(transaction)
                await cursor.execute(first.text, first.values)
        elif self._pipelined:
            with connection.pipeline():
                await self._enter(transaction)
                cursor.execute(first.text, first.values)
        else:
            await self._enter(transaction)
            cursor.execute(first.text, first.values)
        return Outcome(cursor.rowcount, 0)

    async def _enter(self, transaction: Any) -> None:
        enter = getattr(transaction, "__aenter__", None) or transaction.__enter__
        await settle(enter())
        self._transaction = transaction

    async def run(self, statement: Statement) -> Outcome:
        cursor = self._connection.cursor(row_factory=self._rows)
        await settle(cursor.execute(statement.text, statement.values))
        return Outcome(cursor.rowcount, 0)

    async def row(self, statement: Statement) -> tuple[object, ...] | None:
        cursor = self._connection.cursor(row_factory=self._rows)
        await settle(cursor.execute(statement.text, statement.values))
        found: tuple[object, ...] | None = await settle(cursor.fetchone())
        return found

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        leave = getattr(transaction, "__aexit__", None) or transaction.__exit__
        if error is None:
            await settle(leave(None, None, None))
        else:
            await settle(leave(type(error), error, error.__traceback__))


class AsyncpgWire:
    dialect = POSTGRESQL
    style = DOLLAR

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    def busy(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def begin(self, first: Statement) -> Outcome:
        transaction = self._connection.transaction()
        await transaction.start()
        self._transaction = transaction
        return await self.run(first)

    async def run(self, statement: Statement) -> Outcome:
        status: str = await self._connection.execute(statement.text, *statement.values)
        return Outcome(int(status.rpartition(" ")[2]), 0)  # "INSERT 0 1", "UPDATE 1"

    async def row(self, statement: Statement) -> tuple[object, ...] | None:
        found = await self._connection.fetchrow(statement.text, *statement.values)
        return None if found is None else tuple(found)

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        if error is None:
            await transaction.commit()
        else:
            await transaction.rollback()
