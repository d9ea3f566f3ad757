"""PyMySQL, and its kin in asyncio: asyncmy and aiomysql."""

from __future__ import annotations

from typing import Any

from .place import Outcome
from .statements import FORMAT, MYSQL, Statement
from .wire import settle

_IN_TRANSACTION = 1  # the server's SERVER_STATUS_IN_TRANS


class MySqlWire:
    dialect = MYSQL
    style = FORMAT

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._begun = False

    def busy(self) -> bool:
        """Uncommitted writes are seen here. Earlier reads may not be: the BEGIN below ends their snapshot."""
        status = getattr(self._connection, "get_transaction_status", None)
        return bool(status() if status else self._connection.server_status & _IN_TRANSACTION)

    async def lasts(self) -> bool:
        return self.busy() or not self._connection.get_autocommit()

    async def begin(self, first: Statement) -> Outcome:
        await settle(self._connection.begin())
        self._begun = True
        return await self.run(first)

    async def run(self, statement: Statement) -> Outcome:
        cursor = await settle(self._connection.cursor())
        await settle(cursor.execute(statement.text, statement.values))
        outcome = Outcome(cursor.rowcount, cursor.lastrowid or 0)
        await settle(cursor.close())
        return outcome

    async def row(self, statement: Statement) -> tuple[object, ...] | None:
        cursor = await settle(self._connection.cursor())
        await settle(cursor.execute(statement.text, statement.values))
        found = await settle(cursor.fetchone())
        await settle(cursor.close())
        if found is None:
            return None
        return tuple(found.values() if isinstance(found, dict) else found)  # a DictCursor, if the user prefers those

    async def end(self, error: BaseException | None) -> None:
        begun, self._begun = self._begun, False
        if begun:
            await settle(self._connection.commit() if error is None else self._connection.rollback())
