"""Fenced transactions on asyncio connections: the same names."""

from __future__ import annotations

from types import TracebackType

from ...databases.connections import ASYNCIO, wire_for
from ..mark import Ticket
from . import core
from .core import C
from .place import Row


class Transaction(core.AnyTransaction[C]):
    """Made by `transaction`; `async with` gives the connection itself."""

    _world = ASYNCIO

    async def __aenter__(self) -> C:
        return await self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)


def transaction(connection: C, ticket: Ticket, *more: Ticket, row: Row | None = None) -> Transaction[C]:
    """A transaction that begins by recording the token: `StaleToken` if a newer one was here, else `async with` gives the
    connection, and all that is read and written through it is covered. Leaving commits; an error rolls back, the mark too.

    With `row`, the mark is a column of that row; else it is in the table `holdfast_fences` (`create_table`). Several
    leases may be given; all must be current.
    """
    return Transaction(connection, (ticket, *more), row)


async def seal(connection: object, ticket: Ticket, *more: Ticket, row: Row | None = None) -> None:
    """Record the token in the transaction that is open, or is about to begin by itself: *before anything is read in it*."""
    wire = wire_for(connection, ASYNCIO)
    await core.seal(wire, core.places(wire, (ticket, *more), row))


async def create_table(connection: object) -> None:
    """Create the table `holdfast_fences` if there is none."""
    await core.create_table(wire_for(connection, ASYNCIO))
