"""Locks of a transaction, once for threads and asyncio: taken in sorted order, ended by commit or rollback."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence

from ..claim import valid_name, valid_timeout
from ..databases.failures import code_of
from ..databases.statements import MYSQL, POSTGRESQL, SQLITE, Statement, bind, identifier, load, table_name
from ..databases.transactions import refuse_inside
from ..databases.wire import Wire
from ..errors import Misuse, NotAcquired, Unsupported

_LOCK_NOT_AVAILABLE = {"55P03", 1205, 3572}
_MISSING_TABLE = 1146
Row = tuple[object, ...]
Key = Mapping[str, object]


def advisory_key(name: str) -> int:
    """64 bits of a hash of the whole name. Two names with one key wait for each other needlessly; nothing worse."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"holdfast.sql").digest()
    return int.from_bytes(digest, "big", signed=True)


def _statement(wire: Wire, name: str, values: Mapping[str, object], **slots: str) -> Statement:
    return bind(load(wire.dialect, __package__ or "")[name], wire.style, values, **slots)


async def _ready(wire: Wire, what: str) -> None:
    if wire.dialect == SQLITE:
        raise Unsupported(
            f"{what}: SQLite has one writer at a time and knows no smaller locks. BEGIN IMMEDIATE is the lock: it lasts until "
            "the transaction ends"
        )
    if not await wire.lasts():
        raise _outside(what)


def _outside(what: str) -> Misuse:
    return Misuse(
        f"{what}: no transaction is open on this connection, and under autocommit the lock would be gone at once. Begin one "
        "first"
    )


async def lock(wire: Wire, names: Sequence[str], timeout: float | None) -> None:
    if not names:
        raise Misuse("name the lock, or several")
    wanted = [valid_name(name) for name in names]
    patience = valid_timeout(timeout)
    await _ready(wire, " and ".join(map(repr, wanted[:3])))
    if wire.dialect == POSTGRESQL:
        by_key = {advisory_key(name): name for name in wanted}
        await _lock_postgresql(wire, sorted(by_key.items()), patience)
    else:
        await _lock_mysql(wire, sorted(set(wanted), key=str.encode), patience)


async def _lock_postgresql(wire: Wire, wanted: Sequence[tuple[int, str]], timeout: float | None) -> None:
    """At once, if nobody has them: one round trip each. Else behind a savepoint: running out must not spoil the transaction."""
    deadline = None if timeout is None else time.monotonic() + timeout
    for number, (key, name) in enumerate(wanted):
        found = await wire.row(_statement(wire, "try", {"key": key}))
        if number == 0 and not await wire.opened():
            raise _outside(repr(name))
        if found != (True,):
            await _wait_postgresql(wire, wanted[number:], name, timeout, deadline)
            return


async def _wait_postgresql(
    wire: Wire, wanted: Sequence[tuple[int, str]], name: str, timeout: float | None, deadline: float | None
) -> None:
    if deadline is None:
        for key, name in wanted:
            await _taking(wire, _statement(wire, "wait", {"key": key}), name, None)
        return
    if timeout == 0:
        raise _not_acquired(name, 0.0)
    async with Bounded(wire, deadline) as bounded:
        for key, name in wanted:
            await bounded.limit(name, timeout)
            await _taking(wire, _statement(wire, "wait", {"key": key}), name, timeout)


async def _lock_mysql(wire: Wire, wanted: Sequence[str], timeout: float | None) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    async with Bounded(wire, deadline) as bounded:
        for name in wanted:
            await bounded.limit(name, timeout)
            values = {"name_hex": name.encode().hex()}
            await _taking(wire, _statement(wire, "wait", values), name, timeout)


class Bounded:
    """Waits of the server's, bounded by a deadline; whatever limit the user has set himself is back afterwards."""

    def __init__(self, wire: Wire, deadline: float | None) -> None:
        self._wire = wire
        self._deadline = deadline
        self._before: object = None
        self._postgresql = wire.dialect == POSTGRESQL

    async def __aenter__(self) -> Bounded:
        if self._deadline is not None:
            (self._before,) = await self._wire.row(_statement(self._wire, "patience", {})) or (None,)
            if self._postgresql:
                if not await self._wire.opened():  # to say so ourselves: a savepoint needs a transaction
                    raise _outside("a lock with a time limit")
                await self._wire.run(_statement(self._wire, "savepoint", {}))
        return self

    async def limit(self, name: str, timeout: float | None) -> None:
        """What is left of the time, as the server counts: PostgreSQL in ms, MySQL in whole seconds."""
        if self._deadline is None:
            return
        left = self._deadline - time.monotonic()
        if left <= 0 and timeout:
            raise _not_acquired(name, timeout)
        limit: object = f"{max(1, math.ceil(left * 1000))}ms" if self._postgresql else max(0, math.ceil(left))
        await self._set(limit)

    async def _set(self, limit: object) -> None:
        statement = _statement(self._wire, "limit", {"limit": limit})
        if self._postgresql:
            await self._wire.row(statement)
        else:
            await self._wire.run(statement)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._deadline is None:
            return
        try:
            await self._restore(error)
        except Exception:
            if error is None:  # else that is the one to be heard of: the connection may be gone by now
                raise

    async def _restore(self, error: BaseException | None) -> None:
        if not self._postgresql:
            await self._set(self._before)
            return
        if error is None:
            await self._set(self._before)
        else:  # undoes the limit too, and lets go of what was locked since
            await self._wire.run(_statement(self._wire, "undo", {}))
        await self._wire.run(_statement(self._wire, "forget", {}))


