"""One thread that does what a blocking client library does, in order, for threads and for asyncio alike.

Whoever waits for it waits no longer than agreed; what they no longer wait for is done all the same, before what is asked next.
What lives with a connection (an ephemeral node, a session's lock) has no ttl of its own: here it gets one, since nobody gives
back a lease that was lost.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ...claim import printable
from ...drivers.base import Driver
from ...errors import HoldfastError, Unavailable

T = TypeVar("T")
_IDLE = 60.0  # seconds without work, and with nothing held, until the thread goes home


class Errands:
    def __init__(self, driver: Driver, where: str, let_go: Callable[[str], None]) -> None:
        self._driver = driver
        self._where = where
        self._let_go = let_go
        self.forked()

    def forked(self) -> None:
        """In a forked child nothing is held, and the thread is the parent's."""
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
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

        with self._mutex:
            self._asked.put(errand)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(self._asked,), name="holdfast-also", daemon=True
                )
                try:
                    self._thread.start()
                except RuntimeError as error:  # no more threads to be had, or the interpreter ends
                    self._thread = None
                    raise Unavailable(f"{self._where} was not asked: {error}") from error
        until = self._driver.now() + within
        try:
            while not done.done():
                left = until - self._driver.now()
                if left <= 0:
                    raise Unavailable(f"{self._where} did not answer within {within:g} s")
                await bell.wait(left)
        finally:
            bell.close()
        try:
            return done.result()
        except HoldfastError:
            raise
        except Exception as error:
            raise Unavailable(
                f"{self._where}: {type(error).__name__}: {printable(' '.join(str(error).split()))}"
            ) from error

    def stop(self) -> None:
        """After what was asked so far."""
        with self._mutex:
            if self._thread is not None:
                self._asked.put(None)
                self._thread = None

    def _run(self, asked: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while True:
            now = self._driver.now()
            for holder in [one for one, end in self._ends.items() if end <= now]:
                del self._ends[holder]
                with contextlib.suppress(Exception):  # the connection is broken: then its server ends it
                    self._let_go(holder)
            wait = min([end - now for end in self._ends.values()], default=_IDLE)
            try:
                errand = asked.get(timeout=min(wait, _IDLE))
            except queue.Empty:
                with self._mutex:
                    if not self._ends and asked.empty() and self._asked is asked:
                        self._thread = None
                        return
                continue
            if errand is None:
                return
            errand()
