"""A statement inside the user's transaction, if one is open; else by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..fenced.sql.statements import Statement
from ..fenced.sql.wire import Wire


@asynccontextmanager
async def alone(wire: Wire, *, whole: bool = False) -> AsyncIterator[None]:
    """What is run inside takes part in the transaction that is open; with none, it is committed when this is left.

    A connection that commits each statement by itself is left to do so, unless several must be one (`whole`).
    """
    if wire.busy() or (wire.standalone() and not whole):
        yield
        return
    try:
        await wire.begin(Statement("SELECT 1", (), {}))
        yield
    except BaseException as error:
        await wire.end(error)
        raise
    await wire.end(None)
