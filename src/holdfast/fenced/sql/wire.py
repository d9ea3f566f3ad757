"""What a transaction needs of a driver. The same classes serve threads and asyncio: a call that answers with something
awaitable is awaited, and one that does not has blocked already."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, ClassVar, Protocol

from .place import Outcome
from .statements import Statement


async def settle(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


class Wire(Protocol):
    """One connection of one driver."""

    dialect: str
    style: ClassVar[str]

    def busy(self) -> bool:
        """Is a transaction open already?"""

    async def lasts(self) -> bool:
        """Would a lock that the next statement takes outlive it? Not under autocommit, with no transaction open."""

    async def begin(self, first: Statement) -> Outcome:
        """Begin a transaction with this statement; in one round trip, where the driver can. If it raises, `end` follows."""

    async def run(self, statement: Statement) -> Outcome:
        """One more statement in the open transaction."""

    async def row(self, statement: Statement) -> tuple[object, ...] | None:
        """The first row of a query."""

    async def end(self, error: BaseException | None) -> None:
        """Commit, or roll back because of `error`. Nothing was begun? Then nothing is done."""
