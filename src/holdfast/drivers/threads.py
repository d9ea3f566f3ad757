"""The core, run by plain threads: every coroutine runs to its end on the spot, and waiting blocks the thread."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from . import doorbell
from .base import Bell, Doorbell, boot_time, finish, wall_us
from .doorbell import ring as ring_doorbell

T = TypeVar("T")

FOREVER = threading.TIMEOUT_MAX


class ThreadBell:
    """A bare lock, taken when made: to ring is to release it. Far cheaper than threading.Event."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    async def wait(self, timeout: float) -> None:
        self._lock.acquire(timeout=min(max(timeout, 0.0), FOREVER))

    def ring(self) -> bool:
        with contextlib.suppress(RuntimeError):  # rung already, and not yet heard
            self._lock.release()
        return True

    def close(self) -> None:
        pass


class SocketBell:
    __slots__ = ("_socket", "address")

    def __init__(self) -> None:
        self._socket, self.address = doorbell.open_socket()

    async def wait(self, timeout: float) -> None:
        self._socket.settimeout(max(timeout, 0.0))
        try:
            self._socket.recv(1)
        except (TimeoutError, BlockingIOError):
            return
        doorbell.drain(self._socket)

    def ring(self) -> bool:
        return doorbell.ring(self.address) is not False

    def close(self) -> None:
        doorbell.close_socket(self._socket, self.address)


class Threads:
    """The driver of `holdfast.connect()`."""

    now = staticmethod(boot_time)
    wall_us = staticmethod(wall_us)
    uniform = staticmethod(random.uniform)
    me = staticmethod(threading.current_thread)
    run = staticmethod(finish)

    def whoami(self) -> str:
        return threading.current_thread().name

    def bell(self) -> Bell:
        return ThreadBell()

    def doorbell(self) -> Doorbell:
        return SocketBell()

    ring = staticmethod(ring_doorbell)

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        # A daemon: it must not keep the interpreter alive. What is held at exit is released by lifecycle.py.
        threading.Thread(target=lambda: finish(main()), name=name, daemon=True).start()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def shield(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # Nothing can hold off a second Ctrl-C; if it cuts this short, the ttl ends what is left.
        return await attempt()
