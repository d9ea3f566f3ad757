"""So many connections and no more, for threads and tasks alike; whoever waits for one is served in the order of coming.

For stores whose connections are a driver's own (libpq, PyMySQL, asyncmy): the pool neither opens nor asks them.

What is taken is in the taker's hand, and put back from there, by one assignment each, in which nothing is called: the
interpreter looks for signals, and lets other threads run, only after a call. So an interruption falls before it or after it, and
whoever is interrupted puts back what is in the hand.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ...drivers.base import Bell, Driver


class Closable(Protocol):
    def close(self) -> None: ...


AnyConnection = TypeVar("AnyConnection", bound=Closable)
NOTHING: Any = object()  # in the hand: not even leave to open one


class Hand:
    """What one conversation has taken: NOTHING yet, a connection, or None, which is leave to open one."""

    __slots__ = ("bell", "connection")

    def __init__(self) -> None:
        self.connection: Any = NOTHING
        self.bell: Bell | None = None  # of one that waits, or has waited

    def drop(self) -> None:
        """Close the connection, and keep the leave to open another."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Pool(Generic[AnyConnection]):
    """What lies here may be taken: connections first, the last put back before the others; then leave to open one.

    A `Hand` first, then at once `try`, `take` or `wait`, talk; `finally`, `put_back`. Who may be interrupted there, and has to go
    on, puts back once more: that does no harm.
    """

    def __init__(self, size: int, driver: Driver) -> None:
        self._driver = driver
        self._lying: list[AnyConnection | None] = [None] * size
        self._line: deque[Hand] = deque()
        self._mutex = driver.mutex()

    def take(self, hand: Hand) -> bool:
        """False if all are in use, or others wait already."""
        if self._line:
            return False
        try:
            hand.connection, self._lying[:1] = self._lying[0], ()
        except IndexError:
            return False
        return True

    async def wait(self, hand: Hand, deadline: float, too_late: Callable[[float], Exception]) -> None:
        """Whoever puts one back looks for us after that, and we for it after saying that we wait."""
        now = self._driver.now
        began = now()
        bell = hand.bell = self._driver.bell()
        self._line.append(hand)
        self._serve()
        while hand.connection is NOTHING:
            if (left := deadline - now()) <= 0:
                raise too_late(now() - began)
            await bell.wait(left)

    def put_back(self, hand: Hand) -> None:
        if hand.bell is not None:
            with self._mutex, contextlib.suppress(ValueError):  # it was served
                self._line.remove(hand)
            hand.bell = None
        self._lay_down(hand)
        if self._line:
            self._serve()

    def _lay_down(self, hand: Hand) -> None:
        if hand.connection is None:
            self._lying[sys.maxsize :], hand.connection = [None], NOTHING
        elif hand.connection is not NOTHING:
            self._lying[:0], hand.connection = [hand.connection], NOTHING

    def take_over(self, hand: Hand) -> None:
        """A connection for good, if one lies here; in its place there is leave to open another."""
        try:
            hand.connection, self._lying[:1], self._lying[sys.maxsize :] = self._lying[0], (), [None]
        except IndexError:
            hand.connection = None

    def _serve(self) -> None:
        with self._mutex:
            while self._line:
                hand = self._line[0]
                if hand.connection is NOTHING:  # else whoever served it was interrupted below
                    try:
                        hand.connection, self._lying[:1] = self._lying[0], ()
                    except IndexError:
                        return  # one who came when nobody waited has just taken it
                if hand.bell is not None and not hand.bell.ring():  # of an event loop that was closed under it
                    self._lay_down(hand)
                self._line.popleft()

    def idle(self) -> list[AnyConnection]:
        return [one for one in self._lying if one is not None]

    def close_idle(self) -> None:
        for _ in range(len(self._lying)):
            hand = Hand()
            try:
                if not self.take(hand):
                    return
                hand.drop()
            finally:
                self.put_back(hand)
