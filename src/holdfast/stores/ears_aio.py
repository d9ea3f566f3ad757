"""How tasks hear bells: one connection a store that listens. See ears.py for why none is lost."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic

from .ears import What


class LoopBell(Generic[What]):
    """One waiting task's."""

    __slots__ = ("rung", "waiter", "what")

    def __init__(self, what: What) -> None:
        self.what: What = what
        self.rung = False
        self.waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class LoopEar(ABC, Generic[What]):
    """The ear of one store."""

    def _fresh(self) -> None:
        self._bells: dict[What, list[LoopBell[What]]] = {}

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    def expect(self, what: What) -> LoopBell[What]:
        bell = LoopBell(what)
        self._bells.setdefault(what, []).append(bell)
        return bell

    def forget(self, bell: LoopBell[What]) -> None:
        some = self._bells.get(bell.what, [])
        if bell in some:
            some.remove(bell)
        if not some:
            self._bells.pop(bell.what, None)

    async def hear(self, bell: LoopBell[What], timeout: float) -> None:
        """Until it rings, or the connection breaks, or `timeout`."""
        if not bell.rung and self.is_open:
            loop = asyncio.get_running_loop()
            bell.waiter = loop.create_future()
            timer = loop.call_later(max(timeout, 0.0), bell.wake)
            try:
                await bell.waiter
            finally:
                timer.cancel()
                bell.waiter = None
        bell.rung = False

    def ring(self, what: What) -> None:
        for bell in self._bells.get(what, ()):
            bell.ring()

    def ring_all(self) -> None:
        """The connection is no good: wake everybody to look for themselves."""
        for what in list(self._bells):
            self.ring(what)
