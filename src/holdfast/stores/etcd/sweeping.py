"""What ends in time although its session lives on: claims that nobody renews.

Rule 1: never under the hands of its owner, who may be late and yet alive: a server, a network or this very process may have
        stood still for longer than the ttl. Who claims is left alone, and who is being swept away waits before it claims.
Rule 2: what is swept away is what was there when it was decided, by etcd's revision. A request to sweep that arrives late
        does not hit what its owner has claimed since.
Rule 3: the owner may come back, so nothing is left in its way. What may yet arrive of it is swept away when it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...claim import Claim
from ...drivers.base import Driver
from ...errors import Unavailable
from ..kit.alarm import NEVER, Alarm
from .claiming import Record
from .sessions import LATE

_IDLE = 30.0  # with nothing to sweep for so long, the sweeper goes home
_RETRY = 0.5
_AGAIN = 2.0  # so often, while something of it may yet arrive
_PAUSE = 0.005


class Sweeper:
    """Runs in the background while this process has claims, and sleeps until the first of them is overdue."""

    def __init__(
        self,
        driver: Driver,
        records: dict[str, Record],
        release: Callable[[Claim], Awaitable[bool]],
        clear: Callable[[Record], Awaitable[None]],
    ) -> None:
        self._driver = driver
        self._records = records
        self._release = release
        self._clear = clear
        self.alarm = Alarm(driver, "holdfast-etcd-sweeper", _IDLE, self._due, self._work)

    async def let_go(self, entry: Record, deadline: float) -> None:
        """Called by its owner, which has said that it is claiming: until nobody sweeps it."""
        while entry.sweeping:
            if self._driver.now() >= deadline:
                raise Unavailable(f"{entry.claim.name!r} ran out, and etcd did not answer in time when it was to end")
            await self._driver.sleep(_PAUSE)

    def _due(self) -> float:
        return min((entry.deadline for entry in list(self._records.values())), default=NEVER)

    async def _work(self) -> None:
        now = self._driver.now()
        for entry in list(self._records.values()):
            if entry.deadline <= now:
                await self._sweep(entry, now)

    async def _sweep(self, entry: Record, now: float) -> None:
        entry.sweeping = True  # first, then look: who claims does it the other way round
        try:
            if entry.claiming:
                entry.deadline = now + _RETRY
            elif entry.leaving:  # its owner has left it, and does not come back
                await self._release(entry.claim)
            else:
                await self._clear(entry)
                entry.swept = entry.swept or now
                if not entry.doubtful or now >= entry.swept + LATE:
                    self._records.pop(entry.claim.holder, None)
                entry.deadline = now + _AGAIN
        except Exception:  # whatever it is, the others must end in time
            session = entry.session
            if session is None or now >= session.live_until + _IDLE:
                self._records.pop(entry.claim.holder, None)  # etcd has ended it by now
            else:
                entry.deadline = now + _RETRY
        finally:
            entry.sweeping = False
