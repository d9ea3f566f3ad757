"""What ends in time although its session lives on: claims that nobody renews."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

from ...claim import Claim
from ...drivers.base import Bell, Driver
from ...errors import HoldfastError
from .entering import Entry
from .refusals import Refused

_NEVER = float("inf")
_IDLE = 30.0  # with nothing to sweep for so long, the sweeper goes home
_RETRY = 0.5


class Sweeper:
    """Runs in the background while this process has claims, and sleeps until the first of them is overdue."""

    def __init__(self, driver: Driver, entries: dict[str, Entry], release: Callable[[Claim], Awaitable[bool]]) -> None:
        self._driver = driver
        self._entries = entries
        self._release = release
        self._mutex = threading.Lock()
        self._bell: Bell | None = None
        self._wake_at = _NEVER
        self._closed = False

    def expect(self, deadline: float) -> None:
        """Something will be overdue then, unless it is renewed or released before."""
        if deadline >= self._wake_at:  # as nearly always
            return
        with self._mutex:
            self._wake_at = deadline
            if self._bell is None or not self._bell.ring():  # not started, or its event loop is gone
                self._bell = bell = self._driver.bell()
                try:
                    self._driver.spawn(lambda: self._run(bell), "holdfast-etcd-sweeper")
                except BaseException:  # no more threads to be had: the next claim tries again
                    self._bell, self._wake_at = None, _NEVER
                    raise

    def close(self) -> None:
        self._closed = True
        if self._bell is not None:
            self._bell.ring()

    async def _run(self, bell: Bell) -> None:
        idle_since: float | None = None
        while not self._closed:
            self._wake_at = _NEVER  # first: whoever comes while we look will ring
            now = self._driver.now()
            for entry in list(self._entries.values()):
                if entry.deadline <= now:
                    await self._sweep(entry, now)
            soonest = min((entry.deadline for entry in list(self._entries.values())), default=_NEVER)
            with self._mutex:
                idle_since = None if soonest < _NEVER else idle_since or now
                if idle_since is not None and now >= idle_since + _IDLE and self._wake_at == _NEVER:
                    self._bell = None
                    return
                wake_at = self._wake_at = min(self._wake_at, soonest, now + _IDLE)
            await bell.wait(max(0.0, wake_at - self._driver.now()))

    async def _sweep(self, entry: Entry, now: float) -> None:
        try:
            await self._release(entry.claim)
        except (HoldfastError, Refused):
            session = entry.session
            if session is None or now >= session.live_until + _IDLE:
                self._entries.pop(entry.claim.holder, None)  # etcd has ended it by now
            else:
                entry.deadline = now + _RETRY
