"""What is asked of connections in threads and in asyncio, each in its own way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol, Self
from weakref import ref

from ...drivers.base import Bell
from .statements import Params, Row, Statement
from .url import Target

Heard = Callable[[str, str], None]  # channel and payload of a notification
# Asked of a connection that has been silent for a moment, and how long it is still waited for. Broken: no longer.
Doubted = Callable[[Any, float], Coroutine[Any, Any, None]]


class Rung(Protocol):
    rung: bool


class Connection(Protocol):
    """A connection, and how its answers are waited for: see BlockingConnection, for threads, and Lane, for asyncio."""

    shares: ClassVar[bool]  # several may ask at once, and are answered together
    prepared: bool  # the server knows our statements by name
    used: float
    listens: bool  # what is told to all is for us
    doubted: ref[Doubted] | None  # how to find out whether it is to blame for its silence

    @classmethod
    def begin(cls, target: Target, addresses: str = "") -> Self: ...
    def step(self) -> int | None: ...
    async def until_ready(self, what: int, deadline: float) -> bool: ...
    def start(self) -> None: ...
    @property
    def pid(self) -> int: ...
    def ask(self, statement: Statement, params: Params, deadline: float) -> Awaitable[list[Row]]: ...
    def tell(self, sql: str, deadline: float) -> Awaitable[list[Row]]: ...
    def is_stale(self) -> bool: ...
    async def speaks(self, within: float) -> bool:
        """Does anything come within so many seconds?"""
        ...

    @property
    def stranded(self) -> bool:
        """Its event loop is over: it is connected, and cannot be asked."""
        ...

    def hang_up(self) -> None: ...
    def close(self) -> None: ...
    def disown(self) -> None: ...


class ListeningConnection(Connection, Protocol):
    @property
    def unread(self) -> bool:
        """Its event loop is over, or stands still: nobody hears what it is told."""
        ...

    def attend(self, heard: Heard, lost: Callable[[Any], None]) -> None:
        """From now on say what is heard; and, if nobody has to read for that, that it is lost."""
        ...

    def read(self, mine: Rung, deadline: float) -> None:
        """Until then, or until that has rung. Unavailable: it is no good any more."""
        ...


class WatchersBell(Bell, Protocol):
    def disown(self) -> None:
        """In a forked child."""
        ...


class Answer(Protocol):
    def done(self) -> bool: ...
    def result(self) -> list[Row]: ...


class WatchedConnection(Connection, Protocol):
    """A lock lives with it. Only `ask` waits; what is posted may take as long as it likes."""

    mutex: Any  # of whoever uses it and the watcher; who has it may take it again
    ended: Callable[[], None]  # called whenever, and however, it ends

    def post(self, statement: Statement, params: Params, then: Callable[[Any], object]) -> Answer: ...
    def look(self) -> None:
        """Read what has come, if no loop does."""
        ...

    def bell(self, answer: Any) -> WatchersBell:
        """Rung, too, when that may be there."""
        ...

    @staticmethod
    def watching(connections: Callable[[], Iterable[Any]]) -> WatchersBell:
        """Rung, too, when there is something to look at, if no loop does."""
        ...


class Kinds(NamedTuple):
    """Of connections, in threads or in asyncio."""

    plain: type[Connection]
    listening: type[ListeningConnection]
    watched: type[WatchedConnection]
