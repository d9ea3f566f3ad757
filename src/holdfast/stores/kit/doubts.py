"""One connection of several falls silent, and the server is well: its path was lost, and nobody says so.

Who has waited there for a moment asks the server on a new connection. If it answers that one, and still not the other, then it is
the connection: it is given up, so that nothing of what it was asked arrives any more, and what it was asked is asked on the new
one. If it answers neither, it is the server, or nobody can tell: one waits where one is, for all of one's time.

One asks at a time, and after it was of no use, nobody for a while: so a server that is slow, or silent, has one connection
more of a process, however many wait there. But after it was of use, all may ask: a firewall that has forgotten one connection has
most likely forgotten all, and each needs another. What the server may take its time for is not to be asked about; where it can
say that it is at work on something, it is asked that, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ...drivers.base import Driver
from .turns import Turns

MOMENT = 0.7  # seconds of silence: most servers have answered thousands in that time
ANSWER = 0.5  # seconds that a server which is well needs for a newcomer, login included
GRACE = 0.05  # seconds for what it had to say before that, and is on its way
REST = 1.0  # seconds in which nobody asks, or all do


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)
T = TypeVar("T")


class Doubts:
    """Of the connections to one server."""

    def __init__(self, driver: Driver) -> None:
        self._now = driver.now
        self._turns = Turns(driver)
        self._rests_until = 0.0
        # Until then the server is well, and it was the connection: all others that are silent may be no good either.
        self._well_until = 0.0

    @property
    def rest(self) -> bool:
        """It was asked a moment ago, in vain."""
        return self._now() < self._rests_until

    async def instead(
        self,
        answers: Callable[[float], Awaitable[C | None]],
        speaks: Callable[[float], Awaitable[bool]],
        within: float,
    ) -> C | None:
        """A new connection in place of one that is silent; None: that is not to blame, as far as anybody can tell.

        `answers(within)` opens one, and gives it back if the server answers there, and is not at work on what it was asked on the
        other. `speaks(within)`: the other has said something by then.
        """
        deadline = self._now() + min(within, ANSWER)
        turn = self._turns.turn()
        try:
            if not self._is_well and not await turn.come(deadline + GRACE) and not self._is_well:
                return None
            if self.rest or self._now() >= deadline:
                return None
            if not self._is_well:
                self._rests_until = self._now() + REST  # also if this is interrupted
            found = await _or_none(answers, deadline - self._now())
            if found is None:
                self._rests_until = self._now() + REST
                return None
            try:
                spoke = await _or_none(speaks, GRACE)
            except BaseException:
                found.close()
                raise
            if spoke:
                found.close()
                return None
            self._rests_until, self._well_until = 0.0, self._now() + REST
            self._turns.dismiss()
            return found
        finally:
            turn.over()

    @property
    def _is_well(self) -> bool:
        return self._now() < self._well_until


async def _or_none(asked: Callable[[float], Awaitable[T]], within: float) -> T | None:
    """Whatever goes wrong, goes wrong on a connection that nobody else has: nothing is known by it."""
    try:
        return await asked(within)
    except Exception:
        return None
