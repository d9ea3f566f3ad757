"""Actors on a stage: real threads, or real tasks on real loops, that a plain test directs from outside.

A test is written once. It gives an actor something to do, as a function of the actor's `locks`; what that returns is
awaited where it has to be, so the same line works in threads and in asyncio:

    a = world.actor("a")
    lease = a.do(lambda locks: locks.lock("x").acquire(timeout=5))
    a.do(lambda _: lease.release())

What takes several steps is an `async def` that wraps each step in `settled()`. Threads run it without ever suspending.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import pytest

from ... import aio, sync
from ...claim import Claim, Snapshot, Traits, new_holder
from ...drivers.base import finish

T = TypeVar("T")
Action = Callable[..., Any]  # of `locks`

PATIENCE = 30.0  # no wait of the suite is longer

LOOPS = ("asyncio", "uvloop") if find_spec("uvloop") else ("asyncio",)
# For tests to which the loop matters, beyond what the fixture `world` asks of all.
on_every_loop = pytest.mark.parametrize("world", ["threads", *LOOPS], indirect=True)


class Cancelled(Exception):
    """The actor was cancelled while it did this."""


async def settled(step: Any) -> Any:
    """The value of a step, whichever surface took it."""
    return await step if inspect.isawaitable(step) else step


async def _perform(action: Action, locks: Any) -> Any:
    return await settled(action(locks))


class Pending:
    """Something that an actor is doing."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self, within: float = PATIENCE) -> Any:
        try:
            return self._future.result(within)
        except TimeoutError:
            if self._future.done():
                raise  # the action's own
            raise AssertionError(f"not done within {within:g} s") from None


class Actor(ABC):
    """A thread or a task, with a connection of its own or beside another."""

    def __init__(self, name: str, locks: Any) -> None:
        self.name = name
        self.locks = locks
        self._kept: list[Any] = []  # what it was given: a lease that nobody has is let go

    async def _perform(self, action: Action) -> Any:
        result = await _perform(action, self.locks)
        self._kept.append(result)
        return result

    @abstractmethod
    def start(self, action: Action) -> Pending:
        """Begin; one action after another."""

    def do(self, action: Action, within: float = PATIENCE) -> Any:
        return self.start(action).result(within)

    def store(self, action: Action) -> Any:
        """Speak to the store itself, below the engine."""
        return self.do(lambda locks: action(locks._engine.store))

    @abstractmethod
    def beside(self, name: str) -> Actor:
        """Another thread or task on the same connection."""

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def disconnect(self) -> None: ...


