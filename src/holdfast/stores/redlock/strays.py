"""Claims that some node may not have let go, since the word did not get there: told again until they have run out by themselves.

A majority has let them go, so nobody waits for this. But what is left of two of them on two of three nodes would keep everybody
out until the end of their ttl.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ...claim import Claim
from ...drivers.base import Driver
from ...errors import HoldfastError
from ..redis.replies import Reply

Leave = Callable[[Claim, int], Awaitable[Sequence[Reply]]]
_MOST = 1000
_AT_ONCE = 16
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Strays:
    def __init__(self, driver: Driver, leave: Leave) -> None:
        """`leave(claim, token)`: of that claim what has that token, 0 for all; None in its answers: that node did not hear."""
        self._driver = driver
        self._leave = leave
        self.forget()

    def forget(self) -> None:
        self._owed: dict[tuple[str, int], tuple[Claim, float]] = {}  # until when it matters
        self._mutex = self._driver.mutex()
        self._at_work = False

    def add(self, claim: Claim, token: int) -> None:
        with self._mutex:
            if len(self._owed) >= _MOST:
                del self._owed[next(iter(self._owed))]
            self._owed[claim.holder, token] = claim, self._driver.now() + claim.ttl
            if self._at_work:
                return
            self._at_work = True
        try:
            self._driver.spawn(self._work, "holdfast-strays")
        except BaseException as error:
            self._at_work = False
            if not isinstance(error, RuntimeError):  # no thread, or no loop, to be had
                raise

    async def _work(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while True:
                with self._mutex:
                    if not self._owed:
                        self._at_work = False  # under the same lock as the decision: nothing is left to nobody
                        return
                await self._driver.sleep(pause)
                pause = _FIRST_PAUSE if await self._round() else min(2 * pause, _LONGEST_PAUSE)
        except BaseException:
            self._at_work = False
            raise

    async def _round(self) -> bool:
        """Did every node hear of the last one? Else it is somebody else's turn next time."""
        heard = True
        for key, (claim, until) in list(self._owed.items())[:_AT_ONCE]:
            if self._driver.now() < until:
                try:
                    heard = None not in await self._leave(claim, key[1])
                except HoldfastError:
                    heard = False
            with self._mutex:
                owed = self._owed.pop(key, None)
                if owed is not None and not heard:
                    self._owed[key] = owed
            if not heard:
                break
        return heard