async def _taking(wire: Wire, statement: Statement, name: str, timeout: float | None) -> Row | None:
    """Run it; a wait that ran out is told as everywhere in holdfast."""
    try:
        row = None
        if wire.dialect == MYSQL and statement.text.startswith("INSERT"):
            await wire.run(statement)
        else:
            row = await wire.row(statement)
        if not await wire.opened():  # only now does every driver know
            raise _outside(name)
        return row
    except Exception as error:
        code = code_of(error)
        if code in _LOCK_NOT_AVAILABLE:
            raise _not_acquired(name, timeout) from error
        if code == _MISSING_TABLE and "holdfast_transaction_locks" in str(error):
            raise Misuse(
                "this database has no table holdfast_transaction_locks: create it once, with "
                "holdfast.sql.create_table(connection) or by holdfast.sql.schema('mysql') in your migrations"
            ) from error
        raise


def _not_acquired(name: str, timeout: float | None) -> NotAcquired:
    when = (
        "in the time that the server allows" if timeout is None else f"within {timeout:g} s" if timeout else "at once"
    )
    return NotAcquired(
        f"could not get {name!r} {when}: another transaction has it. It is free when that one commits or rolls back",
        name,
    )


# ---- rows


async def lock_rows(
    wire: Wire,
    table: str | tuple[str, ...],
    keys: Sequence[Key],
    skip_locked: bool,
    nowait: bool,
    timeout: float | None,
) -> list[Row | None]:
    patience = valid_timeout(timeout)
    if (skip_locked and nowait) or ((skip_locked or nowait) and patience is not None):
        raise Misuse("skip_locked, nowait and timeout are three ways to deal with a row that is taken: choose one")
    shown = table if isinstance(table, str) else ".".join(table)
    await _ready(wire, f"a row of {shown}")
    how = " SKIP LOCKED" if skip_locked else " NOWAIT" if nowait or patience == 0 else ""
    statements = [_row(wire, table, key, how) for key in keys]
    order = sorted(range(len(keys)), key=lambda index: _sort_key(keys[index]))
    found: list[Row | None] = [None] * len(keys)
    bounded_by = None if skip_locked or (patience is None and not nowait) else time.monotonic() + (patience or 0.0)
    async with Bounded(wire, bounded_by) as bounded:
        for index in order:
            name = f"{shown} {dict(keys[index])}"
            if patience:
                await bounded.limit(name, patience)
            found[index] = await _taking(wire, statements[index], name, 0.0 if nowait else patience)
    return found


def _row(wire: Wire, table: str | tuple[str, ...], key: Key, how: str) -> Statement:
    if not isinstance(key, Mapping) or not key:
        raise Misuse(f"a row is named by its key, such as {{'id': 42}}, not by {key!r:.80}")
    if any(value is None for value in key.values()):
        raise Misuse(f"a key must not be None, which equals nothing in SQL: {dict(key)!r:.80}")
    where = " AND ".join(f"{identifier(wire.dialect, column)} = :key{number}" for number, column in enumerate(key))
    values = {f"key{number}": value for number, value in enumerate(key.values())}
    return _statement(wire, "row", values, table=table_name(wire.dialect, table), key=where, how=how)


def _sort_key(key: Key) -> list[tuple[str, str, object]]:
    """The same order in every process, whatever the types: numbers as numbers, all else as text."""
    return [
        (column, "", value) if isinstance(value, int | float) else (column, type(value).__name__, str(value))
        for column, value in sorted(key.items())
    ]


async def create_table(wire: Wire) -> None:
    if wire.dialect != MYSQL:
        return  # PostgreSQL needs none
    refuse_inside(wire)
    await wire.run(_statement(wire, "create", {}))


async def tidy(wire: Wire) -> None:
    if wire.dialect == MYSQL:
        await wire.run(_statement(wire, "tidy", {}))
