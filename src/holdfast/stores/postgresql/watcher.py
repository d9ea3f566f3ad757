"""One thread that watches over the connections that locks live with: their end, their silence, their ttl.

It is the only one that asks them whether they are there, and the only one that reads the answer; so one connection in trouble
is one connection in trouble.

To wake a thread costs as much as the lock itself. So whoever was not there for long is only looked at between two naps, and
most locks come and go while it naps.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...drivers.base import boot_time
from ...drivers.starting import start

if TYPE_CHECKING:
    from .session_wire import BlockingSession

NEVER = float("inf")
_LONGEST = 5.0  # seconds between two looks
_NAP = 0.05  # the same while some have only just come, or gone
_LINGER = 1.0  # seconds it stays after the last has gone


class Watcher:
    """Runs while there is something to watch."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._hearing = threading.Lock()
        self._heard = threading.Condition(self._hearing)
        self._watched: set[BlockingSession] = set()
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None  # there while it runs
        self._naps = False  # it will look again soon, without being woken
        self._latest = 0.0  # when one came last

    def add(self, session: BlockingSession) -> None:
        with self._mutex:
            if not session.alive:
                return
            known = session in self._watched
            if not known:
                session.since = self._latest = boot_time()
                self._watched.add(session)
            if self._wake is None or self._thread is None or not self._thread.is_alive():
                # In this order, and each with a pipe of its own: interrupted anywhere here, the next who comes starts another.
                self._wake = os.pipe()
                self._thread = start(partial(self._run, *self._wake), "holdfast-watcher")
            elif not known and not (self._naps and session.deadline > session.since + _NAP):
                os.write(self._wake[1], b"!")

    def remove(self, session: BlockingSession) -> None:
        with self._mutex:
            self._watched.discard(session)

    def watched(self) -> list[BlockingSession]:
        with self._mutex:
            return list(self._watched)

    def tell(self) -> None:
        """Something was heard from one, or it has ended."""
        with self._hearing:
            self._heard.notify_all()

    def wait_for(self, condition: Callable[[], bool], within: float) -> None:
        self._nudge()
        with self._hearing:
            self._heard.wait_for(condition, max(0.0, within))

    def _nudge(self) -> None:
        with self._mutex:
            if self._wake is not None:
                os.write(self._wake[1], b"!")

    def forked(self) -> None:
        if self._wake is not None:
            for end in self._wake:
                os.close(end)
        self.__init__()  # type: ignore[misc]

    def stop(self) -> None:
        with self._mutex:
            self._watched.clear()
            self._latest = 0.0
        self._nudge()

    def _run(self, ear: int, mouth: int) -> None:
        while True:
            now = boot_time()
            with self._mutex:
                sessions = list(self._watched)
                ours = self._wake == (ear, mouth)
                naps = now < self._latest + (_NAP if sessions else _LINGER)
                if ours:
                    self._naps = naps
                if not (sessions or naps) or not ours:
                    if ours:
                        self._wake = self._thread = None
                    os.close(ear)
                    os.close(mouth)
                    return
            poll = select.poll()
            poll.register(ear, select.POLLIN)
            soonest = now + (_NAP if naps else _LONGEST)
            for session in sessions:
                soonest = min(soonest, self._prepared(session, poll, now))
            if any(number == ear for number, _ in poll.poll(max(0.0, soonest - boot_time()) * 1000)):
                os.read(ear, 4096)
            for session in sessions:
                if session._mutex.acquire(blocking=False):  # else it is in use: whoever uses it will find out
                    try:
                        session.look()
                    finally:
                        session._mutex.release()

    def _prepared(self, session: BlockingSession, poll: select.poll, now: float) -> float:
        """Tend to it, and say what to wait for; returns when to come again."""
        if now >= session.deadline:
            session.end()
        if not session._mutex.acquire(blocking=False):
            return min(session.deadline, now + 0.05)
        try:
            again = session.tend(now)
            is_new = now < session.since + _NAP and session.pinged is None
            if session.alive and not session.begun and not is_new:  # what was begun is read by whoever waits for it
                poll.register(session.connection.fileno(), select.POLLIN)
            return again
        except Exception:
            session.end()
            return now
        finally:
            session._mutex.release()
