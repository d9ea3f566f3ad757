"""psycopg 3, in threads and in asyncio, and asyncpg."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from .statements import DOLLAR, FORMAT, POSTGRESQL, Statement
from .watch import RELEASE, SAVEPOINT, explain_end
from .wire import NOTHING, Outcome, Queries, names_of, settle, undo


class _Psycopg(NamedTuple):
    rows: Any
    pipelined: bool
    asynchronous: type
    transactions: tuple[Any, Any]  # plain, watched
    asynchronous_transactions: tuple[Any, Any]


@cache
def _psycopg() -> _Psycopg:
    """What is needed of the driver; asked for once, since a transaction is begun often."""
    from psycopg import AsyncConnection, AsyncTransaction, Pipeline, Transaction
    from psycopg.rows import tuple_row

    class Watched:
        """BEGIN takes the savepoint along; COMMIT was sent together with its release before this is left."""

        def _get_enter_commands(self: Any) -> Iterator[bytes]:
            yield self._conn._get_tx_start_command()
            yield SAVEPOINT.encode()

        def _get_commit_commands(self) -> Iterator[bytes]:
            return iter(())

    return _Psycopg(
        tuple_row,
        Pipeline.is_supported(),
        AsyncConnection,
        (Transaction, type("WatchedTransaction", (Watched, Transaction), {})),
        (AsyncTransaction, type("WatchedAsyncTransaction", (Watched, AsyncTransaction), {})),
    )


class PsycopgWire(Queries):
    """Its own Transaction object begins and ends, because that one forbids a commit() in between, which would unlock."""

    dialect = POSTGRESQL
    style = FORMAT
    reads_apart = False

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        driver = _psycopg()
        self._rows = driver.rows
        self._pipelined = driver.pipelined
        if any(one.__name__ == "RawCursorMixin" for one in connection.cursor_factory.__mro__):
            self.style = DOLLAR  # RawCursor: the user's own statements are in PostgreSQL's words, and so must ours be
        self._asynchronous = isinstance(connection, driver.asynchronous)
        self._transaction_class, self._watched_class = (
            driver.asynchronous_transactions if self._asynchronous else driver.transactions
        )

    def standalone(self) -> bool:
        return bool(self._connection.autocommit)

    def busy(self) -> bool:
        return bool(self._connection.pgconn.transaction_status != 0)  # IDLE

    async def lasts(self) -> bool:
        return self.busy() or not self._connection.autocommit

    async def opened(self) -> bool:
        return self.busy()

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        """BEGIN, the savepoint and the seal travel together: as many round trips as any other transaction makes."""
        if not self._pipelined or first is None:
            await self._enter(watched)
            return await self.run(first) if first else NOTHING
        cursor = self._connection.cursor(row_factory=self._rows)
        if self._asynchronous:
            async with self._connection.pipeline():
                await self._enter(watched)
                await cursor.execute(first.text, first.values)
        else:
            with self._connection.pipeline():
                await self._enter(watched)
                cursor.execute(first.text, first.values)
        return Outcome(cursor.rowcount, 0)

    async def _enter(self, watched: bool) -> None:
        # Not connection.transaction(): begun inside a pipeline, that one would keep the pipeline on until it ends.
        transaction = (self._watched_class if watched else self._transaction_class)(self._connection)
        await settle(transaction.__aenter__() if self._asynchronous else transaction.__enter__())
        self._transaction, self._watched = transaction, watched  # interrupted before, it has undone itself

    async def run(self, statement: Statement) -> Outcome:
        cursor = self._connection.cursor(row_factory=self._rows)
        await settle(cursor.execute(statement.text, statement.values))
        if self._connection.pgconn.pipeline_status:
            # The user's own pipeline: to leave one inside of it asks for the answers, and only they tell the row count.
            await self._settle_pipeline()
        return Outcome(cursor.rowcount, 0)

    async def _settle_pipeline(self) -> None:
        if self._asynchronous:
            async with self._connection.pipeline():
                return
        with self._connection.pipeline():
            return

    async def fetch(self, statement: Statement) -> tuple[Any, list[tuple[Any, ...]]]:
        cursor = self._connection.cursor(row_factory=self._rows)
        await settle(cursor.execute(statement.text, statement.values))
        found: list[tuple[Any, ...]] = await settle(cursor.fetchall())
        return names_of(cursor), found

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        leave = transaction.__aexit__ if self._asynchronous else transaction.__exit__
        if error is None and self._watched:
            try:
                await self._commit_watched()
            except BaseException as trouble:
                await settle(leave(type(trouble), trouble, trouble.__traceback__))
                explain_end(trouble)
                raise
        if error is None:
            await settle(leave(None, None, None))
        else:
            await settle(leave(type(error), error, error.__traceback__))

    async def _commit_watched(self) -> None:
        """If the release fails, the server skips the COMMIT."""
        if not self._connection.pgconn.pipeline_status:
            await settle(self._connection.execute(f"{RELEASE}; COMMIT", prepare=False))
            return
        for text in (RELEASE, "COMMIT"):
            await settle(self._connection.execute(text, prepare=False))
            await self._settle_pipeline()


class AsyncpgWire(Queries):
    dialect = POSTGRESQL
    style = DOLLAR
    reads_apart = True

    def standalone(self) -> bool:
        return True

    def busy(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def lasts(self) -> bool:
        return self.busy()

    async def opened(self) -> bool:
        return self.busy()

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        transaction = self._connection.transaction()
        if watched:
            transaction._connection = _Together(transaction._connection)
        self._transaction = transaction
        await transaction.start()
        return await self.run(first) if first else NOTHING

    async def run(self, statement: Statement) -> Outcome:
        status: str = await self._connection.execute(statement.text, *statement.values)
        rows = status.rpartition(" ")[2]  # of "INSERT 0 1", "UPDATE 1", "CREATE TABLE"
        return Outcome(int(rows) if rows.isdigit() else 0, 0)

    async def fetch(self, statement: Statement) -> tuple[Any, list[tuple[Any, ...]]]:
        found = await self._connection.fetch(statement.text, *statement.values)
        return lambda: list(found[0].keys()), [tuple(one) for one in found]

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        if error is not None:
            await self._undo(transaction)
            return
        try:
            await transaction.commit()
        except BaseException as trouble:
            await self._undo(transaction)
            explain_end(trouble)
            raise

    async def _undo(self, transaction: Any) -> None:
        """Not by the Transaction: one that was cancelled while it began believes that nothing was, and yet stays the outermost
        of its connection."""
        if transaction._connection._top_xact is transaction:
            transaction._connection._top_xact = None
        if not self._connection.is_closed() and (transaction._state.name == "FAILED" or self.busy()):
            await undo(lambda: self._connection.execute("ROLLBACK"), self._connection.terminate)


class _Together:
    """What an asyncpg Transaction speaks to, in place of its connection: BEGIN takes the savepoint along, and COMMIT its
    release, in one round trip each. If the release fails, the server skips the COMMIT."""

    def __init__(self, connection: Any) -> None:
        object.__setattr__(self, "_watched", connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watched, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._watched, name, value)

    async def execute(self, query: str) -> Any:
        if query.startswith("BEGIN"):
            query = f"{query} {SAVEPOINT};"
        elif query.startswith("COMMIT"):
            query = f"{RELEASE}; {query}"
        return await self._watched.execute(query)
