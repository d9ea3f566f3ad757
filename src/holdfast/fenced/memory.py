"""Fenced storage in memory: for tests of code that will use the real kind, and the model that the others are held to."""

from __future__ import annotations

import threading
import time
from typing import Generic, TypeVar

from .mark import Mark, Ticket, mark_of, refusal

V = TypeVar("V")


class Memory(Generic[V]):
    """One value a resource, each behind its mark. Safe between threads, and between the tasks of an event loop."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._values: dict[str, V] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"<Memory of {len(self._values)} resources>"

    def read(self, ticket: Ticket) -> V | None:
        """The value, or None if there is none; from now on, older tokens are refused."""
        mark = mark_of(ticket)
        with self._mutex:
            self._seal(mark)
            return self._values.get(mark.resource)

    def write(self, ticket: Ticket, value: V) -> None:
        mark = mark_of(ticket)
        with self._mutex:
            self._seal(mark)
            self._values[mark.resource] = value

    def delete(self, ticket: Ticket) -> bool:
        """Forget the value, never the mark. Was there one?"""
        mark = mark_of(ticket)
        with self._mutex:
            self._seal(mark)
            return self._values.pop(mark.resource, None) is not None

    def seen(self, resource: str) -> int:
        """The highest token seen, 0 before the first. To look at, never to decide by."""
        return self._seen.get(resource, (0, 0.0))[0]

    def _seal(self, mark: Mark) -> None:
        seen, since = self._seen.get(mark.resource, (0, 0.0))
        if mark.token < seen:
            raise refusal(mark, seen, since)
        if mark.token > seen:
            self._seen[mark.resource] = mark.token, time.time()
