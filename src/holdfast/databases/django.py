"""Django's connections: `from django.db import connection`."""

from __future__ import annotations

from typing import Any

from ..errors import Misuse
from .statements import DIALECTS, FORMAT, MYSQL, SQLITE, Statement
from .watch import RELEASE, SAVEPOINT, ended_inside, explain_end
from .wire import NOTHING, Outcome, Queries, names_of


class DjangoWire(Queries):
    """`atomic(durable=True)` begins and ends, so that signals, on_commit and broken transactions behave as ever."""

    style = FORMAT
    reads_apart = False

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._atomic: Any = None
        self._wrapped: Any = None
        self.dialect = connection.vendor
        if self.dialect not in DIALECTS:
            raise Misuse(f"fenced transactions know {', '.join(DIALECTS)}, not Django's {self.dialect!r}")

    def shared(self) -> object:
        """Nothing: a connection is of one thread, and `durable` refuses another block in ours. What is called on commit comes
        when that is over, though the block is not left yet; it may begin one."""
        return self

    def standalone(self) -> bool:
        return bool(self._connection.get_autocommit() and not self._connection.in_atomic_block)

    def busy(self) -> bool:
        """With autocommit off a transaction is always open, and `atomic` would not commit it. About an `atomic` around us
        `durable` knows better, unless it is ours: it lets a TestCase wrap the test in a transaction of its own."""
        if self._atomic is not None:
            return True
        return not self._connection.get_autocommit() and not self._connection.in_atomic_block

    async def lasts(self) -> bool:
        return bool(self._connection.in_atomic_block or not self._connection.get_autocommit())

    async def opened(self) -> bool:
        return await self.lasts()

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        from django.db import transaction

        outermost = not self._connection.in_atomic_block  # but for that of a TestCase
        atomic = transaction.atomic(using=self._connection.alias, durable=True)
        try:
            atomic.__enter__()
        except RuntimeError as error:
            raise Misuse(
                "a transaction is open already (atomic): what was read in it before the seal is not covered. Let the fenced "
                "transaction be the outermost one"
            ) from error
        self._atomic = atomic
        self._connection.rollback_exc = None  # Django keeps that of an earlier transaction
        if watched and outermost and self.dialect == SQLITE:
            # Should SQLite end the transaction by itself (OR ROLLBACK, a full disk), whoever goes on begins another, to be
            # undone, and does not commit statement by statement. Django sets this back when it leaves `atomic`.
            self._connection.connection.isolation_level = "IMMEDIATE"
        if watched and self.dialect == SQLITE:
            self._wrapped = self._connection.execute_wrapper(self._in_it)
            self._wrapped.__enter__()
        outcome = await self.run(first) if first else NOTHING
        if watched:
            self._say(SAVEPOINT)
        self._watched = watched
        return outcome

    def _in_it(self, execute: Any, *said: Any) -> Any:
        """SQLite's driver begins another for INSERT, UPDATE, DELETE and REPLACE; all else it would commit by itself."""
        if not self._connection.connection.in_transaction:
            raise ended_inside()
        return execute(*said)

    def _unwrap(self) -> None:
        wrapped, self._wrapped = self._wrapped, None
        if wrapped is not None:
            wrapped.__exit__(None, None, None)

    def _say(self, text: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(text)

    async def run(self, statement: Statement) -> Outcome:
        with self._connection.cursor() as cursor:
            cursor.execute(statement.text, statement.values)
            return Outcome(cursor.rowcount, (cursor.lastrowid or 0) if self.dialect == MYSQL else 0)

    async def fetch(self, statement: Statement) -> tuple[Any, list[tuple[Any, ...]]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement.text, statement.values)
            names = names_of(cursor)()
            return lambda: names, [tuple(one) for one in cursor.fetchall()]

    def _is_undone(self) -> bool:
        """`atomic` would roll back without a word: after close(), and after an error that was swallowed. (After
        set_rollback(True) it should.)"""
        connection = self._connection
        return connection.closed_in_transaction or bool(connection.needs_rollback and connection.rollback_exc)

    async def end(self, error: BaseException | None) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is None:
            return
        watched, self._watched = self._watched, False
        if error is None and self._is_undone():
            undone, cause = ended_inside(), self._connection.rollback_exc
            self._leave(atomic, undone)
            raise undone from cause
        if error is None and watched and not self._connection.needs_rollback:
            try:
                self._say(RELEASE)
            except BaseException as trouble:
                self._leave(atomic, trouble)
                explain_end(trouble)
                raise
        self._leave(atomic, error)

    def _leave(self, atomic: Any, error: BaseException | None) -> None:
        self._unwrap()  # what is called on_commit is outside
        if error is None:
            atomic.__exit__(None, None, None)
        else:
            atomic.__exit__(type(error), error, error.__traceback__)
