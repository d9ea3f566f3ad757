"""sqlite3 and aiosqlite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from .statements import QMARK, SQLITE, Statement
from .watch import RELEASE, SAVEPOINT, explain_end
from .wire import NOTHING, Outcome, Queries, names_of, settle


class SqliteWire(Queries):
    dialect = SQLITE
    style = QMARK
    _before: tuple[Any, Any] | None = None  # `autocommit` (Python 3.12) and `isolation_level`, while they are ours

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        # autocommit=False (Python 3.12) has a transaction open at all times. A seal in it is safe even after reads:
        # SQLite refuses to write on a snapshot that is no longer the newest.
        # (aiosqlite's own connection may be asked only in its own thread; there, such a one is refused as open.)
        plain = isinstance(connection, sqlite3.Connection)
        self._always_open = plain and getattr(connection, "autocommit", None) is False
        # And with autocommit=True its commit() and rollback() do nothing, whatever was begun by hand.
        self._by_hand = plain and getattr(connection, "autocommit", None) is True
        self.reads_apart = not self._always_open
        self._queued = not plain  # a call that was cancelled is still made, in the order in which they came

    def standalone(self) -> bool:
        return self._by_hand or (not self._always_open and self._connection.isolation_level is None)

    def busy(self) -> bool:
        return not self._always_open and bool(self._connection.in_transaction)

    async def lasts(self) -> bool:
        return bool(self._connection.in_transaction) or not self.standalone()

    async def opened(self) -> bool:
        return bool(self._connection.in_transaction)

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        """Outside of a transaction a savepoint begins one, and its release is the commit. The seal, being a write, waits for the
        other writers as BEGIN IMMEDIATE does."""
        self._begun = True
        if watched and (self._always_open or self.standalone()):
            await self._adjust(self._suspend)
        if not self._always_open and not (watched and first):
            await settle(self._connection.execute("BEGIN IMMEDIATE"))
        if watched:
            await settle(self._connection.execute(SAVEPOINT))
            self._watched = True
        return await self.run(first) if first else NOTHING

    async def run(self, statement: Statement) -> Outcome:
        cursor = await settle(self._connection.execute(statement.text, statement.values))
        count = cursor.rowcount
        await settle(cursor.close())
        return Outcome(count, 0)

    async def fetch(self, statement: Statement) -> tuple[Any, list[tuple[Any, ...]]]:
        cursor = await settle(self._connection.cursor())
        cursor.row_factory = None  # whatever the user has set for his own rows
        await settle(cursor.execute(statement.text, statement.values))
        found = await settle(cursor.fetchall())
        names = names_of(cursor)
        await settle(cursor.close())
        return names, found if isinstance(found, list) else list(found)

    async def end(self, error: BaseException | None) -> None:
        watched, self._watched = self._watched, False
        begun, self._begun = self._begun, False
        if not begun:
            return
        try:
            if error is None:
                await self._commit(watched)
            else:
                await self._roll_back()
        finally:
            if self._before is not None:
                await self._adjust(self._resume)

    async def _commit(self, watched: bool) -> None:
        try:
            if watched:
                await settle(self._connection.execute(RELEASE))
            if self._connection.in_transaction:
                await settle(self._connection.execute("COMMIT") if self._by_hand else self._connection.commit())
        except BaseException as trouble:  # busy, say: what is not committed must not linger until the next commit
            await self._roll_back()
            explain_end(trouble)
            raise

    async def _roll_back(self) -> None:
        """aiosqlite's thread may be about to begin what was cancelled: what is said now comes after that."""
        if self._queued or (self._connection.in_transaction and not self._by_hand):
            await settle(self._connection.rollback())
        elif self._connection.in_transaction:
            await settle(self._connection.execute("ROLLBACK"))

    async def _adjust(self, how: Callable[[sqlite3.Connection], None]) -> None:
        """aiosqlite's own connection may be changed in its own thread only."""
        if self._queued:
            await self._connection._execute(how, self._connection._conn)
        else:
            how(self._connection)

    def _suspend(self, connection: sqlite3.Connection) -> None:
        """A full disk or OR ROLLBACK ends the whole transaction. Whoever overlooks that and goes on must not commit statement by
        statement what nobody guards: so in a block that others fill, a change begins a transaction, which `end` undoes."""
        self._before = getattr(connection, "autocommit", None), connection.isolation_level
        if self._before[0] is not None:
            connection.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL  # type: ignore[attr-defined]
        connection.isolation_level = "IMMEDIATE"

    def _resume(self, connection: sqlite3.Connection) -> None:
        """Some of this commits what is open: so nothing may be."""
        if self._before is None:
            return
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        autocommit, level = self._before
        self._before = None
        connection.isolation_level = level
        if autocommit is not None:
            connection.autocommit = autocommit  # type: ignore[attr-defined]
