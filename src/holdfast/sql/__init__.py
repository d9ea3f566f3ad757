"""Locks for people who are in a transaction already: they end with it, by commit or rollback. `holdfast.sql.aio` has the same
names for asyncio.

    with connection.transaction():
        sql.lock(connection, "account:42", "account:43", timeout=5)
        ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..databases.connections import THREADS, wire_for
from ..databases.statements import MYSQL, load, valid_dialect
from ..drivers.base import finish
from . import core
from .conflicts import is_conflict, retrying

__all__ = ["create_table", "is_conflict", "lock", "lock_row", "lock_rows", "retrying", "schema", "tidy"]

_HOME = "holdfast.sql"
Row = core.Row


def lock(connection: object, *names: str, timeout: float | None = None) -> None:
    """Wait until no other transaction has these locks, and have them until this transaction ends. Several are taken in sorted
    order, so that two transactions with the same ones cannot deadlock.

    `timeout=0` tries once; running out raises NotAcquired. None waits as long as the connection's own settings say.
    """
    finish(core.lock(wire_for(connection, THREADS, _HOME), names, timeout))


def lock_row(
    connection: object,
    table: str | tuple[str, ...],
    key: Mapping[str, Any],
    *,
    skip_locked: bool = False,
    nowait: bool = False,
    timeout: float | None = None,
) -> Row | None:
    """`SELECT * … FOR UPDATE` of one row, as a tuple. None: there is no such row, or it is taken and `skip_locked`."""
    wire = wire_for(connection, THREADS, _HOME)
    return finish(core.lock_rows(wire, table, [key], skip_locked, nowait, timeout))[0]


def lock_rows(
    connection: object,
    table: str | tuple[str, ...],
    *keys: Mapping[str, Any],
    skip_locked: bool = False,
    nowait: bool = False,
    timeout: float | None = None,
) -> list[Row | None]:
    """Several rows of one table: locked in sorted order of their keys, given in the order asked for."""
    wire = wire_for(connection, THREADS, _HOME)
    return finish(core.lock_rows(wire, table, keys, skip_locked, nowait, timeout))


def schema(dialect: str) -> str:
    """The statement that creates what `lock` needs, for your migrations; empty where it needs nothing."""
    valid_dialect(dialect)
    return load(MYSQL, __name__)["create"] + ";\n" if dialect == MYSQL else ""


def create_table(connection: object) -> None:
    """Create what `lock` needs, if it is not there: on MySQL and MariaDB, a table. Not inside a transaction: DDL commits it."""
    finish(core.create_table(wire_for(connection, THREADS, _HOME)))


def tidy(connection: object) -> None:
    """MySQL and MariaDB: forget the names that were ever locked. Waits for those that are; for a quiet hour."""
    finish(core.tidy(wire_for(connection, THREADS, _HOME)))
