"""What the core asks of a driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

# A clock that goes on while the machine is suspended, where there is one: a lease does not outlive its ttl in a closed laptop.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


# Seconds, by a clock that nobody can set and that counts suspend too.
boot_time: Callable[[], float] = partial(time.clock_gettime, _CLOCK)


def wall_us() -> int:
    """Wall time in µs: only ever the floor of a new token, never the measure of a lease."""
    return time.time_ns() // 1000


def uniform(low: float, high: float) -> float:
    """Jitter. From the kernel, since importing `random` would take as long as the rest of holdfast."""
    return low + (high - low) * int.from_bytes(os.urandom(4), "big") / 2**32


Main = Callable[[], Coroutine[Any, Any, None]]


def never() -> bool:
    return False


class Bell(Protocol):
    """What one waiter sleeps on. Rung before the wait began, it ends the wait at once."""

    async def wait(self, timeout: float) -> None: ...

    def ring(self) -> bool:
        """Wake the waiter, from any thread. False: nobody is there any more."""
        ...

    def close(self) -> None: ...


class Doorbell(Bell, Protocol):
    """A bell that other processes of this machine can ring, by its address and the file that they share."""

    @property
    def address(self) -> str: ...


class Driver(Protocol):
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

    def spawn(self, main: Main, name: str, needed: Callable[[], bool] = never) -> None:
        """Run in the background, until it returns or the process ends.

        Should it be ended from outside (somebody cancels all tasks) while `needed()`, it is started again.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def shield(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run to the end whatever interrupts us meanwhile, then let the interruption through."""
        ...


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, on the spot."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking call tried to suspend: this store was opened for another driver")
