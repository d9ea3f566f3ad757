"""What ends in time although its session lives on: claims that nobody renews, and ghosts that nobody knows of."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...claim import Claim
from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Unavailable
from .entering import Entry
from .proto import LEASE_REVOKE, LEASE_TIME_TO_LIVE, TXN, lease_id, op_delete, read_lease, time_to_live, txn
from .refusals import Refused
from .session import Session

if TYPE_CHECKING:
    from .store import Wire

_NEVER = float("inf")
_IDLE = 30.0  # with nothing to sweep for so long, the sweeper goes home
_RETRY = 0.5
_AT_ONCE = 100


class Sweeper:
    """Runs in the background while this process has claims, and sleeps until the first of them is overdue."""

    def __init__(
        self, driver: Driver, entries: dict[str, Entry], release: Callable[[Claim], Awaitable[bool]]
    ) -> None:
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
                self._driver.spawn(lambda: self._run(bell), "holdfast-etcd-sweeper")

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


async def delete_ghosts(wire: Wire, session: Session, root: bytes, entries: dict[str, Entry]) -> None:
    """A claim that was given up in mid-flight may land later, on a session that lives: whatever we do not know is not ours."""
    try:
        listed = read_lease(await wire.ask(LEASE_TIME_TO_LIVE, time_to_live(session.lease, keys=True)), keys=True)
        known = {key for entry in list(entries.values()) for key in (entry.key, entry.line_key)}
        ghosts = [key for key in listed.keys if key.startswith(root) and key not in known]
        for at in range(0, len(ghosts), _AT_ONCE):
            await wire.ask(TXN, txn([], [op_delete(key) for key in ghosts[at : at + _AT_ONCE]]))
    except (Unavailable, Refused):
        return  # the next keep-alive looks again


async def revoke(wire: Wire, session: Session) -> None:
    """A tidy goodbye; without it, etcd ends the session when its time is up."""
    try:
        await wire.ask(LEASE_REVOKE, lease_id(session.lease))
    except (Unavailable, Refused):
        return
