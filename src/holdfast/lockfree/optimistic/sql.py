"""PostgreSQL, MySQL and MariaDB, SQLite: read the row with its version, write it if the version is still the same.

Rule 1: one row takes two statements and no transaction, where the connection commits by itself; nothing is locked while
        the user's function runs.
Rule 2: several rows take one transaction; each is checked, also those that are only read, and they are written in one order.
Rule 3: whether the row was matched is asked of the driver's row count in a way that means the same on every connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ...databases.connections import wire_for
from ...databases.failures import collided
from ...databases.transactions import run_alone
from ...databases.wire import Wire, settle
from ...errors import Missing, Misuse
from .retry import Attempt, Pauses, Retry, outdated, persist, retry_of, valid_expected, valid_version
from .row import Key, Row, Table

Record = dict[str, Any]
Changes = Mapping[str, object] | None
Change = Callable[[Record], Changes | Awaitable[Changes]]
ChangeAll = Callable[[list[Record]], Sequence[Changes] | Awaitable[Sequence[Changes]]]

PACKAGE = "holdfast.lockfree.optimistic"
VERSION = "version"


async def update(
    driver: Pauses, world: str, connection: Any, table: Table, key: Key, change: Change, version: str, expected: object,
    retry: Retry | None,
) -> Record:  # fmt: skip
    wire = wire_for(connection, world, PACKAGE)
    row = Row(table, key, version, wire.dialect, wire.style)
    expected = valid_expected(expected, row)
    inside = _joins(wire, connection, retry, expected)

    async def attempt() -> Attempt[Record]:
        if wire.standalone() or inside:
            return await _one(wire, row, change, expected, wire.run)
        if wire.reads_apart:
            return await _one(wire, row, change, expected, wire.begin, wire.end)
        return await _transaction(wire, lambda: _one(wire, row, change, expected, wire.run))

    return await persist(driver, retry_of(retry, expected), row, attempt)


async def _one(wire: Wire, row: Row, change: Change, expected: object, write: Any, end: Any = None) -> Attempt[Record]:
    record = await _read(wire, row)
    seen = valid_version(record.get(row.version), row)
    if expected is not None and seen != expected:
        raise outdated(str(row), expected, seen)
    changes = _valid_changes(await settle(change(dict(record))), row)
    if changes is None:
        return Attempt(seen, True, record)
    statement = row.write(changes, seen)
    try:
        written = (await write(statement)).rows > 0
    except BaseException as error:
        if end is not None:
            await end(error)
        if collided(error):
            return Attempt(seen, False, record)
        raise
    if end is not None:
        await end(None)
    return Attempt(seen, written, {**record, **changes, row.version: seen + 1} if written else record)


async def update_all(
    driver: Pauses, world: str, connection: Any, rows: Sequence[tuple[Table, Key]], change: ChangeAll, version: str,
    retry: Retry | None,
) -> list[Record]:  # fmt: skip
    wire = wire_for(connection, world, PACKAGE)
    named = [Row(table, key, version, wire.dialect, wire.style) for table, key in rows]
    if not named:
        raise Misuse("no rows were given")
    if len({row.order() for row in named}) < len(named):
        raise Misuse("one row was given twice: its second change would find the version of the first")
    inside = _joins(wire, connection, retry, None)
    what = " and ".join(map(str, named))

    async def attempt() -> Attempt[list[Record]]:
        if inside:
            return await _all(wire, named, change)
        return await _transaction(wire, lambda: _all(wire, named, change))

    return await persist(driver, retry_of(retry, None), what, attempt)


async def _all(wire: Wire, rows: list[Row], change: ChangeAll) -> Attempt[list[Record]]:
    records = [await _read(wire, row) for row in rows]
    seen = tuple(valid_version(record.get(row.version), row) for row, record in zip(rows, records, strict=True))
    answer = await settle(change([dict(record) for record in records]))
    if answer is None or isinstance(answer, Mapping) or len(answer) != len(rows):
        raise Misuse(f"the change of {len(rows)} rows must answer with {len(rows)} mappings (or None), one a row")
    changes = [_valid_changes(one, row) for one, row in zip(answer, rows, strict=True)]
    if all(one is None for one in changes):
        return Attempt(seen, True, records)
    for number in sorted(range(len(rows)), key=lambda number: rows[number].order()):
        # A row that was only read is written too, its version alone: else what was decided by it might not hold any more.
        statement = rows[number].write(changes[number] or {}, seen[number])
        if (await wire.run(statement)).rows == 0:
            return Attempt(seen, False, records)
    after = [
        {**record, **(one or {}), row.version: version + 1}
        for row, record, one, version in zip(rows, records, changes, seen, strict=True)
    ]
    return Attempt(seen, True, after)


async def swap(
    world: str, connection: Any, table: Table, key: Key, changes: str, where: str, values: Mapping[str, object]
) -> bool:
    wire = wire_for(connection, world, PACKAGE)
    statement = Row(table, key, VERSION, wire.dialect, wire.style).swap(changes, where, values)
    outcome = await (wire.run(statement) if _open(wire, connection) else run_alone(wire, statement))
    return outcome.rows > 0 or outcome.last_id > 0


async def _transaction(wire: Wire, work: Callable[[], Awaitable[Attempt[Any]]]) -> Attempt[Any]:
    """The work in a transaction, rolled back if it was not written. A collision that the server saw is no more than that."""
    seen: object = "none: the server chose another transaction"
    try:
        await wire.begin(None)  # not watched: a savepoint would hold SQLite's lock between the read and the write
        done = await work()
    except BaseException as error:
        await wire.end(error)
        if not collided(error):
            raise
        return Attempt(seen, False, None)
    try:
        await wire.end(None if done.written else _Abandoned())
    except Exception as error:
        if not (done.written and collided(error)):  # PostgreSQL, SERIALIZABLE: only the commit may tell
            raise
        return Attempt(done.seen, False, None)
    return done


class _Abandoned(Exception):
    """Tells a driver to roll back."""


def _open(wire: Wire, connection: Any) -> bool:
    return wire.busy() or getattr(connection, "in_atomic_block", False)  # Django's


def _joins(wire: Wire, connection: Any, retry: Retry | None, expected: object) -> bool:
    """In the user's own transaction there is just one attempt: what it has read, it may not be able to see anew."""
    if expected is not None or (retry is not None and retry.attempts == 1):
        return _open(wire, connection)
    if wire.busy():
        raise Misuse(
            "a transaction is open already on this connection, and a second attempt in it may not see what others have "
            "written. Commit it first; or pass retry=optimistic.ONCE, and roll back on Conflict"
        )
    return False


async def _read(wire: Wire, row: Row) -> Record:
    found = await wire.records(row.read())
    if not found:
        raise Missing(f"there is no row {row}: insert it first, with {row.version} 0")
    if len(found) > 1:
        raise Misuse(f"{row} names {len(found)} rows: give the whole of its key")
    return found[0]


def _valid_changes(changes: object, row: Row) -> Mapping[str, object] | None:
    if changes is not None and not isinstance(changes, Mapping):
        raise Misuse(
            f"the change of {row} must answer with a mapping of columns to new values, or None to leave it as it is, not "
            f"with {type(changes).__name__}"
        )
    return changes
