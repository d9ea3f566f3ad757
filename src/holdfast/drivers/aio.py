"""The core, run by asyncio: plain `await`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from .base import Address, Bell, Clocks, Doorbell, Main, Stream, at_once, never
from .doorbell import Socket
from .doorbell import ring as ring_doorbell
from .loops import end_what_loops_have_left
from .standing import end_calls

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")


class LoopBell:
    """A future of the waiter's loop; may be rung from any thread."""

    __slots__ = ("_loop", "_rung", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def gone(self) -> bool:
        return self._loop.is_closed()

    @property
    def asleep(self) -> bool:
        return not self._loop.is_running()

    async def wait(self, timeout: float) -> None:
        if not self._rung:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(max(timeout, 0.0), self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._rung = False

    def ring(self) -> bool:
        if asyncio._get_running_loop() is self._loop:
            self._heard()
            return True
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:
            return False  # the loop is closed: whoever waited here is gone
        return True

    def close(self) -> None:
        pass

    def _heard(self) -> None:
        self._rung = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LoopSocketBell(Socket):
    __slots__ = ()

    def __init__(self, beside: str) -> None:
        super().__init__(beside)
        self._socket.setblocking(False)

    async def wait(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(timeout, 0.0)):
                await asyncio.get_running_loop().sock_recv(self._socket, 1)
        self.drain()


def never_any(_: Any) -> bool:
    return False


def bury(task: asyncio.Task[Any]) -> None:
    """End what its loop, which was closed, cannot."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):  # it can wait for nothing any more, and its loop takes no word of it
        task.get_coro().close()


class Asyncio(Clocks):
    """The driver of `holdfast.aio.connect()`."""

    spawns_lightly = True
    me = staticmethod(asyncio.current_task)

    def __init__(self) -> None:
        self._background: set[asyncio.Task[Any]] = set()
        self._attempts: set[asyncio.Task[Any]] = set()  # that go on though whoever waits for them is cancelled
        self._loop: asyncio.AbstractEventLoop | None = None  # in which somebody asked last
        self._before: tuple[
            ref[asyncio.AbstractEventLoop], ...
        ] = ()  # others, that were not closed when they were last seen
        self._process = 0  # and in which process: to a forked child, the loops of its parent seem to run for ever
        # What is raised when two use it at once, where connections are one loop's: bells would not be heard in the other.
        self.one_loop: Callable[[], Exception] | None = None
        self.serves: Callable[[Any], bool] = never_any  # is this what we were made for, or its store?

    def bury(self) -> None:
        """End what loops that are over have left in the middle of something: what it has taken, nobody else would put back.

        asyncio.run() cancels the tasks that there are, but not those that they begin in order to tidy up; others cancel none.
        Called with nothing locked: whatever is ended here may have to lock it.
        """
        for task in (*self._background, *self._attempts):
            if task.get_loop().is_closed() and not task.done():
                self._background.discard(task)
                self._attempts.discard(task)
                bury(task)

    def tidy_up(self) -> None:
        """After loops that are over, whatever else runs: closing is refused to nobody."""
        self._task()
        self.bury()
        self._end_calls()
        end_what_loops_have_left()

    def _end_calls(self) -> None:
        before, self._before = self._before, ()  # of two threads, one has them
        for known in before if self._loop is None else (*before, ref(self._loop)):
            loop = known()
            if loop is not None and loop.is_closed():
                end_calls(loop, self.serves)
            elif loop is not None and loop is not self._loop:
                self._before += (known,)

    def whoami(self) -> str:
        task = self._task()
        if task is None:
            return "no task"
        loop = task.get_loop()
        if loop is not self._loop:  # whoever acquires asks this first: the first of another loop tidies up
            if self.one_loop is not None and self._runs_elsewhere():
                raise self.one_loop()
            if self._loop is not None:
                self._before += (ref(self._loop),)
            self._loop, self._process = loop, os.getpid()
            self.tidy_up()
        elif self._before and any((before := known()) is None or before.is_closed() for known in self._before):
            self.tidy_up()  # after one that was closed after this one had begun
        return task.get_name()

    def _runs_elsewhere(self) -> bool:
        return self._loop is not None and self._loop.is_running() and self._process == os.getpid()

    @staticmethod
    def _task() -> asyncio.Task[Any] | None:
        try:
            return asyncio.current_task()
        except RuntimeError:
            raise RuntimeError(
                "holdfast.aio needs asyncio, and no loop of it runs here: under trio, use holdfast.connect() in a worker thread"
            ) from None

    def bell(self) -> Bell:
        bell = LoopBell()
        if bell._loop is not self._loop and all(known() is not bell._loop for known in self._before):
            self._before += (ref(bell._loop),)  # of somebody who does not acquire, but watches
        return bell

    def doorbell(self, beside: str) -> Doorbell:
        return LoopSocketBell(beside)

    ring = staticmethod(ring_doorbell)

    async def connect(self, address: Address, tls: SSLContext | None, deadline: float) -> Stream:
        from .transports import connect

        return await connect(address, tls, deadline, LoopBell())

    mutex = staticmethod(Lock)  # tasks of two loops may share a store

    def spawn(self, main: Main, name: str, needed: Callable[[], bool] = never) -> None:
        loop = asyncio.get_running_loop()

        def start() -> None:
            # Not by the loop's task factory: an eager task would run at once, and the caller may hold a mutex.
            task = asyncio.Task(main(), loop=loop, name=name)
            # The loop may be closing, and nobody else could wait for its end: no complaint.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._background.add(task)  # the loop itself keeps only a weak reference
            task.add_done_callback(ended)

        def ended(task: asyncio.Task[None]) -> None:
            self._background.discard(task)
            if needed() and (task.cancelled() or task.exception() is not None):
                # A timer, not a task: if everything is cancelled because the loop is about to close, nothing is left.
                loop.call_later(0.02, start)

        start()

    aside = staticmethod(at_once)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def shield(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.get_running_loop().create_task(attempt())
        self._attempts.add(task)
        cancelled: asyncio.CancelledError | None = None
        try:
            while not task.done():
                try:
                    await asyncio.shield(task)
                except asyncio.CancelledError as error:
                    if task.cancelled():
                        raise
                    cancelled = error
                except Exception:
                    break  # the attempt's own failure: told below
        finally:
            if task.done():  # else its loop is over, and whoever comes next ends it
                self._attempts.discard(task)
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # looked at, so that the loop does not complain of it
            raise cancelled
        return task.result()
