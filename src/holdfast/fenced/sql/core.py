"""A fenced transaction, once for threads and asyncio: seal first, then the user's work, then commit or roll back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from ...databases import transactions
from ...databases.connections import wire_for
from ...databases.failures import code_of, lacks_table
from ...databases.sharing import Stay
from ...databases.statements import MYSQL
from ...databases.wire import Wire
from ...errors import Misuse
from ..mark import Ticket, mark_of
from .place import Place, Row, texts

_DEADLOCK = 1213  # MySQL: two first touches of one resource can collide on the gap where its row will be
_ATTEMPTS = 10


C = TypeVar("C")


class AnyTransaction(Generic[C]):
    """What threads and asyncio share of one."""

    _world: ClassVar[str]

    def __init__(self, connection: C, tickets: tuple[Ticket, ...], row: Row | None) -> None:
        self._connection = connection
        self._wire = wire_for(connection, self._world)
        self._places = places(self._wire, tickets, row)
        self._stay: Stay | None = None

    async def _enter(self) -> C:
        stay = Stay(self._wire.shared())
        try:
            await enter(self._wire, self._places)
        except BaseException:
            stay.end()
            raise
        self._stay = stay
        return self._connection

    async def _leave(self, error: BaseException | None) -> None:
        try:
            await self._wire.end(error)
        finally:
            stay, self._stay = self._stay, None
            if stay is not None:
                stay.end()


def places(wire: Wire, tickets: Sequence[Ticket], row: Row | None) -> list[Place]:
    if len(tickets) == 1:
        return [Place(mark_of(tickets[0]), row.checked() if row else None, wire.dialect, wire.style)]
    marks = [mark_of(ticket) for ticket in tickets]
    if row is not None:
        raise Misuse("a row carries one mark: give one lease with it")
    if len({mark.resource for mark in marks}) < len(marks):
        raise Misuse("two leases of one resource were given; which of them counts?")
    # In one order everywhere, so that two transactions over the same resources cannot wait for each other.
    return [Place(mark, None, wire.dialect, wire.style) for mark in sorted(marks)]


async def enter(wire: Wire, wanted: Sequence[Place]) -> None:
    """Begin a transaction whose first statements are the seals."""
    if wire.busy():
        raise Misuse(
            "a transaction is open already on this connection: what was read in it before the seal is not covered. Commit it "
            "or roll it back first (with Django's autocommit off one is always open: turn it on); or, if nothing was read in "
            "it yet, use fenced.seal(connection, lease) in it"
        )
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            outcome = await wire.begin(wanted[0].seal, watched=True)
            if not wanted[0].accepted(outcome):
                await _look(wire, wanted[0])
            if len(wanted) > 1:
                await _seal(wire, wanted[1:])
            return
        except BaseException as error:
            await wire.end(error)
            if not (wire.dialect == MYSQL and code_of(error) == _DEADLOCK and attempt < _ATTEMPTS):
                _explain(error)
                raise
    raise AssertionError("the last attempt returns or raises")


async def seal(wire: Wire, wanted: Sequence[Place]) -> None:
    """The seals alone, in a transaction that is open or begins with them. Outside of one they would protect nothing."""
    if not await wire.lasts():
        raise _outside()
    await _seal(wire, wanted)
    if not await wire.opened():  # only now does every driver know
        raise _outside()


def _outside() -> Misuse:
    return Misuse(
        "no transaction is open on this connection, and under autocommit the seal would be committed by itself: what follows "
        "would not be guarded. Begin a transaction first, or use fenced.transaction(connection, lease)"
    )


async def _seal(wire: Wire, wanted: Sequence[Place]) -> None:
    for place in wanted:
        try:
            outcome = await wire.run(place.seal)
        except Exception as error:
            _explain(error)
            raise
        if not place.accepted(outcome):
            await _look(wire, place)


async def _look(wire: Wire, place: Place) -> None:
    """Why it was not accepted; or that it was, after all."""
    found = await wire.row(place.look)
    if not place.confirmed(found):
        raise place.error(found)


async def create_table(wire: Wire) -> None:
    await transactions.create_table(wire, texts(wire.dialect))


def _explain(error: BaseException) -> None:
    """Raise what helps, if the table of marks is missing."""
    if lacks_table(error, "holdfast_fences"):
        raise Misuse(
            "this database has no table holdfast_fences: create it once, with fenced.create_table(connection) or by the "
            "statement that fenced.schema(dialect) gives for your migrations (in Django: manage.py migrate)"
        ) from error
