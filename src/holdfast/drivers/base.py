"""What the core asks of a driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .system import boot_time as boot_time

if TYPE_CHECKING:  # `ssl` takes longer to import than the rest of holdfast
    from ssl import SSLContext

T = TypeVar("T")
Address = tuple[str, int]


def wall_us() -> int:
    """Wall time in µs: only ever the floor of a new token, never the measure of a lease."""
    return time.time_ns() // 1000


def uniform(low: float, high: float) -> float:
    """Jitter. From the kernel, since importing `random` would take as long as the rest of holdfast."""
    return low + (high - low) * int.from_bytes(os.urandom(4), "big") / 2**32


class Clocks:
    """Those of this machine, and its chance."""

    now = staticmethod(boot_time)
    wall_us = staticmethod(wall_us)
    uniform = staticmethod(uniform)


Main = Callable[[], Coroutine[Any, Any, None]]


def never() -> bool:
    return False


class Bell(Protocol):
    """What one waiter sleeps on. Rung before the wait began, it ends the wait at once."""

    @property
    def gone(self) -> bool:
        """Is it certain that nobody will ever wait here again? Its event loop was closed."""
        ...

    @property
    def asleep(self) -> bool:
        """Would nobody hear it now? Its event loop was closed, or only stopped, and may go on later, or never."""
        ...

    async def wait(self, timeout: float) -> None: ...

    def ring(self) -> bool:
        """Wake the waiter, from any thread. False: nobody is there any more."""
        ...

    def close(self) -> None: ...


class Doorbell(Bell, Protocol):
    """A bell that other processes of this machine can ring, by its address and the file that they share."""

    @property
    def address(self) -> str: ...


class Stream(Protocol):
    """A connection to a server: bytes there and back, each way by one user at a time.

    OSError: it is broken, and only good to be closed; TimeoutError, which is one of them: the deadline, by the driver's clock.
    Deadlines are polled against, so that no signal restarts them. Whoever was interrupted here closes the stream: nobody
    knows how much has been sent, and whose the next answer would be.
    """

    async def send(self, data: bytes, deadline: float) -> None: ...

    async def receive(self, deadline: float) -> bytes:
        """What is there, at least one byte; b"": the server hung up."""
        ...

    def is_stale(self) -> bool:
        """Is it of no use for a new question? The server hung up meanwhile, or said what nobody had asked for."""
        ...

    def hang_up(self) -> None:
        """From any thread: whoever waits here is told that the connection has ended. It is still to be closed."""
        ...

    def close(self) -> None: ...

    def give_up(self) -> None:
        """Close it, in the middle of a conversation: what the server has not got yet, it shall never get."""
        ...

    def disown(self) -> None:
        """In a forked child: forget it, without a word to the server or to what the parent waits by."""
        ...


class Driver(Protocol):
    @property
    def spawns_lightly(self) -> bool:
        """Does it cost next to nothing to run something in the background? Then one may be sent to do the work of many."""
        ...

    def now(self) -> float:
        """The clock of deadlines: monotonic, suspend included."""
        ...

    def wall_us(self) -> int: ...

    def uniform(self, low: float, high: float) -> float:
        """Jitter."""
        ...

    def me(self) -> object:
        """The thread or task that is running: who re-enters a lock."""
        ...

    def whoami(self) -> str:
        """The same, as people know it."""
        ...

    def bell(self) -> Bell: ...

    def doorbell(self, beside: str) -> Doorbell:
        """For whoever shares the file `beside`. OSError: there is none to be had."""
        ...

    def ring(self, address: str, beside: str) -> bool | None:
        """Ring another process's doorbell. False: it is gone; None: it cannot be reached from here."""
        ...

    async def connect(self, address: Address, tls: SSLContext | None, deadline: float) -> Stream:
        """To a host and port, its name looked up by the deadline as well. OSError: nobody is there, or not in time."""
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """For a few lines that never wait."""
        ...

    def spawn(self, main: Main, name: str, needed: Callable[[], bool] = never) -> None:
        """Run in the background, until it returns or the process ends.

        Should it be ended from outside (somebody cancels all tasks) while `needed()`, it is started again.
        """
        ...

    def aside(self, work: Callable[[], None], name: str) -> None:
        """Do it where it keeps nobody waiting: a thread's own, if there is one to be had; in a loop nothing may block anyway."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def shield(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run to the end whatever interrupts us meanwhile, then let the interruption through."""
        ...


def at_once(work: Callable[[], None], name: str) -> None:
    """A driver's `aside`, where there is nowhere else to go."""
    work()


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, on the spot."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking call tried to suspend: this store was opened for another driver")
