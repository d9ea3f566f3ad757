"""Locks of a transaction, on asyncio connections: the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..databases.connections import ASYNCIO, wire_for
from . import _HOME, Row, core, schema
from .conflicts import is_conflict, retrying

__all__ = ["create_table", "is_conflict", "lock", "lock_row", "lock_rows", "retrying", "schema", "tidy"]


async def lock(connection: object, *names: str, timeout: float | None = None) -> None:
    """Wait until no other transaction has these locks, and have them until this transaction ends. Several are taken in sorted
    order, so that two transactions with the same ones cannot deadlock.

    `timeout=0` tries once; running out raises NotAcquired. None waits as long as the connection's own settings say.
    """
    await core.lock(wire_for(connection, ASYNCIO, _HOME), names, timeout)


async def lock_row(
    connection: object,
    table: str | tuple[str, ...],
    key: Mapping[str, Any],
    *,
    skip_locked: bool = False,
    nowait: bool = False,
    timeout: float | None = None,
) -> Row | None:
    """`SELECT * … FOR UPDATE` of one row, as a tuple. None: there is no such row, or it is taken and `skip_locked`."""
    wire = wire_for(connection, ASYNCIO, _HOME)
    return (await core.lock_rows(wire, table, [key], skip_locked, nowait, timeout))[0]


async def lock_rows(
    connection: object,
    table: str | tuple[str, ...],
    *keys: Mapping[str, Any],
    skip_locked: bool = False,
    nowait: bool = False,
    timeout: float | None = None,
) -> list[Row | None]:
    """Several rows of one table: locked in sorted order of their keys, given in the order asked for."""
    return await core.lock_rows(wire_for(connection, ASYNCIO, _HOME), table, keys, skip_locked, nowait, timeout)


async def create_table(connection: object) -> None:
    """Create what `lock` needs, if it is not there: on MySQL and MariaDB, a table. Not inside a transaction: DDL commits it."""
    await core.create_table(wire_for(connection, ASYNCIO, _HOME))


async def tidy(connection: object) -> None:
    """MySQL and MariaDB: forget the names that were ever locked. Waits for those that are; for a quiet hour."""
    await core.tidy(wire_for(connection, ASYNCIO, _HOME))
