"""Connections of one store, for threads and asyncio alike: lent out one at a time, replaced when they break."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ...drivers.base import Driver
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
    def connection_id(self) -> int: ...

    async def ask(self, statement: str, within: float) -> list[Rows]:
        """Raises ServerError, after which the line is good; or Unavailable, and then it is closed."""
        ...

    def alive(self) -> bool:
        """False: the server has closed it, or says so, while nobody asked anything."""
        ...

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call back, from wherever, when the server ends an idle line."""
        ...

    def close(self) -> None: ...

    def disown(self) -> None:
        """In a forked child: let go of our copy, without a word to the server."""
        ...


Dial = Callable[[Target, float], Awaitable[Line]]


class Pool:
    def __init__(self, dial: Callable[[float], Awaitable[Line]], driver: Driver, size: int, where: str) -> None:
        self._dial = dial
        self._driver = driver
        self._size = size
        self._where = where
        self._everything: set[Line] = set()
        self.forked()

    def forked(self) -> None:
        for line in self._everything:
            line.disown()
        self._everything = set()
        self._idle: list[Line] = []
        self._lent = 0
        self._waiting: deque[Any] = deque()
        self._mutex = threading.Lock()
        self._closed = False

    async def take(self, within: float) -> Line:
        """A live connection; waits for one to come back if all are lent out."""
        give_up = self._driver.now() + within
        bell = None
        line: Line | None
        while True:
            with self._mutex:
                if self._idle or self._lent < self._size:
                    line = self._idle.pop() if self._idle else None
                    self._lent += 1
                    break
                if bell is None:
                    bell = self._driver.bell()
                self._waiting.append(bell)
            left = give_up - self._driver.now()
            if left > 0:
                try:
                    await bell.wait(left)
                finally:
                    with self._mutex:
                        if bell in self._waiting:
                            self._waiting.remove(bell)
                continue
            raise Unavailable(
                f"all {self._size} connections to MySQL at {self._where} have been busy for {within:g} s: raise ?pool"
            )
        try:
            if line is not None and not line.alive():
                self._everything.discard(line)
                line.close()
                line = None
            if line is None:
                line = await self._dial(max(give_up - self._driver.now(), 0.001))
                self._everything.add(line)
        except BaseException:
            self._one_less()
            raise
        return line

    def give_back(self, line: Line) -> None:
        """One that broke, or was left in the middle of an answer, is closed already."""
        alive = line.alive()
        with self._mutex:
            keep = alive and not self._closed and line in self._everything
            if keep:
                self._idle.append(line)
            else:
                self._everything.discard(line)
        if not keep:
            line.close()
        self._one_less()

    def _one_less(self) -> None:
        with self._mutex:
            self._lent = max(0, self._lent - 1)
            bell = self._waiting.popleft() if self._waiting else None
        if bell is not None:
            bell.ring()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            self._everything.discard(line)
            line.close()
