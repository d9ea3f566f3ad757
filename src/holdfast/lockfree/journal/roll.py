"""What keeps the events: a table or a Redis stream. One source for threads and asyncio; no call here waits for news."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ...databases.connections import ASYNCIO, THREADS

__all__ = ["ASYNCIO", "THREADS", "Roll", "Written", "roll_for"]


class Written(NamedTuple):
    """An event as it is kept."""

    stream: str
    version: int
    text: str
    position: str


class Roll(Protocol):
    async def create(self) -> None: ...

    async def append(self, stream: str, expected: int, texts: Sequence[str]) -> int | None:
        """None: appended. Else nothing was, and this is the version that was found."""

    async def version(self, stream: str) -> int: ...

    async def read(self, stream: str, after: int, most: int) -> list[Written]: ...

    async def log(self, after: str, prefix: str, most: int) -> tuple[list[Written], str]:
        """Events of all streams, and the position up to which nothing was left out."""

    async def save(self, stream: str, version: int, text: str) -> None: ...

    async def saved(self, stream: str) -> tuple[int, str] | None: ...

    async def listen(self) -> None: ...

    async def wait(self, after: str, timeout: float) -> bool:
        """Until there may be news. False: this one cannot tell; come again after a while."""

    async def unlisten(self) -> None: ...


def roll_for(connection: Any, world: str) -> Roll:
    if hasattr(connection, "xadd"):
        from .redis import RedisRoll

        return RedisRoll(connection, world)
    from .sql import SqlRoll

    return SqlRoll(connection, world)
