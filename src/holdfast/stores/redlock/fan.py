"""One question to all nodes at once, until enough is known. Nobody is waited for alone, not even to connect.

How a world waits for many at once is all that differs: a thread polls (polled.py), elsewhere whatever comes is read in the
background (shared.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ...errors import HoldfastError
from ..redis.replies import Reply
from .answers import Question, Round
from .node import Node

LAST = 0.05  # seconds that the last nodes have to say that they let us go, when a majority has


class Fan(ABC):
    """Asks all nodes at once. A majority is waited for `within` seconds at most, the others `share`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._closed = False
        self._last: tuple[Sequence[Node], Sequence[Reply]] = (), ()

    @property
    def trouble(self) -> list[HoldfastError | None]:
        """Of those who did not answer the last question."""
        return [node.trouble if answer is None else None for node, answer in zip(*self._last, strict=True)]

    async def _over(self, asked: Round, step: Callable[[float], object] | None = None) -> list[Reply]:
        """When it is, what was answered. `step`: where answers do not come in by themselves, hears some, or waits so long."""
        now, bell = asked.asked, asked.bell
        try:
            while not asked.over:
                until = asked.late if now < asked.late else asked.ends
                if step is not None:
                    step(until - now)
                elif bell is not None:
                    await bell.wait(until - now)
                now = self._now()
                if not asked.over:
                    asked.look(now)
        finally:
            asked.over = True
            if now >= asked.late:
                asked.is_late(now)
        self._last = asked.nodes, asked.answers
        return asked.answers

    @abstractmethod
    def ask(self, question: Question, share: float, within: float) -> Coroutine[Any, Any, list[Reply]]:
        """Of who leaves, later answers are put into the list as well."""

    @abstractmethod
    def ask_apart(self, question: Question, share: float, within: float) -> Coroutine[Any, Any, list[Reply]]:
        """On connections that user work cannot keep busy."""

    @abstractmethod
    async def settle(self, within: float = 0.0) -> None:
        """Read what has come late, and wait so long for what is still wanted."""

    @abstractmethod
    def forked(self) -> None: ...

    async def close(self) -> None:
        self._closed = True
        # A connection that is closed with answers unread is reset, and a node may never read what it was sent last.
        try:
            await self.settle(LAST)
        finally:
            await self._drop()

    @abstractmethod
    async def _drop(self) -> None:
        """All connections."""
