"""Statements that take part in the user's transaction, if one is open; else they are committed by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..errors import Misuse
from .statements import Statement, bind
from .wire import NOTHING, Outcome, Wire


@asynccontextmanager
async def alone(
    wire: Wire, first: Statement | None = None, *, whole: bool = False, reading: bool = False
) -> AsyncIterator[Outcome]:
    """What is run inside takes part in the transaction that is open; with none, it is committed when this is left. `first`
    travels with the BEGIN, if there is one; its outcome is given.

    A connection that commits each statement by itself is left to do so, unless several must be one (`whole`); and one whose
    queries leave no transaction open is left alone by those who only read (`reading`).
    """
    if wire.busy() or (wire.standalone() and not whole) or (wire.reads_apart and reading):
        yield await wire.run(first) if first else NOTHING
        return
    try:
        outcome = await wire.begin(first)
        yield outcome
    except BaseException as error:
        await wire.end(error)
        raise
    await wire.end(None)


async def run_alone(wire: Wire, statement: Statement) -> Outcome:
    if wire.standalone():  # the usual case, and the one that is in a hurry
        return await wire.run(statement)
    async with alone(wire, statement) as outcome:
        return outcome


async def row_alone(wire: Wire, query: Statement, after: Statement | None = None) -> tuple[object, ...] | None:
    """The first row of a query; `after` a statement, if there is one."""
    if after is None and (wire.reads_apart or wire.standalone()):
        return await wire.row(query)
    async with alone(wire, after):
        return await wire.row(query)


async def rows_alone(wire: Wire, query: Statement, *, writes: bool = False) -> list[tuple[Any, ...]]:
    """All rows of a query; `writes`: of a statement that also changes something, and says what it found."""
    if wire.standalone():
        return await wire.rows(query)
    async with alone(wire, reading=not writes):
        return await wire.rows(query)


async def create_all(wire: Wire, known: Mapping[str, str]) -> None:
    """The statements `create_…`, as one and in the order of their names: `create_alone` keeps others out meanwhile."""
    async with alone(wire, whole=True):
        for name in sorted(name for name in known if name.startswith("create_")):
            await wire.run(bind(known[name], wire.style, {}))


async def create_table(wire: Wire, known: Mapping[str, str]) -> None:
    """The statement `create`, with its index, where the dialect keeps that apart."""
    refuse_inside(wire)
    try:
        if "exists" in known:
            await wire.begin(Statement("SELECT 1", (), {}))
            if await wire.row(Statement(known["exists"], (), {})):
                return
            await wire.run(Statement(known["create"], (), {}))
        else:
            await wire.begin(Statement(known["create"], (), {}))
        if "create_index" in known:
            await wire.run(Statement(known["create_index"], (), {}))
    except BaseException as error:
        await wire.end(error)
        raise
    finally:
        await wire.end(None)


def refuse_inside(wire: Wire) -> None:
    if wire.busy():
        raise Misuse(
            "a transaction is open already on this connection, and to create a table in it would commit it (MySQL) or undo the "
            "table with it: create the table before, or on another connection"
        )
