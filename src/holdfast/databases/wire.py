"""What a transaction needs of a driver. The same classes serve threads and asyncio: a call that answers with something
awaitable is awaited, and one that does not has blocked already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from .statements import Statement

log = logging.getLogger("holdfast.databases")


class Outcome(NamedTuple):
    """What a driver tells of a statement that returns no rows."""

    rows: int  # inserted or matched
    last_id: int  # MySQL only


NOTHING = Outcome(0, 0)


async def settle(answer: Any) -> Any:
    # Asked of the class, as `await` does; several times faster than inspect.isawaitable.
    return await answer if hasattr(type(answer), "__await__") else answer


class Wire(Protocol):
    """One connection of one driver."""

    dialect: str
    style: ClassVar[str]
    reads_apart: bool  # a query outside of a transaction leaves none open, whatever the mode

    def shared(self) -> object:
        """What others would have to share with us, to be in the same transaction."""

    def standalone(self) -> bool:
        """Is a statement outside of a transaction committed by itself?"""

    def busy(self) -> bool:
        """Is a transaction open already?"""

    async def lasts(self) -> bool:
        """Would a lock that the next statement takes outlive it? Not under autocommit, with no transaction open."""

    async def opened(self) -> bool:
        """Asked after a statement that changes something, and of the driver itself, since autocommit has many spellings:
        is it in a transaction?"""

    async def begin(self, first: Statement | None, watched: bool = False) -> Outcome:
        """Begin a transaction with this statement; in one round trip, where the driver can. If it raises, `end` follows.

        `watched`: others' code will run in it, and if that ends the transaction, `end` raises Misuse."""

    async def run(self, statement: Statement) -> Outcome:
        """One more statement in the open transaction."""

    async def row(self, statement: Statement) -> tuple[Any, ...] | None:
        """The first row of a query."""

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """All rows of a query."""

    async def records(self, statement: Statement) -> list[dict[str, object]]:
        """All rows of a query, by the names of their columns."""

    async def end(self, error: BaseException | None) -> None:
        """Commit, or roll back because of `error`, which is not hidden by what goes wrong then. Nothing was begun? Then nothing
        is done."""


class Queries:
    """What is asked in three ways, from one: `fetch` gives all rows, and a function that names their columns."""

    _transaction: Any = None  # ours, where the driver has an object for it
    _begun = False
    _watched = False  # nobody but us may end it

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def shared(self) -> object:
        return self._connection

    async def fetch(self, statement: Statement) -> tuple[Callable[[], Sequence[str]], list[tuple[Any, ...]]]:
        raise NotImplementedError

    async def row(self, statement: Statement) -> tuple[Any, ...] | None:
        found = (await self.fetch(statement))[1]
        return found[0] if found else None

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        return (await self.fetch(statement))[1]

    async def records(self, statement: Statement) -> list[dict[str, object]]:
        names, found = await self.fetch(statement)
        columns = names() if found else ()
        return [dict(zip(columns, row, strict=True)) for row in found]


def names_of(cursor: Any) -> Callable[[], list[str]]:
    """The columns of a DB-API cursor."""
    return lambda: [column[0] for column in cursor.description]


async def undo(roll_back: Callable[[], Any], hang_up: Callable[[], Any]) -> None:
    """Because of an error, which is the one to be heard of. If it cannot be said, the server does it for a connection that is
    gone: one with half a transaction in it must not be used again."""
    try:
        await settle(roll_back())
    except BaseException as error:
        log.debug("a transaction could not be rolled back: its connection is closed", exc_info=True)
        try:
            await settle(hang_up())
        except Exception:
            log.debug("nor could it be closed", exc_info=True)
        if not isinstance(error, Exception):  # cancelled once more
            raise
