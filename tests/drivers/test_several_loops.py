"""One connection in several event loops: one after another, one that only stands still, or two in two threads."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import holdfast
from holdfast import aio, events

SPACES = (f"memory://several-loops-{number}" for number in range(1_000_000))


@pytest.fixture
def url() -> str:
    return next(SPACES)


def is_free(url: str, name: str = "x") -> bool:
    with holdfast.connect(url) as others:
        return not others.inspect(name).holders


# ---- a generator that is closed is no coroutine that is collected


async def taken_by_a_task_of_its_own(locks: aio.Locks) -> aio.Lease:
    """As asyncio.wait_for() does it, and gather(): that task is over, and nobody knows of it any more."""
    lease = await asyncio.create_task(locks.lock("x").acquire())
    gc.collect()
    return lease


async def entered(locks: aio.Locks) -> AsyncGenerator[int]:
    async with await taken_by_a_task_of_its_own(locks):
        yield 1


async def released(locks: aio.Locks) -> AsyncGenerator[int]:
    lease = await taken_by_a_task_of_its_own(locks)
    try:
        yield 1
    finally:
        await lease.release()


async def several(locks: aio.Locks) -> AsyncGenerator[int]:
    async with await asyncio.create_task(locks.all_of("x", "y").acquire()):
        gc.collect()
        yield 1


GENERATORS = [entered, released, several]
Generator = Callable[[aio.Locks], AsyncGenerator[int]]


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda one: one.__name__)
def test_whoever_closes_a_generator_finds_the_lock_free(url: str, generator: Generator) -> None:
    async def main() -> None:
        async with aio.connect(url) as locks:
            rows = generator(locks)
            await anext(rows)
            await asyncio.sleep(0)  # until then the loop itself knows of the task that acquired
            await rows.aclose()
            assert is_free(url)
            assert await locks.lock("x").try_acquire() is not None

    asyncio.run(main())


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda one: one.__name__)
def test_a_generator_that_ends_with_its_loop_leaves_the_lock_free(url: str, generator: Generator) -> None:
    """asyncio.run() closes them when all tasks are over, and the renewer with them: nothing is left to the background then."""
    locks = aio.connect(url)
    left: list[AsyncGenerator[int]] = []

    async def main() -> None:
        left.append(generator(locks))
        await anext(left[0])

    asyncio.run(main())
    assert is_free(url)
    asyncio.run(locks.close())


def test_who_runs_a_loop_in_the_end_of_a_plain_generator_waits_for_the_release(url: str) -> None:
    """What that is ended by, GeneratorExit, is seen by all that runs meanwhile."""
    locks = aio.connect(url)
    with asyncio.Runner() as runner:

        async def take() -> aio.Lease:
            return await locks.lock("x").acquire()

        async def leave(lease: aio.Lease) -> bool:
            return await lease.release()

        def rows() -> Iterator[int]:
            lease = runner.run(take())
            try:
                yield 1
            finally:
                gc.collect()
                runner.run(leave(lease))

        for _ in rows():
            break
        assert is_free(url)
        runner.run(locks.close())


# ---- of two loops, one renews for both


@contextmanager
def renewed_elsewhere(locks: aio.Locks) -> Iterator[None]:
    """By a loop of another thread, in which the first was acquired."""
    has_it, is_over = threading.Event(), threading.Event()

    async def first() -> None:
        async with locks.lock("first", ttl=60):
            has_it.set()
            await asyncio.to_thread(is_over.wait, 30)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, first())
        try:
            assert has_it.wait(10)
            yield
        finally:
            is_over.set()
            running.result(10)


async def in_a_body(lease: aio.Lease, evict: Callable[[], object]) -> None:
    with pytest.raises(holdfast.LeaseLost):
        async with lease:
            evict()
            await asyncio.Event().wait()


async def for_the_loss(lease: aio.Lease, evict: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_soon(evict)
    assert await lease.lost.wait()


async def by_a_callback(lease: aio.Lease, evict: Callable[[], object]) -> None:
    told = asyncio.Event()
    lease.on_lost(lambda _: told.set())
    evict()
    await told.wait()


async def for_the_release(lease: aio.Lease, evict: Callable[[], object]) -> None:
    sleeper = threading.get_ident()

    def release() -> None:
        until_its_loop_sleeps(sleeper)
        asyncio.run(lease.release())

    asyncio.get_running_loop().call_soon(lambda: threading.Thread(target=release).start())
    assert not await lease.lost.wait()


def until_its_loop_sleeps(thread: int) -> None:
    """By then it has looked whether there is something to do, and only what wakes it makes it look again."""
    deadline = time.monotonic() + 10
    while sys._current_frames()[thread].f_code.co_name != "select":
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(
    "waits", [in_a_body, for_the_loss, by_a_callback, for_the_release], ids=lambda one: one.__name__
)
def test_a_loss_is_heard_of_in_the_loop_that_waits_for_it(
    url: str, waits: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    """And in which nothing else happens that would wake it."""
    locks = aio.connect(url)
    loops: list[asyncio.AbstractEventLoop] = []

    async def second() -> None:
        loops.append(asyncio.get_running_loop())
        lease = await locks.lock("x", ttl=0.6).acquire()
        with holdfast.connect(url) as others:
            await waits(lease, lambda: others.force_release("x", token=lease.token))

    with renewed_elsewhere(locks), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(asyncio.run, second())
        try:
            waiting.result(10)
        finally:
            if not waiting.done():
                loops[0].call_soon_threadsafe(lambda: None)
    asyncio.run(locks.close())


# ---- one after another, or one that stands still meanwhile


async def take(locks: aio.Locks, name: str) -> aio.Lease:
    return await locks.lock(name, ttl=3).acquire()


async def is_renewed(locks: aio.Locks, name: str) -> None:
    heard = asyncio.Event()
    stop = locks.subscribe(lambda event: heard.set() if event.name == name else None, [events.RENEWED])
    async with asyncio.timeout(10):
        await heard.wait()
    stop()


async def in_its_body(locks: aio.Locks, lease: aio.Lease) -> None:
    async with lease:
        await is_renewed(locks, lease.name)


async def beside_a_watch(locks: aio.Locks, lease: aio.Lease) -> None:
    watching = asyncio.create_task(lease.lost.wait())
    await is_renewed(locks, lease.name)
    await lease.release()
    assert not await watching


async def beside_another(locks: aio.Locks, lease: aio.Lease) -> None:
    async with locks.lock("y", ttl=3):
        await is_renewed(locks, "y")
    await lease.release()


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "stopped"])
@pytest.mark.parametrize("goes_on", [in_its_body, beside_a_watch, beside_another], ids=lambda one: one.__name__)
def test_what_is_relied_on_in_the_next_loop_is_renewed_there(
    url: str, goes_on: Callable[..., Coroutine[Any, Any, None]], closed: bool
) -> None:
    locks = aio.connect(url)
    first = asyncio.new_event_loop()
    try:
        lease = first.run_until_complete(take(locks, "x"))
        if closed:
            first.close()
        asyncio.run(goes_on(locks, lease))
        asyncio.run(locks.close())
    finally:
        first.close()


def test_a_loop_that_goes_on_after_another_renews_again(url: str) -> None:
    locks = aio.connect(url)
    with asyncio.Runner() as first:
        lease = first.run(take(locks, "x"))
        asyncio.run(take_and_leave(locks))
        for _ in range(2):  # the first is due since then, and the next is nobody's unless it has taken over
            first.run(is_renewed(locks, "x"))  # nobody acquires anything here, nor enters
        assert lease.held
        first.run(locks.close())


async def take_and_leave(locks: aio.Locks) -> None:
    async with locks.lock("y", ttl=3):
        pass
