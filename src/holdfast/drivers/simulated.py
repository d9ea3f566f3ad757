"""The core, run in virtual time, a driver for each simulated process: no threads, no event loop, no waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from .base import Address, Stream, at_once, never
from .world import Cancelled, Killed, Main, Task, World

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

EPOCH_US = 1_700_000_000_000_000  # what wall clocks show when a world begins


class Bell:
    """A bell of a simulated process; with an address, one that other processes can ring."""

    gone = asleep = False

    def __init__(self, process: Process, address: str = "") -> None:
        self.address = address
        self.what = "a bell"  # shown to whoever asks what a task waits for
        self._process = process
        self._number = process.world._next()
        self._rung = False
        self._waiter: tuple[Task, int] | None = None

    def __hash__(self) -> int:
        return self._number  # a set of bells is walked in the same order in every run

    async def wait(self, timeout: float) -> None:
        if not self._rung:
            world = self._process.world
            me = world._running or world.running()
            self._waiter = me, me._parked + 1
            try:
                await world.park(self.what, timeout, self._process)
            finally:
                self._waiter = None
        self._rung = False

    def ring(self) -> bool:
        process = self._process
        world = process.world
        if not process.alive or world.over:
            return False
        self._rung = True
        if self._waiter is not None:
            task, parked = self._waiter
            if task._parked == parked:
                world._ready_to_run(task)
        return True

    def close(self) -> None:
        self._process.world.doorbells.pop(self.address, None)


class Simulated:
    """The driver of one simulated process."""

    spawns_lightly = True

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self._random = process.world.random

    def now(self) -> float:
        process = self.process
        return process.ahead + self.world.time * process.rate

    def wall_us(self) -> int:
        process = self.process
        return EPOCH_US + int((process.wall_ahead + self.world.time * process.rate) * 1e6)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def me(self) -> object:
        return self.world.running()

    def whoami(self) -> str:
        return self.world.running().name

    def bell(self) -> Bell:
        return Bell(self.process)

    def doorbell(self, beside: str = "") -> Bell:
        bell = Bell(self.process, f"{self.process.name}#{self.world._next()}")
        self.world.doorbells[bell.address] = bell
        return bell

    def ring(self, address: str, beside: str = "") -> bool | None:
        if self.process.dies_before_ringing:
            self.process.crash()
        self._alive()
        bell = self.world.doorbells.get(address)
        return bell is not None and bell.ring()

    async def connect(self, address: Address, tls: SSLContext | None, deadline: float) -> Stream:
        """Over the simulated streams of this world; TLS is left out."""
        self._alive()
        if self.world.streams is None:
            raise ConnectionRefusedError("this world has no network")
        return await self.world.streams.connect(self.process, address, deadline)

    def mutex(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()  # who does not wait is alone

    def spawn(self, main: Main, name: str, needed: Callable[[], bool] = never) -> None:
        self.process.spawn(main, name)

    aside = staticmethod(at_once)

    async def sleep(self, seconds: float) -> None:
        self._alive()
        await self.world.park("a moment", seconds, self.process)

    async def shield(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._alive()
        me = self.world.running()
        me._shields += 1
        try:
            return await attempt()
        finally:
            me._shields -= 1
            if me._interrupted and not me._shields and self.process.alive:
                me._interrupted = False
                raise Cancelled

    def _alive(self) -> None:
        if self.world.over or not self.process.alive:
            raise Killed


class Process:
    """Tasks that share a clock and a fate."""

    def __init__(
        self, world: World, name: str, *, ahead: float = 0.0, wall_ahead: float = 0.0, rate: float = 1.0
    ) -> None:
        self.world = world
        self.name = name
        self.ahead = ahead  # of its monotonic clock, whose zero means nothing
        self.wall_ahead = wall_ahead  # may be set at any time: the wall clock jumps
        self.rate = rate  # its clocks' seconds in a true second
        self.alive = True
        self.dies_before_ringing = False  # killed between a change and the ring that tells of it
        self.driver = Simulated(self)
        self._paused_until = 0.0
        self._stalled: list[Task] = []

    @property
    def paused(self) -> bool:
        return self.world.time < self._paused_until

    def spawn(self, main: Main, name: str) -> Task:
        world = self.world
        if world.over or not self.alive:
            raise Killed
        task = Task(self, main, name, world._next())
        world._tasks[task.number] = task
        world._ready_to_run(task)
        return task

    def pause(self, seconds: float) -> None:
        """Like SIGSTOP, or a long collection of garbage: nothing of it runs, and all clocks go on."""
        self._paused_until = max(self._paused_until, self.world.time + seconds)
        self.world._set_aside(self)
        self.world.at(self._paused_until, self._resume)

    def crash(self) -> None:
        """kill -9: no cleanup, its sockets are gone."""
        if not self.alive:
            return
        self.alive = False
        world = self.world
        world._set_aside(self)
        for address in [a for a, bell in world.doorbells.items() if bell._process is self]:
            del world.doorbells[address]
        for task in [task for task in world._tasks.values() if task.process is self]:
            world._graveyard.append(task)
            task._finished()
        if world.streams is not None:
            world.streams.crashed(self)
        world.on_crash(self)

    def _resume(self) -> None:
        if self.alive and not self.paused:
            stalled, self._stalled = self._stalled, []
            for task in stalled:
                task._queued = False
                self.world._ready_to_run(task)

    def __repr__(self) -> str:
        return f"<Process {self.name}>"
