"""Connections of one store, for threads and asyncio alike: lent out one at a time, first come, first served."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ...drivers.base import Bell, Driver
from ...errors import Unavailable
from .url import Target

Rows = list[tuple[Any, ...]]


class Line(Protocol):
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
        """Raises ServerError, after which the line is good; or Unavailable, and then it is closed."""
        ...

    def alive(self) -> bool:
        """False: it is in the middle of an answer, or the server has closed it, or says so, while nobody asked anything."""
        ...

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call back, from wherever, when the server ends an idle line."""
        ...

    def bear(self, seconds: float) -> None:
        """How long the kernel may send into the void before it ends the line."""
        ...

    def close(self) -> None:
        """From any thread, also while another reads there: who does is told that it is closed."""
        ...

    def disown(self) -> None:
        """In a forked child: let go of our copy, without a word to the server."""
        ...


Dial = Callable[[Target, float], Awaitable[Line]]


class Turn:
    """Somebody's use of one connection: waited for, had, given back."""

    __slots__ = ("__weakref__", "bell", "line")

    def __init__(self) -> None:
        self.line: Line | None = None
        self.bell: Bell | None = None


class Pool:
    """Knows who is out, and their connections, weakly: what an interruption lost sight of is no longer counted."""

    def __init__(self, dial: Callable[[float], Awaitable[Line]], driver: Driver, size: int, where: str) -> None:
        self._dial = dial
        self._driver = driver
        self._size = size
        self._where = where
        self._everything: weakref.WeakSet[Line] = weakref.WeakSet()
        self.forked()

    def forked(self) -> None:
        for line in list(self._everything):
            line.disown()
        self._everything = weakref.WeakSet()
        self._idle: list[Line] = []
        self._out: weakref.WeakSet[Turn] = weakref.WeakSet()
        self._waiting: deque[Turn] = deque()
        self._mutex = threading.Lock()
        self._closed = False

    async def take(self, turn: Turn, within: float) -> Line:
        """A live connection. If all are lent out, the next that comes back is handed over, and no newcomer can be faster."""
        give_up = self._driver.now() + within
        with self._mutex:
            if self._waiting or len(self._out) >= self._size:
                turn.bell = self._driver.bell()
                self._waiting.append(turn)
            else:
                self._lend(turn)
        while turn.bell is not None and turn not in self._out:
            left = give_up - self._driver.now()
            if left <= 0:
                raise Unavailable(
                    f"all {self._size} connections to MySQL at {self._where} were busy for {within:.2g} s: raise ?pool"
                )
            await turn.bell.wait(left)
        if turn.line is not None and not turn.line.alive():
            turn.line.close()
            turn.line = None
        if turn.line is None:
            turn.line = await self._dial(max(give_up - self._driver.now(), 0.001))
            self._everything.add(turn.line)
        return turn.line

    def _lend(self, turn: Turn) -> None:
        turn.line = self._idle.pop() if self._idle else None
        self._out.add(turn)

    def give_back(self, turn: Turn) -> None:
        """Whatever became of it: still waiting, had, or broken. Repeating is harmless."""
        line = turn.line
        usable = line is not None and line.alive()
        next_ones: list[Turn] = []
        with self._mutex:
            turn.line = None
            if turn in self._waiting:
                self._waiting.remove(turn)
            if line is not None and usable and not self._closed and line in self._everything:
                self._idle.append(line)
                line = None
            self._out.discard(turn)
            while self._waiting and len(self._out) < self._size:
                next_ones.append(self._waiting.popleft())
                self._lend(next_ones[-1])
        if line is not None:
            line.close()
        for one in next_ones:
            if one.bell is not None and not one.bell.ring():  # its event loop is gone
                self.give_back(one)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()
