"""Virtual time, and a seeded choice of whose turn it is: what the simulated driver stands on.

Rule 1: same seed, same history. Nothing here looks at real time, at `id()`, or at the order of a hash.
Rule 2: whoever could run next may be the one: the seed chooses. A step takes a microsecond, so no two are at once.
Rule 3: a crash runs no cleanup. A killed process's coroutines stay where they stood until the world is closed, and then
nothing that they could still do reaches anybody.
"""

from __future__ import annotations

import contextlib
import random
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from functools import partial
from heapq import heappop, heappush
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .simulated import Bell, Process
    from .simulated_streams import Streams

Main = Callable[[], Coroutine[Any, Any, Any]]

STEP = 1e-6
FOREVER = float("inf")


class Cancelled(BaseException):
    """Thrown into a task at the await where it stands."""


class Raised(Exception):
    """By a signal handler, thrown into a task at the await where it stands: no shield keeps it off."""


class Interrupt(BaseException):
    """The same, as Ctrl-C has it."""


class Killed(BaseException):
    """Of a process that is no more: nothing that it still tries has an effect."""


class Stuck(Exception):
    """Somebody was to finish and cannot, or not within the budget. The message says what everybody waits for."""


@types.coroutine
def _parked(why: str) -> Generator[str, None, None]:
    """What a task awaits when it stops running; its reason is shown by `World.describe`."""
    yield why


class Task:
    """A coroutine of a simulated process."""

    __slots__ = (
        *("process", "name", "number", "steps", "cancel_at_step", "done", "cancelled", "result", "error"),
        *("waits_for", "since", "_coroutine", "_send", "_parked", "_queued", "_interrupted", "_struck", "_shields"),
        *("_joining", "__weakref__"),
    )

    def __init__(self, process: Process, main: Main, name: str, number: int) -> None:
        self.process = process
        self.name = name
        self.number = number
        self.steps = 0
        self.cancel_at_step = -1  # to cancel it at each of its awaits in turn
        self.done = False
        self.cancelled = False  # or ended by what a signal handler raised
        self.result: Any = None
        self.error: BaseException | None = None
        self.waits_for = "its first turn"
        self.since = process.world.time
        self._coroutine = main()
        self._send = self._coroutine.send
        self._parked = 0  # counts its waits, so that a late timer of an earlier one is known
        self._queued = False
        self._interrupted = False
        self._struck: tuple[int, BaseException] | None = None  # at which step, and with what
        self._shields = 0
        self._joining: list[tuple[Task, int]] = []

    def cancel(self) -> None:
        """At the await where it stands; if that is shielded, when the shield ends."""
        if self.done:
            return
        self._interrupted = True
        if not self._shields:
            self.process.world._ready_to_run(self)

    def strike(self, error: BaseException, awaits: int = 0) -> None:
        """A signal handler raises that: at the await where it stands, or so many later."""
        if not self.done:
            self._struck = self.steps + 1 + awaits, error
            if not awaits:
                self.process.world._ready_to_run(self)

    def _thrown(self) -> BaseException | None:
        """What interrupts it at this step."""
        thrown: BaseException | None = None
        if self.steps == self.cancel_at_step:
            self._interrupted = True
        if self._interrupted and not self._shields:
            self._interrupted = False
            thrown = Cancelled()
        if self._struck is not None and self.steps >= self._struck[0]:
            (_, thrown), self._struck = self._struck, None
        return thrown

    async def join(self) -> None:
        """Until it has ended, however. A task of a crashed process has ended."""
        world = self.process.world
        while not self.done:
            me = world.running()
            self._joining.append((me, me._parked + 1))
            await world.park(f"the end of {self}")

    def _finished(self) -> None:
        self.done = True
        world = self.process.world
        world._tasks.pop(self.number, None)
        for task, parked in self._joining:
            world._wake(task, parked)

    def __repr__(self) -> str:
        return f"{self.process.name}/{self.name}"


