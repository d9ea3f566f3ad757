"""Waiting for news: until when, and for how long at a time."""

from __future__ import annotations

from ..drivers.base import boot_time, uniform

LOOK_AGAIN = (
    0.5  # seconds: news may show later than its bell rang, when an older transaction has ended or a lease is over
)


class Patience:
    """How long one still waits, and for how long until one looks again."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._pause = 0.005
        self.heard()

    def heard(self) -> None:
        self._until = None if self._timeout is None else boot_time() + self._timeout
        self._pause = 0.005

    def over(self) -> bool:
        return self._until is not None and boot_time() >= self._until

    def block(self) -> float:
        """For a store that wakes us."""
        return self._left(LOOK_AGAIN)

    def pause(self) -> float:
        """For a store that cannot: look soon, then less and less often, and never all at the same moment."""
        self._pause = min(self._pause * 1.5, 0.1)
        return self._left(uniform(self._pause / 2, self._pause))

    def _left(self, seconds: float) -> float:
        return seconds if self._until is None else max(0.001, min(seconds, self._until - boot_time()))
