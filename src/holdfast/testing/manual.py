"""Locks whose time stands still until a test moves it: for tests of what happens after thirty seconds, in no time.

>>> from holdfast.testing.manual import Manual, connect
>>> driver = Manual()
>>> locks = connect(driver)
>>> lease = locks.lock("x", ttl=30, renew=False).acquire()
>>> driver.pass_time(31)
>>> lease.held
False

Waiting takes no time either: whoever waits moves the clock to the moment at which the wait would end. In the background
nothing runs by itself; `pass_time()` does what would have been done there by then: renewals, and releases that are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from .. import sync
from ..drivers.base import Address, Main, Stream, at_once, finish, never
from ..engine import Engine
from ..stores.memory import MemoryStore

T = TypeVar("T")


class ManualBell:
    """Rung, or else the clock is moved on."""

    gone = asleep = False

    def __init__(self, driver: Manual) -> None:
        self._driver = driver
        self.rung = 0
        self.address = "manual"

    async def wait(self, timeout: float) -> None:
        if not self.rung:
            self._driver.waiting(timeout)
        self.rung = 0

    def ring(self) -> bool:
        self.rung += 1
        return True

    def close(self) -> None:
        pass


class Manual:
    """A driver for one thread. Set `waiting` to have something happen while somebody waits."""

    spawns_lightly = False

    def __init__(self) -> None:
        self.time = 1000.0
        self.wall = 1_700_000_000_000_000
        self.myself: object = self
        self.engines: list[Engine] = []
        self.spawned: list[str] = []
        self.waiting: Callable[[float], None] = self.move

    def move(self, seconds: float) -> None:
        """Move the clock, and nothing else."""
        self.time += max(seconds, 0.0)

    def pass_time(self, seconds: float) -> None:
        """Move the clock in small steps, and renew meanwhile what is due."""
        end = self.time + seconds
        while self.time < end:
            due = min((self._next_due(engine) for engine in self.engines), default=end)
            self.time = min(end, max(due, self.time + 0.001))
            self.renew()

    def renew(self) -> None:
        """One round of everything that runs in the background."""
        for engine in self.engines:
            finish(engine.renewer._round())
            while finish(engine.leaving.step()) == 0.0:
                continue

    def _next_due(self, engine: Engine) -> float:
        return min(engine.renewer._next_due(), engine.leaving.next_due())

    # ---- what the core asks for

    def now(self) -> float:
        return self.time

    def wall_us(self) -> int:
        return self.wall

    def uniform(self, low: float, high: float) -> float:
        return low

    def me(self) -> object:
        return self.myself

    def whoami(self) -> str:
        return "manual"

    def bell(self) -> ManualBell:
        return ManualBell(self)

    def doorbell(self, beside: str) -> ManualBell:
        return ManualBell(self)

    def ring(self, address: str, beside: str) -> bool | None:
        return None

    async def connect(self, address: Address, tls: object, deadline: float) -> Stream:
        raise ConnectionRefusedError("there is no network where time stands still")

    def mutex(self) -> AbstractContextManager[object]:
        return nullcontext()

    def spawn(self, main: Main, name: str, needed: Callable[[], bool] = never) -> None:
        self.spawned.append(name)

    aside = staticmethod(at_once)

    async def sleep(self, seconds: float) -> None:
        self.waiting(seconds)

    async def shield(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await attempt()


def connect(driver: Manual, space: str = "manual") -> sync.Locks:
    """Locks in memory, by this driver's clock. Connections of one driver share what they hold."""
    engine = Engine(MemoryStore(driver, f"{space}-{id(driver)}"), driver)
    driver.engines.append(engine)
    return sync.Locks(engine)
