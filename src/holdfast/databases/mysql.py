"""PyMySQL, and its kin in asyncio: asyncmy and aiomysql."""

from __future__ import annotations

from typing import Any

from .statements import FORMAT, MYSQL, Statement
from .watch import (
    BEGIN,
    BEGIN_WATCHED_MARIADB,
    COMMIT_AND_RESUME_MARIADB,
    COMMIT_WATCHED_MARIADB,
    RELEASE,
    SAVEPOINT,
    SUSPEND_AND_BEGIN_MARIADB,
    explain_end,
)
from .wire import NOTHING, Outcome, Queries, log, names_of, settle, undo

_IN_TRANSACTION = 1  # the server's SERVER_STATUS_IN_TRANS


class MySqlWire(Queries):
    dialect = MYSQL
    style = FORMAT
    reads_apart = False
    _suspended = False  # autocommit, by us

    def standalone(self) -> bool:
        return bool(self._connection.get_autocommit())

    def busy(self) -> bool:
        """Uncommitted writes are seen here. Earlier reads may not be: the BEGIN below ends their snapshot."""
        if not self._is_open():
            return False  # whatever it was in the middle of
        status = getattr(self._connection, "get_transaction_status", None)
        return bool(status() if status else self._connection.server_status & _IN_TRANSACTION)

    def _is_open(self) -> bool:
        """PyMySQL has `open`, asyncmy `connected`, aiomysql `closed`."""
        connection = self._connection
        return bool(getattr(connection, "open", getattr(connection, "connected", True))) and not getattr(
            connection, "closed", False
        )

    async def lasts(self) -> bool:
        return self.busy() or not self._connection.get_autocommit()

    async def opened(self) -> bool:
        return await self.lasts()

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        """A deadlock ends the whole transaction, and a ping may connect anew. Whoever overlooks that and goes on must not commit
        statement by statement what nobody guards: so in a block that others fill, autocommit is off."""
        self._begun, self._watched = True, watched
        self._suspended = watched and self.standalone()
        if watched and self._compound():
            await self._say(SUSPEND_AND_BEGIN_MARIADB if self._suspended else BEGIN_WATCHED_MARIADB)
        if self._suspended:  # so that a driver knows as well, which may connect anew; one that does by now asks nothing
            await settle(self._connection.autocommit(False))
        if not (watched and self._compound()):
            await self._say(BEGIN)
            if watched:
                await self._say(SAVEPOINT)
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

    async def fetch(self, statement: Statement) -> tuple[Any, list[tuple[Any, ...]]]:
        cursor = await settle(self._connection.cursor())
        await settle(cursor.execute(statement.text, statement.values))
        found = await settle(cursor.fetchall())
        await settle(cursor.close())
        # A DictCursor, if the user prefers those
        return names_of(cursor), [tuple(one.values() if isinstance(one, dict) else one) for one in found]

    async def end(self, error: BaseException | None) -> None:
        begun, self._begun = self._begun, False
        if begun and error is None and self._watched:
            await self._commit_watched()
        elif begun and error is None:
            await settle(self._connection.commit())
        elif begun:
            await self._undo()
        await self._resume()

    async def _undo(self) -> None:
        if self._is_open():
            await undo(self._connection.rollback, self._hang_up)
        await self._resume()

    async def _resume(self) -> None:
        """Autocommit, as it was. If that cannot be said, the connection is closed: what its user writes next would be lost."""
        suspended, self._suspended = self._suspended, False
        if not suspended or not self._is_open():
            return
        try:
            await settle(self._connection.autocommit(True))
        except Exception:
            log.debug("autocommit could not be switched on again: the connection is closed", exc_info=True)
            self._hang_up()
        except BaseException:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        if self._is_open():  # PyMySQL minds being closed twice
            self._connection.close()

    async def _commit_watched(self) -> None:
        try:
            # asyncmy overlooks, after a statement, that no transaction is open any more; its own commit() does not.
            if self._compound() and not type(self._connection).__module__.startswith("asyncmy"):
                await self._say(COMMIT_AND_RESUME_MARIADB if self._suspended else COMMIT_WATCHED_MARIADB)
            else:
                await self._say(RELEASE)
                await settle(self._connection.commit())
        except BaseException as trouble:
            await self._undo()
            explain_end(trouble)
            raise
