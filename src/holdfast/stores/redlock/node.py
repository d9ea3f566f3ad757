"""One node of a Redlock, as far as whoever asks it knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import HoldfastError

if TYPE_CHECKING:
    from .answers import Asked

REST = 1.0  # a node that could not be reached is left alone for so long, unless the others are too few


class Node(ABC):
    """All that it is asked goes over one connection, in its order: no release overtakes the claim that it is about.

    The connection is kept when it is slow, so that what comes late is still read; and opened again when it breaks.
    """

    def __init__(self, at: int, where: str, now: Callable[[], float]) -> None:
        self.at = at  # which one it is
        self.where = where
        self.now = now
        self.rests_until = 0.0  # it could not be reached a moment ago
        self.slow_until = 0.0  # others do not wait for it, if they can do without
        self.trouble: HoldfastError | None = None

    @property
    @abstractmethod
    def is_connected(self) -> bool: ...

    @abstractmethod
    def ask(self, request: bytes, asked: Asked, now: float) -> None:
        """On a new connection, if there is none or the old one is no good. Does not wait: `asked` is told what comes of it."""