class World:
    """Virtual time, and whose turn it is."""

    def __init__(self, seed: int | str, *, max_steps: int = 1_000_000, max_time: float = 1e6) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.steps = 0
        self.over = False
        self.doorbells: dict[str, Bell] = {}
        self.streams: Streams | None = None  # set by the streams themselves
        self.failures: list[tuple[Task, BaseException]] = []  # of tasks that nobody was told of
        self.on_crash: Callable[[Process], object] = lambda _: None
        self._max_steps = max_steps
        self._max_time = max_time
        self._numbers = 0
        self._tasks: dict[int, Task] = {}
        self._graveyard: list[Task] = []
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._running: Task | None = None

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do it then: a fault, a message's arrival."""
        self._numbers += 1
        heappush(self._timers, (time if time > self.time else self.time, self._numbers, action))

    def on_its_way(self, delay: tuple[float, float], slow: float, slow_by: tuple[float, float]) -> float:
        """How many seconds a message is: between these, and, as likely as `slow`, so much more."""
        low, high = delay
        seconds: float = low + (high - low) * self.random.random()  # what uniform() does, in half its time
        if slow and self.random.random() < slow:
            seconds += self.random.uniform(*slow_by)
        return seconds

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.time + seconds, action)

    def running(self) -> Task:
        if self._running is None:
            raise RuntimeError("only a task of a simulated process can do this")
        return self._running

    def park(self, why: str, timeout: float = FOREVER, process: Process | None = None) -> Awaitable[None]:
        """Stop running until woken, or for `timeout` seconds by the clock of `process`. To be awaited at once."""
        me = self._running
        if self.over or me is None or not me.process.alive:
            raise Killed
        me._parked = parked = me._parked + 1
        if timeout < FOREVER:
            seconds = timeout / (process.rate if process else 1.0) if timeout > 0 else 0.0
            self.at(self.time + seconds, partial(self._wake, me, parked))
        return _parked(why)

    # ---- running

    def run(self, *tasks: Task) -> None:
        """Until these have ended. An error of theirs is raised here."""
        for task in tasks:
            if not self._advance(FOREVER, task):
                raise Stuck(f"nothing is left to do at {self.time:.3f} s, and yet:\n{self.describe()}")
        for task in tasks:
            if task.error is not None:
                raise task.error

    def run_until(self, time: float) -> None:
        """Whatever happens until then."""
        self._advance(time)
        self.time = max(self.time, time)

    def _advance(self, horizon: float, until: Task | None = None) -> bool:
        """Step by step until that task has ended, or nothing is left to do before the horizon: then False."""
        timers, ready, chance = self._timers, self._ready, self.random.random
        while until is None or not until.done:
            while timers and timers[0][0] <= self.time:
                heappop(timers)[2]()
            if ready:
                if self.time > horizon:
                    return False
                if (count := len(ready)) > 1:
                    index = int(chance() * count)
                    ready[index], ready[-1] = ready[-1], ready[index]
                self._step(ready.pop())
                continue
            if not timers or timers[0][0] > horizon:
                return False
            self.time = timers[0][0]
            if self.time > self._max_time:
                raise Stuck(f"{self._max_time:g} virtual seconds are over, and still:\n{self.describe()}")
        return True

    def _step(self, task: Task) -> None:
        self.time += STEP
        self.steps += 1
        if self.steps > self._max_steps:
            raise Stuck(f"{self._max_steps} steps were not enough, at {self.time:.3f} s:\n{self.describe()}")
        task._queued = False
        task.steps += 1
        thrown = task._thrown() if task._interrupted or task._struck or task.cancel_at_step > 0 else None
        self._running = task
        try:
            task.waits_for = task._send(None) if thrown is None else task._coroutine.throw(thrown)
            task.since = self.time
        except StopIteration as done:
            task.result = done.value
            task._finished()
        except (Cancelled, Raised, Interrupt):
            task.cancelled = True
            task._finished()
        except Killed:
            task._finished()
        except Exception as error:
            task.error = error
            self.failures.append((task, error))
            task._finished()
        finally:
            self._running = None

    # ---- what tasks, bells and processes ask of it

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _wake(self, task: Task, parked: int) -> None:
        if task._parked == parked:
            self._ready_to_run(task)

    def _ready_to_run(self, task: Task) -> None:
        if task.done or task._queued or not task.process.alive:
            return
        task._queued = True
        (task.process._stalled if self.time < task.process._paused_until else self._ready).append(task)

    def _set_aside(self, process: Process) -> None:
        process._stalled += [task for task in self._ready if task.process is process]
        self._ready[:] = [task for task in self._ready if task.process is not process]

    # ---- looking, and the end

    def describe(self) -> str:
        """What every task that has not ended waits for."""
        return "\n".join(self._descriptions()) or "  (no task is left)"

    def _descriptions(self) -> Iterator[str]:
        for task in self._tasks.values():
            state = " (paused)" if task.process.paused else ""
            yield f"  {task}{state} waits for {task.waits_for} since {task.since:.3f} s"

    def close(self) -> None:
        """Take the coroutines apart, without an effect on anything."""
        self.over = True
        for task in [*self._tasks.values(), *self._graveyard]:
            with contextlib.suppress(BaseException):
                task._coroutine.close()
        self._tasks.clear()
        self._graveyard.clear()
        self._timers.clear()

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
