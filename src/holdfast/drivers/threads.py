"""The core, run by plain threads: every coroutine runs to its end on the spot, and waiting blocks the thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .base import Address, Clocks, Doorbell, Main, Stream, finish, never
from .starting import start

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

FOREVER = threading.TIMEOUT_MAX


class ThreadBell:
    """A bare lock, taken when made: to ring is to release it. Far cheaper than threading.Event."""

    __slots__ = ("_lock",)
    gone = asleep = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    async def wait(self, timeout: float) -> None:
        self._lock.acquire(timeout=min(max(timeout, 0.0), FOREVER))

    def ring(self) -> bool:
        try:  # not contextlib.suppress: that costs more than all the rest of it
            self._lock.release()
        except RuntimeError:
            return True  # rung already, and not yet heard
        return True

    def close(self) -> None:
        pass


class Flag:
    """As threading.Event, but nothing is locked: when a signal handler raises in `wait`, others can still set it.

    An event's mutex is then never let go of, and whoever sets it, the renewer say, would hang for ever.
    """

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[ThreadBell] = []

    def set(self) -> None:
        self._set = True
        for bell in tuple(self._waiting):
            bell.ring()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        bell = ThreadBell()
        try:
            self._waiting.append(bell)  # before the look: whoever sets it after that rings
            if not self._set:
                finish(bell.wait(FOREVER if timeout is None else timeout))
        finally:
            with contextlib.suppress(ValueError):  # interrupted before it stood there
                self._waiting.remove(bell)
        return self._set


def _run(main: Main, needed: Callable[[], bool]) -> None:
    while True:
        try:
            return finish(main())
        except BaseException:  # an exception that somebody threw into this thread, say
            if not needed():
                raise


class Threads(Clocks):
    """The driver of `holdfast.connect()`."""

    spawns_lightly = False
    me = staticmethod(threading.current_thread)
    run = staticmethod(finish)
    bell = ThreadBell

    def whoami(self) -> str:
        return threading.current_thread().name

    # Late imports: only a process that really waits for another needs sockets.

    def doorbell(self, beside: str) -> Doorbell:
        from .doorbell import SocketBell

        return SocketBell(beside)

    def ring(self, address: str, beside: str) -> bool | None:
        from .doorbell import ring

        return ring(address, beside)

    async def connect(self, address: Address, tls: SSLContext | None, deadline: float) -> Stream:
        from .sockets import connect

        return await connect(address, tls, deadline, ThreadBell())

    def mutex(self) -> contextlib.AbstractContextManager[object]:
        return threading.Lock()  # looked up now: gevent may have replaced it since this file was imported

    def spawn(self, main: Main, name: str, needed: Callable[[], bool] = never) -> None:
        start(partial(_run, main, needed), name)

    def aside(self, work: Callable[[], None], name: str) -> None:
        try:
            start(work, name)
        except RuntimeError:  # no thread to be had, or the interpreter ends
            work()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def shield(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # Nothing can hold off a second Ctrl-C; if it cuts this short, the ttl ends what is left.
        return await attempt()
