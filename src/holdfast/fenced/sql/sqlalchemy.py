"""SQLAlchemy: Connection and Session, AsyncConnection and AsyncSession, over any driver of the three dialects."""

from __future__ import annotations

from typing import Any

from ...errors import Misuse
from .place import NOTHING, Outcome
from .statements import DIALECTS, MYSQL, NAMED, Statement
from .wire import settle


class SqlAlchemyWire:
    style = NAMED
    reads_apart = False

    def __init__(self, connection: Any) -> None:
        from sqlalchemy import text

        self._text = text
        self._connection = connection
        self._transaction: Any = None
        self._engine_dialect = _dialect_of(connection)
        name = self._engine_dialect.name
        self.dialect = MYSQL if name == "mariadb" else name
        if self.dialect not in DIALECTS:
            raise Misuse(f"fenced transactions know {', '.join(DIALECTS)}, not SQLAlchemy's dialect {name!r}")

    def standalone(self) -> bool:
        return False  # every statement begins a transaction by itself

    def busy(self) -> bool:
        return bool(self._connection.in_transaction())

    async def begin(self, first: Statement | None) -> Outcome:
        self._transaction = await settle(self._connection.begin())
        if not await self.lasts():
            raise Misuse("this connection is in AUTOCOMMIT mode: a fenced transaction has to be a transaction")
        return await self.run(first) if first else NOTHING

    async def lasts(self) -> bool:
        """Under isolation level AUTOCOMMIT begin() begins nothing, and a lock would be gone at once."""
        inner = self._connection
        if hasattr(inner, "get_bind"):  # a session
            inner = await settle(inner.connection())
        inner = getattr(inner, "sync_connection", inner)
        options = inner.get_execution_options()
        default = getattr(self._engine_dialect, "_on_connect_isolation_level", None)
        return "AUTOCOMMIT" not in (options.get("isolation_level", default), default)

    async def run(self, statement: Statement) -> Outcome:
        result = await settle(self._connection.execute(self._text(statement.text), statement.named))
        return Outcome(result.rowcount, (result.lastrowid or 0) if self.dialect == MYSQL else 0)

    async def row(self, statement: Statement) -> tuple[object, ...] | None:
        result = await settle(self._connection.execute(self._text(statement.text), statement.named))
        found = result.fetchone()
        return None if found is None else tuple(found)

    async def records(self, statement: Statement) -> list[dict[str, object]]:
        result = await settle(self._connection.execute(self._text(statement.text), statement.named))
        return [dict(row) for row in result.mappings()]

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        result = await settle(self._connection.execute(self._text(statement.text), statement.named))
        return [tuple(one) for one in result.fetchall()]

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and transaction.is_active:
            await settle(transaction.commit() if error is None else transaction.rollback())
        elif transaction is not None:
            await settle(self._connection.rollback())


def _dialect_of(connection: Any) -> Any:
    return connection.get_bind().dialect if hasattr(connection, "get_bind") else connection.dialect
