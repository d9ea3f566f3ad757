"""So many connections and no more, for threads and tasks alike; whoever waits for one is served in the order of coming.

For stores whose connections are a driver's own (libpq, PyMySQL, asyncmy): the pool neither opens nor asks them.

What is taken is in the taker's hand, and put back from there, in one line each: an interruption falls before it or after it,
and whoever is interrupted puts back what is in the hand.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ...drivers.base import Bell, Driver


class Closable(Protocol):
    def close(self) -> None: ...


AnyLine = TypeVar("AnyLine", bound=Closable)
NOTHING: Any = object()  # in the hand: not even leave to open one


class Hand:
    """What one conversation has taken: NOTHING yet, a connection, or None, which is leave to open one."""

    __slots__ = ("line",)

    def __init__(self) -> None:
        self.line: Any = NOTHING

    def drop(self) -> None:
        """Close the connection, and keep the leave to open another."""
        line, self.line = self.line, None
        if line is not None:
            line.close()


class _Turn:
    """One who waits."""

    __slots__ = ("bell", "given")

    def __init__(self, bell: Bell) -> None:
        self.given = NOTHING
        self.bell = bell


class Pool(Generic[AnyLine]):
    """What lies here may be taken: connections first, the last put back before the others; then leave to open one."""

    def __init__(self, size: int, driver: Driver) -> None:
        self._driver = driver
        self._lying: list[AnyLine | None] = [None] * size
        self._line_up: deque[_Turn] = deque()
        self._mutex = driver.mutex()

    def take(self, hand: Hand) -> bool:
        """False if all are in use, or others wait already."""
        if self._line_up:
            return False
        try:
            hand.line = self._lying.pop(0)
        except IndexError:
            return False
        return True

    async def wait(self, hand: Hand, deadline: float, too_late: Callable[[float], Exception]) -> None:
        """Whoever puts one back looks for us after that, and we for it after saying that we wait."""
        now = self._driver.now
        began = now()
        turn = _Turn(self._driver.bell())
        try:
            self._line_up.append(turn)
            self._serve()
            while turn.given is NOTHING and (left := deadline - now()) > 0:
                await turn.bell.wait(left)
        finally:
            with self._mutex:
                if turn in self._line_up:
                    self._line_up.remove(turn)
            hand.line = turn.given
        if hand.line is NOTHING:
            raise too_late(now() - began)

    def put_back(self, hand: Hand) -> None:
        if hand.line is None:
            self._lying[sys.maxsize :], hand.line = [None], NOTHING
        elif hand.line is not NOTHING:
            self._lying[:0], hand.line = [hand.line], NOTHING
        if self._line_up:
            self._serve()

    def take_over(self, hand: Hand) -> None:
        """A connection for good, if one lies here; in its place there is leave to open another."""
        if self.take(hand):
            self._lying[sys.maxsize :] = [None]
        else:
            hand.line = None

    def _serve(self) -> None:
        with self._mutex:
            while self._line_up:
                turn = self._line_up[0]
                if turn.given is NOTHING:  # else whoever served it was interrupted below
                    try:
                        turn.given = self._lying.pop(0)
                    except IndexError:
                        return  # one who came when nobody waited has just taken it
                self._line_up.popleft()
                if not turn.bell.ring():  # of an event loop that was closed under it
                    self._lying[:0] = [turn.given]

    def idle(self) -> list[AnyLine]:
        return [one for one in self._lying if one is not None]

    def close_idle(self) -> None:
        hand = Hand()
        for _ in range(len(self._lying)):
            if not self.take(hand):
                return
            hand.drop()
            self.put_back(hand)
