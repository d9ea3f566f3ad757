"""Fenced transactions on blocking connections."""

from __future__ import annotations

from types import TracebackType

from ...databases.connections import THREADS, wire_for
from ...drivers.base import finish
from ..mark import Ticket
from . import core
from .core import C
from .place import Row


class Transaction(core.AnyTransaction[C]):
    """Made by `transaction`; `with` gives the connection itself."""

    _world = THREADS

    def __enter__(self) -> C:
        return finish(self._enter())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._leave(error))


def transaction(connection: C, ticket: Ticket, *more: Ticket, row: Row | None = None) -> Transaction[C]:
    """A transaction that begins by recording the token: `StaleToken` if a newer one was here, else `with` gives the
    connection, and all that is read and written through it is covered. Leaving commits; an error rolls back, the mark too.

    With `row`, the mark is a column of that row; else it is in the table `holdfast_fences` (`create_table`). Several
    leases may be given; all must be current.
    """
    return Transaction(connection, (ticket, *more), row)


def seal(connection: object, ticket: Ticket, *more: Ticket, row: Row | None = None) -> None:
    """Record the token in the transaction that is open, or is about to begin by itself: *before anything is read in it*."""
    wire = wire_for(connection, THREADS)
    finish(core.seal(wire, core.places(wire, (ticket, *more), row)))


def create_table(connection: object) -> None:
    """Create the table `holdfast_fences` if there is none."""
    finish(core.create_table(wire_for(connection, THREADS)))
