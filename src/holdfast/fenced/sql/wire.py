"""What a transaction needs of a driver. The same classes serve threads and asyncio: a call that answers with something
awaitable is awaited, and one that does not has blocked already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

from .place import Outcome
from .statements import Statement


async def settle(answer: Any) -> Any:
    # Asked of the class, as `await` does; several times faster than inspect.isawaitable.
    return await answer if hasattr(type(answer), "__await__") else answer


def named(description: Sequence[Any], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    """Rows as mappings, by a DB-API cursor's description."""
    columns = [column[0] for column in description]
    return [dict(zip(columns, row, strict=True)) for row in rows]


class Wire(Protocol):
    """One connection of one driver."""

    dialect: str
    style: ClassVar[str]
    reads_apart: bool  # a query outside of a transaction leaves none open, whatever the mode

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

    async def row(self, statement: Statement) -> tuple[object, ...] | None:
        """The first row of a query."""

    async def records(self, statement: Statement) -> list[dict[str, object]]:
        """All rows of a query, by the names of their columns."""

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """All rows of a query."""

    async def end(self, error: BaseException | None) -> None:
        """Commit, or roll back because of `error`. Nothing was begun? Then nothing is done."""
