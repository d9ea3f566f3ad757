"""One thread that does what a blocking client library does, in order, for threads and for asyncio alike.

Whoever waits for it waits no longer than agreed. What was begun is brought to its end, before what is asked next; what was not
begun when nobody waits any more never is. What lives with a connection (an ephemeral node, a session's lock) has no ttl of its
own: here it gets one, since nobody gives back a lease that was lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ...claim import printable
from ...drivers.base import Driver
from ...drivers.starting import start
from ...errors import HoldfastError, Unavailable

T = TypeVar("T")
_IDLE = 60.0  # seconds without work, and with nothing held, until the thread goes home
_AGAIN = 1.0  # seconds until it tries again to let go


def one_line(error: Exception) -> str:
    """What a server says may be anything."""
    return printable(" ".join(str(error).split()))


class Errands:
    def __init__(self, driver: Driver, where: str, let_go: Callable[[str], None]) -> None:
        self._driver = driver
        self._where = where
        self._let_go = let_go
        self.forked()

    def forked(self) -> None:
        """In a forked child nothing is held, and the thread is the parent's."""
        self._asked: deque[Callable[[], None]] = deque()
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._ends: dict[str, float] = {}  # by holder: when to let go of what nobody has kept

    def hold(self, holder: str, ttl: float) -> None:
        """From now on for so long. In the thread."""
        self._ends[holder] = self._driver.now() + ttl

    def forget(self, holder: str) -> None:
        self._ends.pop(holder, None)

    async def do(self, work: Callable[[], T], within: float) -> T:
        """Unavailable: not done in time, or it failed, and whether it was done is not known."""
        done: Future[T] = Future()
        bell = self._driver.bell()

        def errand() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
            bell.ring()  # from any thread; nobody may be there any more

        until = self._driver.now() + within
        try:
            self._ask(errand)
            while not done.done():
                left = until - self._driver.now()
                if left <= 0:
                    raise Unavailable(f"{self._where} did not answer within {within:g} s")
                await bell.wait(left)
        finally:
            with contextlib.suppress(ValueError):  # it was begun
                self._asked.remove(errand)
            bell.close()
        try:
            return done.result()
        except HoldfastError:
            raise
        except Exception as error:
            raise Unavailable(f"{self._where}: {type(error).__name__}: {one_line(error)}") from error

    async def close(self, hang_up: Callable[[], None], within: float) -> None:
        """The last thing to do. If it takes longer, it is left to the thread, which goes home then."""
        if self._thread is None:
            return

        def at_last() -> None:
            with contextlib.suppress(Exception):  # the server ends what it did not hear the end of
                hang_up()

        try:
            await self.do(at_last, within)
        except Unavailable:
            self._ask(at_last)  # hanging up twice is harmless
        finally:
            with self._mutex:
                self._stopping = True
                self._changed.notify()

    def _ask(self, errand: Callable[[], None]) -> None:
        with self._mutex:
            self._stopping = False
            self._asked.append(errand)
            self._changed.notify()
            if self._thread is None or not self._thread.is_alive():
                self._thread = None
                try:
                    self._thread = start(self._run, "holdfast-also")
                except RuntimeError as error:  # no more threads to be had, or the interpreter ends
                    raise Unavailable(f"{self._where} was not asked: {error}") from error

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            wait = self._end_what_is_over()
            with self._mutex:
                if self._thread is not me:  # its start was interrupted, and there is another by now
                    return
                if not self._asked and not self._stopping:
                    self._changed.wait(wait)
                if not self._asked and (self._stopping or not self._ends):
                    self._thread = None
                    return
                errand = self._asked.popleft() if self._asked else None
            if errand is not None:
                errand()

    def _end_what_is_over(self) -> float:
        """How long until the next one is. What could not be told to the server is told it again: a short cut ends no session."""
        now = self._driver.now()
        over = [holder for holder, end in self._ends.items() if end <= now]
        for holder in over:
            try:
                self._let_go(holder)
            except Exception:
                self._ends.update((one, self._driver.now() + _AGAIN) for one in over if one in self._ends)
                break
            self._ends.pop(holder, None)
        return max(min([end - self._driver.now() for end in self._ends.values()], default=_IDLE), 0.0)
