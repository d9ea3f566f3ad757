"""SQLAlchemy: Connection and Session, AsyncConnection and AsyncSession, over any driver of the three dialects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Misuse
from ..secret import redacted
from .connections import in_transaction
from .failures import code_of
from .statements import DIALECTS, MYSQL, NAMED, SQLITE, Statement
from .watch import NO_TRANSACTION, RELEASE, SAVEPOINT, ended_inside, explain_end
from .wire import NOTHING, Outcome, Queries, settle, undo


class SqlAlchemyWire(Queries):
    style = NAMED
    reads_apart = False
    _strayed: Misuse | None = None
    _unlisten: tuple[Callable[[], None], ...] = ()

    def __init__(self, connection: Any) -> None:
        from sqlalchemy import text

        # What is scoped is asked for the session of this thread or task, once: not all that a session has is passed on.
        connection = connection.registry() if hasattr(connection, "registry") else connection
        super().__init__(connection)
        self._text = text
        self._engine_dialect = _dialect_of(connection)
        name = self._engine_dialect.name
        self.dialect = MYSQL if name == "mariadb" else name
        if self.dialect not in DIALECTS:
            raise Misuse(f"fenced transactions know {', '.join(DIALECTS)}, not SQLAlchemy's dialect {name!r}")

    def standalone(self) -> bool:
        return False  # every statement begins a transaction by itself

    def busy(self) -> bool:
        if self._connection.in_transaction():
            return True
        if not hasattr(self._connection, "get_bind"):
            return False
        bind = self._connection.get_bind()  # a session may be bound to a connection, whose transaction it would join
        return hasattr(bind, "in_transaction") and bool(bind.in_transaction())

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        self._transaction = await settle(self._connection.begin())
        if not await self.lasts():
            raise _autocommit()
        outcome = await self.run(first) if first else NOTHING
        if watched:
            if first and not await self.opened():
                raise _autocommit()
            await self._watch()
            await self._keep_to_one()
            await self._keep_inside()
        return outcome

    async def _keep_to_one(self) -> None:
        """A session may speak to several databases (`binds`, `get_bind`), and each commits by itself: the mark guards one."""
        if not hasattr(self._connection, "get_bind"):
            return  # no session
        from sqlalchemy import event

        session = getattr(self._connection, "sync_session", self._connection)
        ours = await self._core()

        def begun(session: Any, transaction: Any, connection: Any) -> None:
            if connection is not ours:
                self._strayed = ended_inside() if ours.closed else _elsewhere(connection)
                raise self._strayed

        event.listen(session, "after_begin", begun)
        self._unlisten += (lambda: event.remove(session, "after_begin", begun),)

    async def _keep_inside(self) -> None:
        """Whoever ends the transaction in the block, and goes on, begins another one, and might commit that as well. And should
        SQLite end it by itself (OR ROLLBACK, a full disk), it would be committed statement by statement: what the driver does not
        take for a change (WITH …, CREATE …), and where an event says BEGIN, all of it."""
        from sqlalchemy import event

        ours = await self._core()
        driver = ours.connection.driver_connection

        def begun_anew(connection: Any, *xid: Any) -> None:
            self._strayed = ended_inside()
            raise self._strayed

        def about_to_say(*said: Any) -> None:
            if not driver.in_transaction:
                begun_anew(ours)

        event.listen(ours, "begin", begun_anew)
        self._unlisten += (lambda: event.remove(ours, "begin", begun_anew),)
        event.listen(ours, "begin_twophase", begun_anew)
        self._unlisten += (lambda: event.remove(ours, "begin_twophase", begun_anew),)
        if self.dialect == SQLITE:
            event.listen(ours, "before_cursor_execute", about_to_say)
            self._unlisten += (lambda: event.remove(ours, "before_cursor_execute", about_to_say),)

    async def _watch(self) -> None:
        try:
            await settle(self._connection.execute(self._text(SAVEPOINT)))
        except Exception as error:
            if code_of(error) == NO_TRANSACTION:
                raise _autocommit() from error
            raise
        if not await self.opened() or (self.dialect == MYSQL and await self._commits_on()):
            raise _autocommit()
        self._watched = True

    async def _commits_on(self) -> bool:
        """In a transaction that an event has begun; but MySQL undoes the whole of a deadlock's victim, and what follows would be
        committed statement by statement."""
        driver = (await self._core()).connection.driver_connection
        return bool(
            driver.get_autocommit() if hasattr(driver, "get_autocommit") else getattr(driver, "autocommit", False)
        )

    async def lasts(self) -> bool:
        """Under isolation level AUTOCOMMIT begin() begins nothing, and a lock would be gone at once. That is one spelling
        of it; `opened` sees them all, but only later."""
        options = (await self._core()).get_execution_options()
        default = getattr(self._engine_dialect, "_on_connect_isolation_level", None)
        return "AUTOCOMMIT" not in (options.get("isolation_level", default), default)

    async def opened(self) -> bool:
        return await in_transaction((await self._core()).connection.driver_connection)

    async def _core(self) -> Any:
        inner = self._connection
        if hasattr(inner, "get_bind"):  # a session
            inner = await settle(inner.connection())
        return getattr(inner, "sync_connection", inner)

    async def run(self, statement: Statement) -> Outcome:
        result = await settle(self._connection.execute(self._text(statement.text), statement.named))
        outcome = Outcome(result.rowcount, (result.lastrowid or 0) if self.dialect == MYSQL else 0)
        result.close()
        return outcome

    async def fetch(self, statement: Statement) -> tuple[Any, list[tuple[Any, ...]]]:
        result = await settle(self._connection.execute(self._text(statement.text), statement.named))
        names = tuple(result.keys())
        return lambda: names, [tuple(one) for one in result.fetchall()]

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        watched, self._watched = self._watched, False
        try:
            if transaction is not None and error is None:
                await self._commit(transaction, watched)
            elif transaction is not None:
                await self._undo()
        finally:
            unlisten, self._unlisten = self._unlisten, ()
            for one in unlisten:  # only now: a session writes what was added to it when it commits
                one()

    async def _commit(self, transaction: Any, watched: bool) -> None:
        try:
            if self._strayed is not None:  # and somebody has swallowed it
                raise self._strayed
            if not transaction.is_active:
                raise ended_inside()
            if watched:
                await settle(self._connection.execute(self._text(RELEASE)))
            await settle(transaction.commit())
        except BaseException as trouble:
            await self._undo()
            explain_end(trouble)
            raise

    async def _undo(self) -> None:
        await undo(self._connection.rollback, self._connection.invalidate)


def _autocommit() -> Misuse:
    return Misuse(
        "this connection commits every statement by itself, whatever begin() says (is it in AUTOCOMMIT mode?): what has to be "
        "one transaction would be none"
    )


def _elsewhere(connection: Any) -> Misuse:
    # By our own rule too: SQLAlchemy hides no password that stands behind the `?`.
    where = redacted(connection.engine.url.render_as_string())
    return Misuse(
        f"this session began a second transaction, on {where!r:.200}: the mark is in another "
        "database, and does not guard what is changed there. Use a session of that database"
    )


def _dialect_of(connection: Any) -> Any:
    return connection.get_bind().dialect if hasattr(connection, "get_bind") else connection.dialect