class _ThreadActor(Actor):
    def __init__(self, name: str, locks: Any) -> None:
        super().__init__(name, locks)
        self._jobs: queue.SimpleQueue[tuple[Action, Future[Any]] | None] = queue.SimpleQueue()
        self._companions: list[Actor] = []
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            action, future = job
            try:
                future.set_result(finish(self._perform(action)))
            except BaseException as error:  # an injected interruption is for the test to see, not for this thread
                future.set_exception(error)

    def start(self, action: Action) -> Pending:
        future: Future[Any] = Future()
        self._jobs.put((action, future))
        return Pending(future)

    def beside(self, name: str) -> Actor:
        companion = _ThreadActor(name, self.locks)
        self._companions.append(companion)
        return companion

    def stop(self) -> None:
        for companion in self._companions:
            companion.stop()
        self._jobs.put(None)
        self._thread.join(PATIENCE / 10)  # one that is stuck is a daemon, and its test has failed by now

    def disconnect(self) -> None:
        closed: Future[None] = Future()

        def close() -> None:
            try:
                closed.set_result(self.locks.close())
            except BaseException as error:
                closed.set_exception(error)

        threading.Thread(target=close, name=f"{self.name} goes home", daemon=True).start()
        Pending(closed).result()  # in a thread of its own: one that is stuck fails its test, and holds up no other


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self, name: str, flavour: str) -> None:
        self.loop: asyncio.AbstractEventLoop = import_module(flavour).new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=f"{name}'s loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def end(self) -> None:
        self.run(self._cancel_the_rest())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def _cancel_the_rest(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for _ in range(3):  # what was closed is gone a turn or two later, and uvloop insists on it
            await asyncio.sleep(0)


class _TaskActor(Actor):
    def __init__(self, name: str, locks: Any, host: _Loop, owns_host: bool) -> None:
        super().__init__(name, locks)
        self._host = host
        self._owns_host = owns_host
        self._companions: list[Actor] = []
        self._jobs: asyncio.Queue[tuple[Action, Future[Any]] | None] = asyncio.Queue()
        self._task = host.run(self._begin())

    async def _begin(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._serve(), name=self.name)

    async def _serve(self) -> None:
        while (job := await self._jobs.get()) is not None:
            action, future = job
            try:
                future.set_result(await self._perform(action))
            except asyncio.CancelledError as error:
                self._task.uncancel()
                future.set_exception(Cancelled(*error.args))
            except BaseException as error:  # an injected interruption is for the test to see, not for this loop
                future.set_exception(error)

    def start(self, action: Action) -> Pending:
        future: Future[Any] = Future()
        self._host.loop.call_soon_threadsafe(self._jobs.put_nowait, (action, future))
        return Pending(future)

    def cancel(self) -> None:
        self._host.loop.call_soon_threadsafe(self._task.cancel)

    def beside(self, name: str) -> Actor:
        companion = _TaskActor(name, self.locks, self._host, owns_host=False)
        self._companions.append(companion)
        return companion

    def stop(self) -> None:
        for companion in self._companions:
            companion.stop()
        self._host.loop.call_soon_threadsafe(self._jobs.put_nowait, None)
        self._host.run(self._ended())

    async def _ended(self) -> None:
        await asyncio.wait([self._task], timeout=PATIENCE / 10)
        self._task.cancel()

    def disconnect(self) -> None:
        self._host.run(self.locks.close())
        if self._owns_host:
            self._host.end()


class World:
    """The stage: makes actors, looks at the store, waits for what should happen."""

    def __init__(self, url: str, flavour: str, ttl_short: float, slack: float) -> None:
        self.url = url
        self.flavour = flavour
        self.slack = slack
        self._actors: list[Actor] = []
        self._looker: Actor | None = None
        self.traits: Traits = self.looker.locks.traits
        self.ttl_short = max(ttl_short, self.traits.min_ttl)  # to be waited out
        self.ttl_kept = max(5 * ttl_short, self.traits.min_ttl)  # to be renewed, on a busy machine too

    @property
    def asynchronous(self) -> bool:
        return self.flavour != "threads"

    def actor(self, name: str, label: str = "", url: str = "") -> Actor:
        """Somebody with a connection of their own; by `url`, on another way to the same space."""
        if self.asynchronous:
            host = _Loop(name, self.flavour)
            made: Actor = _TaskActor(name, host.run(self._connect(url, label)), host, owns_host=True)
        else:
            made = _ThreadActor(name, sync.connect(url or self.url, label=label))
        self._actors.append(made)
        return made

    async def _connect(self, url: str, label: str) -> aio.Locks:
        return aio.connect(url or self.url, label=label)

    def actors(self, *names: str) -> list[Actor]:
        return [self.actor(name) for name in names]

    @property
    def looker(self) -> Actor:
        """Somebody who only looks, on a connection that nobody tampers with."""
        if self._looker is None:
            self._looker = self.actor("looker")
        return self._looker

    def inspect(self, name: str) -> Snapshot:
        found: Snapshot = self.looker.do(lambda locks: locks.inspect(name))
        return found

    def names(self, prefix: str = "") -> list[str]:
        return list(self.looker.do(lambda locks: locks.names(prefix)))

    def waiters(self, name: str) -> list[str]:
        """Who waits, by the names of the actors."""
        return [waiting.owner.split("/")[2] for waiting in self.inspect(name).waiters]

    def holders(self, name: str) -> list[str]:
        return [holding.owner.split("/")[2] for holding in self.inspect(name).holders]

    def until(self, condition: Callable[..., T], within: float = PATIENCE) -> T:
        """Wait for something to come true."""
        end = time.monotonic() + within
        while not (found := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"did not come true within {within:g} s")
            time.sleep(0.002)
        return found

    def until_waiting(self, name: str, *who: str) -> None:
        self.until(lambda: self.waiters(name) == list(who))

    def until_nothing_is_left(self, within: float | None = None) -> None:
        """Nothing held, nobody in line: sooner than any ttl of these tests could have ended it."""
        self.until(lambda: not self.names(), within=5 + self.slack if within is None else within)

    def pause(self, seconds: float) -> Any:
        """Take time, in the way of this world."""
        return asyncio.sleep(seconds) if self.asynchronous else time.sleep(seconds)

    def end(self) -> None:
        actors = list(reversed(self._actors))
        _each(actors, lambda actor: actor.stop())
        _each(actors, lambda actor: actor.disconnect())


def _each(actors: Iterable[Actor], step: Callable[[Actor], None]) -> None:
    """The failure of one does not keep the others open."""
    failure: Exception | None = None
    for actor in actors:
        try:
            step(actor)
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


def inside(lock: Any, body: Action) -> Any:
    """Run `body(lease)` in a `with`, or `async with`, of `lock`."""
    if hasattr(lock, "__aenter__"):
        return _inside(lock, body)
    with lock as lease:
        return finish(_perform(body, lease))


async def _inside(lock: Any, body: Action) -> Any:
    async with lock as lease:
        return await _perform(body, lease)


def claim(name: str, ttl: float = 30.0, *, owner: str = "host/1/somebody", **more: Any) -> Claim:
    """An attempt below the engine: nobody renews it, and nobody takes it back."""
    return Claim(name, new_holder(), owner, ttl, **more)
