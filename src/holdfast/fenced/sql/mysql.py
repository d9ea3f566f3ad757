"""PyMySQL, and its kin in asyncio: asyncmy and aiomysql."""

from __future__ import annotations

from typing import Any

from .place import NOTHING, Outcome
from .statements import FORMAT, MYSQL, Statement
from .watch import BEGIN_WATCHED_MARIADB, COMMIT_WATCHED_MARIADB, RELEASE, SAVEPOINT, explain_end
from .wire import named, settle

_IN_TRANSACTION = 1  # the server's SERVER_STATUS_IN_TRANS


class MySqlWire:
    dialect = MYSQL
    style = FORMAT
    reads_apart = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._begun = False
        self._watched = False

    def standalone(self) -> bool:
        return bool(self._connection.get_autocommit())

    def busy(self) -> bool:
        """Uncommitted writes are seen here. Earlier reads may not be: the BEGIN below ends their snapshot."""
        status = getattr(self._connection, "get_transaction_status", None)
        return bool(status() if status else self._connection.server_status & _IN_TRANSACTION)

    async def lasts(self) -> bool:
        return self.busy() or not self._connection.get_autocommit()

    async def opened(self) -> bool:
        return await self.lasts()

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        if watched and self._compound():
            await self._say(BEGIN_WATCHED_MARIADB)
        else:
            await settle(self._connection.begin())
            if watched:
                await self._say(SAVEPOINT)
        self._begun, self._watched = True, watched
        return await self.run(first) if first else NOTHING

    def _compound(self) -> bool:
        return "MariaDB" in str(self._connection.get_server_info())

    async def _say(self, text: str) -> None:
        cursor = await settle(self._connection.cursor())
        await settle(cursor.execute(text))
        await settle(cursor.close())

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

    async def records(self, statement: Statement) -> list[dict[str, object]]:
        cursor = await settle(self._connection.cursor())
        await settle(cursor.execute(statement.text, statement.values))
        rows = await settle(cursor.fetchall())
        found = [dict(row) for row in rows] if rows and isinstance(rows[0], dict) else named(cursor.description, rows)
        await settle(cursor.close())
        return found

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        cursor = await settle(self._connection.cursor())
        await settle(cursor.execute(statement.text, statement.values))
        found = await settle(cursor.fetchall())
        await settle(cursor.close())
        return [tuple(one.values() if isinstance(one, dict) else one) for one in found]

    async def end(self, error: BaseException | None) -> None:
        begun, self._begun = self._begun, False
        if begun and error is None and self._watched:
            await self._commit_watched()
        elif begun:
            await settle(self._connection.commit() if error is None else self._connection.rollback())

    async def _commit_watched(self) -> None:
        try:
            # asyncmy overlooks, after a statement, that no transaction is open any more; its own commit() does not.
            if self._compound() and not type(self._connection).__module__.startswith("asyncmy"):
                await self._say(COMMIT_WATCHED_MARIADB)
            else:
                await self._say(RELEASE)
                await settle(self._connection.commit())
        except BaseException as trouble:
            if getattr(self._connection, "open", True):
                await settle(self._connection.rollback())
            explain_end(trouble)
            raise
