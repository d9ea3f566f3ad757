"""Statements outside of anybody's transaction, on connections that commit by themselves and on those that do not."""

from __future__ import annotations

from ..fenced.sql.place import Outcome
from ..fenced.sql.statements import Statement
from ..fenced.sql.wire import Wire


async def run_alone(wire: Wire, statement: Statement) -> Outcome:
    """One statement, committed."""
    if wire.standalone():
        return await wire.run(statement)
    try:
        outcome = await wire.begin(statement)
    except BaseException as error:
        await wire.end(error)
        raise
    await wire.end(None)
    return outcome


async def row_alone(wire: Wire, query: Statement, after: Statement | None = None) -> tuple[object, ...] | None:
    """The first row of a query, `after` a statement if there is one; committed."""
    if wire.standalone():
        if after is not None:
            await wire.run(after)
        return await wire.row(query)
    try:
        await wire.begin(after)
        found = await wire.row(query)
    except BaseException as error:
        await wire.end(error)
        raise
    await wire.end(None)
    return found
