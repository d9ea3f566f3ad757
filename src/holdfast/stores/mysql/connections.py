"""What a connection is, in threads (connection.py) and in asyncio (connection_aio.py) alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from .url import Target

Rows = list[tuple[Any, ...]]


class Connection(Protocol):
    """One connection. It holds no logic: asks, and gives all the sets of rows that come back."""

    @property
    def server(self) -> str:
        """The version that the server says to be."""
        ...

    @property
    def name(self) -> str:
        """The server has a named lock, `holdfast:line:<name>`, for as long as its side of this connection lives."""
        ...

    async def ask(self, statement: str, within: float) -> list[Rows]:
        """Raises ServerError, after which the connection is good; or Unavailable, and then it is closed."""
        ...

    def alive(self) -> bool:
        """False: it is in the middle of an answer, or the server has closed it, or says so, while nobody asked anything."""
        ...

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call back, from wherever, when the server ends an idle connection."""
        ...

    def bear(self, seconds: float) -> None:
        """How long the kernel may send into the void before it ends the connection."""
        ...

    def close(self) -> None:
        """From any thread, also while another reads there: who does is told that it is closed."""
        ...

    def disown(self) -> None:
        """In a forked child: let go of our copy, without a word to the server."""
        ...


Dial = Callable[[Target, float], Awaitable[Connection]]
