"""Claims that some node has not yet said to have let go. If it does not do so soon, it is told again, until their time is over.

A majority has let them go, so nobody waits for this. But what is left of two of them on two of three nodes would keep everybody
out until the end of their ttl.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from ...claim import ROUND, Claim
from ...drivers.base import Bell, Driver
from ...errors import HoldfastError
from ..redis.replies import Reply

Leave = Callable[[Claim, int, float, Sequence[Reply]], Awaitable[Sequence[Reply]]]
Settle = Callable[[], Awaitable[None]]
_MOST = 4000
_AT_ONCE = 64
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.25
_LINGERS = (
    2.0  # seconds after the last one: most who left will do so again, and to start a thread takes longer than to leave
)


class Stray(NamedTuple):
    claim: Claim
    token: int  # of that claim what has this token or a lower one; 0: all
    since: float
    answers: list[Reply]  # a node's number: it has let go. Those that come late are put in here

    @property
    def is_heard(self) -> bool:
        return all(type(answer) is int for answer in self.answers)


class Strays:
    def __init__(self, driver: Driver, settle: Settle, leave: Leave) -> None:
        """`settle()` reads what has come late. `leave(claim, token, within, answers)`: see Stray."""
        self._driver = driver
        self._settle = settle
        self._leave = leave
        self.forget()

    def forget(self) -> None:
        self._owed: dict[str, Stray] = {}  # by holder: whoever tries often counts once
        self._mutex = self._driver.mutex()
        self._bell: Bell | None = None  # of whoever is at work

    async def close(self, within: float) -> None:
        """Who has not heard is told once more: nobody does so later."""
        deadline = self._driver.now() + within
        owed, bell = self._owed, self._bell
        self.forget()
        if bell is not None:
            bell.ring()
        if owed:
            await self._settle()
        for stray in list(owed.values()):
            left = deadline - self._driver.now()
            if left > 0 and not stray.is_heard and self._driver.now() < stray.since + stray.claim.ttl:
                with contextlib.suppress(HoldfastError):
                    await self._leave(stray.claim, stray.token, left, stray.answers)

    def add(self, claim: Claim, token: int, answers: list[Reply]) -> None:
        bell: Bell | None = None
        try:
            with self._mutex:
                if len(self._owed) >= _MOST:
                    self._drop_settled()
                if len(self._owed) >= _MOST:  # room for many at once: to look at all of them takes its time
                    for oldest in list(islice(self._owed, _MOST // 16 + 1)):
                        del self._owed[oldest]
                before = self._owed.pop(claim.holder, None)
                if before is not None and token:  # what is taken back now is higher, and takes along what was before
                    token = before.token and max(token, before.token)
                self._owed[claim.holder] = Stray(claim, token, self._driver.now(), answers)
                if self._bell is not None and not self._bell.asleep:
                    return
                bell = self._driver.bell()
                self._bell = bell
            self._driver.spawn(partial(self._work, bell), "holdfast-strays")
        except BaseException as error:
            if self._bell is bell:
                self._bell = None  # whoever comes next begins anew
            if not isinstance(error, RuntimeError):  # no thread to be had
                raise

    async def _work(self, bell: Bell) -> None:
        pause = _FIRST_PAUSE
        needed = self._driver.now()
        try:
            while self._bell is bell:
                await bell.wait(pause)
                await self._settle()
                with self._mutex:
                    self._drop_settled()
                    if self._owed:
                        needed = self._driver.now()
                    elif self._driver.spawns_lightly or self._driver.now() > needed + _LINGERS:
                        self._bell = None  # under the same lock as the decision: nothing is left to nobody
                        return
                pause = _FIRST_PAUSE if await self._round() else min(2 * pause, _LONGEST_PAUSE)
        except BaseException:
            if self._bell is bell:
                self._bell = None
            raise

    def _drop_settled(self) -> None:
        now = self._driver.now()
        for holder, stray in list(self._owed.items()):
            if stray.is_heard or now >= stray.since + stray.claim.ttl:
                del self._owed[holder]

    async def _round(self) -> bool:
        """Did every node hear of the last one? Else it is somebody else's turn next time."""
        heard = True
        for holder, stray in list(self._owed.items())[:_AT_ONCE]:
            now = self._driver.now()
            if now < stray.since + _FIRST_PAUSE:
                break  # the others are younger still, or have been told again before
            if now < stray.since + stray.claim.ttl:
                try:
                    heard = None not in await self._leave(stray.claim, stray.token, ROUND, stray.answers)
                except HoldfastError:
                    heard = False
            with self._mutex:
                owed = self._owed.pop(holder, None)
                if owed is not None and not (heard and owed is stray):  # it may have taken back another one meanwhile
                    self._owed[holder] = owed
            if not heard:
                break
        return heard
