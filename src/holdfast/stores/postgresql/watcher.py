"""Somebody who watches over the connections that locks live with: their end, their silence, their ttl.

It is the only one that asks them whether they are there; where no loop reads them, the only one that reads the answer, too. So
one connection in trouble is one connection in trouble.

To wake a thread costs as much as the lock itself. So whoever was not there for long is only looked at between two naps, and
most locks come and go while it naps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...drivers.base import Bell, Driver
from ..kit.alarm import NEVER, Alarm
from .wires import WatchedConnection, WatchersBell

if TYPE_CHECKING:
    from .session_wire import Session

NAP = 0.05  # seconds between two looks while some have only just come, or gone
_LINGER = 1.0  # seconds it stays after the last has gone


class Watcher:
    """At work while there is something to watch."""

    def __init__(self, driver: Driver, kind: type[WatchedConnection]) -> None:
        self._driver = driver
        self._kind = kind
        self._fresh()

    def _fresh(self) -> None:
        self._mutex = self._driver.mutex()
        self._watched: set[Session] = set()
        self._latest = 0.0  # when one came last
        self._curious: set[Bell] = set()  # of those who wait until something is heard
        self._bell: WatchersBell | None = None
        self._alarm = self._new_alarm()

    def _new_alarm(self) -> Alarm:
        return Alarm(self._driver, "holdfast-watcher", _LINGER, self._due, self._work, self._new_bell)

    def _new_bell(self) -> Bell:
        self._bell = bell = self._kind.watching(self._connections)
        return bell

    def add(self, session: Session) -> None:
        now = self._driver.now()
        with self._mutex:
            if not session.alive:
                return
            if session not in self._watched:
                session.since = self._latest = now
                session.again = min(session.deadline, now + NAP)
                self._watched.add(session)
        self._alarm.expect(min(session.deadline, session.again))

    def remove(self, session: Session) -> None:
        with self._mutex:
            self._watched.discard(session)

    def watched(self) -> list[Session]:
        with self._mutex:
            return list(self._watched)

    def tell(self) -> None:
        """Something was heard from one, or it has ended."""
        for bell in list(self._curious):
            bell.ring()

    def nudge(self) -> None:
        self._alarm.expect(self._driver.now())

    async def wait_for(self, condition: Callable[[], bool], within: float) -> None:
        """Looks at all of them now."""
        deadline = self._driver.now() + within
        bell = self._driver.bell()
        self._curious.add(bell)
        try:
            self.nudge()
            while not condition() and (left := deadline - self._driver.now()) > 0:
                await bell.wait(left)
        finally:
            self._curious.discard(bell)

    def forked(self) -> None:
        if self._bell is not None:
            self._bell.disown()
        self._fresh()

    def stop(self) -> None:
        with self._mutex:
            self._watched.clear()
            alarm, self._alarm = self._alarm, self._new_alarm()  # for who is only just coming
        alarm.close()

    # ---- at work

    def _due(self) -> float:
        now, sessions = self._driver.now(), self.watched()
        soonest = min((session.again for session in sessions), default=NEVER)
        return min(soonest, now + NAP) if now < self._latest + (NAP if sessions else _LINGER) else soonest

    async def _work(self) -> None:
        for session in self.watched():
            session.tend(self._driver.now())

    def _connections(self) -> list[WatchedConnection]:
        """Those to look at as soon as anything comes."""
        now = self._driver.now()
        return [session.connection for session in self.watched() if session.is_looked_at(now)]
