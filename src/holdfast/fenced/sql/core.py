"""A fenced transaction, once for threads and asyncio: seal first, then the user's work, then commit or roll back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import Misuse
from ..mark import Ticket, mark_of
from .place import Outcome, Place, Row
from .statements import MYSQL, Statement, load
from .wire import Wire

_DEADLOCK = 1213  # MySQL: two first touches of one resource can collide on the gap where its row will be
_ATTEMPTS = 10


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
            await _admit(wire, wanted[0], outcome)
            await _seal(wire, wanted[1:])
            return
        except BaseException as error:
            await wire.end(error)
            if not (wire.dialect == MYSQL and error_code(error) == _DEADLOCK and attempt < _ATTEMPTS):
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
        await _admit(wire, place, outcome)


async def _admit(wire: Wire, place: Place, outcome: Outcome) -> None:
    if not place.accepted(outcome):
        found = await wire.row(place.look)
        if not place.confirmed(found):
            raise place.error(found)


async def create_table(wire: Wire, known: Mapping[str, str] | None = None) -> None:
    """`known`: the statements of another table than that of the marks."""
    known = load(wire.dialect) if known is None else known
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


def error_code(error: BaseException | None) -> object:
    """MySQL's error number; SQLAlchemy and Django wrap the driver's error."""
    while error is not None:
        if error.args and type(error.args[0]) is int:
            return error.args[0]
        error = getattr(error, "orig", None) or error.__cause__
    return None


def lacks_table(error: BaseException, table: str) -> bool:
    words = str(error)
    return table in words and any(sign in words for sign in ("no such table", "does not exist", "doesn't exist"))


def _explain(error: BaseException) -> None:
    """Raise what helps, if the table of marks is missing."""
    if lacks_table(error, "holdfast_fences"):
        raise Misuse(
            "this database has no table holdfast_fences: create it once, with fenced.create_table(connection) or by the "
            "statement that fenced.schema(dialect) gives for your migrations"
        ) from error
