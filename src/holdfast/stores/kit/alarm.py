"""Somebody in the background who sleeps until the first of many deadlines, does what is due, and goes home when all is quiet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...drivers.base import Bell, Driver

NEVER = float("inf")
_OVERSLEPT = 1.0  # seconds; so late, it is taken for gone: its event loop was closed under it


async def _nothing() -> None:
    return None


class Alarm:
    def __init__(
        self,
        driver: Driver,
        name: str,
        idle: float,
        due: Callable[[], float],
        work: Callable[[], Awaitable[None]],
        bell: Callable[[], Bell] | None = None,
    ) -> None:
        """`work()` does what is due, `due()` is when the next is, or NEVER; after `idle` seconds of that, it goes home.

        `bell()`: what it sleeps on, if other things than this alarm are to wake it.
        """
        self.closed = False
        self.at_home: Callable[[], Awaitable[None]] = _nothing  # done last, before it goes home
        self._driver = driver
        self._name = name
        self._idle = idle
        self._due = due
        self._work = work
        self._new_bell = bell or driver.bell
        self._mutex = driver.mutex()
        self._bell: Bell | None = None  # there while it is at work
        self._wake_at = NEVER

    def expect(self, deadline: float) -> None:
        """Something is due then, unless it is put off. Said after `due()` knows of it."""
        bell = self._bell
        there = bell is not None and not bell.asleep
        if there and self._driver.now() - _OVERSLEPT < self._wake_at <= deadline:  # as nearly always
            return
        with self._mutex:
            self._wake_at = deadline
            # Not started; or its event loop is gone, or stands still while this one runs.
            if self._bell is None or self._bell.asleep or not self._bell.ring():
                self._bell = bell = self._new_bell()
                try:
                    self._driver.spawn(lambda: self._run(bell), self._name, lambda: self._needed(bell))
                except BaseException:  # no more threads to be had: the next one tries again
                    self._bell, self._wake_at = None, NEVER
                    raise

    def close(self) -> None:
        self.closed = True
        if self._bell is not None:
            self._bell.ring()

    def _needed(self, bell: Bell) -> bool:
        return self._bell is bell and not self.closed

    async def _run(self, bell: Bell) -> None:
        idle_since: float | None = None
        try:
            while not self.closed and self._bell is bell:
                self._wake_at = NEVER  # first: whoever comes while we look will ring
                await self._work()
                now, due = self._driver.now(), self._due()
                with self._mutex:
                    idle_since = None if due < NEVER else idle_since or now
                    if idle_since is not None and now >= idle_since + self._idle and self._wake_at == NEVER:
                        self._bell = None  # under the same lock as the decision: nothing is left to nobody
                        break
                    wake_at = self._wake_at = min(self._wake_at, due, now + self._idle)
                await bell.wait(max(0.0, wake_at - self._driver.now()))
            bell.close()
            if not self.closed and self._bell is None:  # else somebody in another event loop has taken over
                await self.at_home()
        finally:
            if (
                self._bell is bell
            ):  # whatever ended us: the next who comes rings, and finds out whether anybody is there
                self._wake_at = NEVER
