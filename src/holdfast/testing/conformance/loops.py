"""The loops and schedulers that people run: tasks of every making, eager ones, uvloop, gevent."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from ... import aio, events
from ...errors import Misuse, Unsupported
from .processes import run
from .world import LOOPS, World

# Take, wait, be let in: in greenlets that share one thread, with every blocking call replaced by gevent's.
_GEVENT = """
from gevent import monkey
monkey.patch_all()
import gevent, sys, holdfast
locks, others = holdfast.connect(sys.argv[1]), holdfast.connect(sys.argv[1])
"""
# The application was loaded before, as by `gunicorn -k gevent --preload`, and the worker was forked.
_GEVENT_LATE = """
import os, sys, holdfast
locks, others = holdfast.connect(sys.argv[1]), holdfast.connect(sys.argv[1])
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from gevent import monkey
monkey.patch_all()
import gevent
"""
_TURNS = """
order = []
def turn(who, locks):
    with locks.lock("x", ttl=30).acquire(timeout=20) as lease:
        order.append((who, lease.token))
        gevent.sleep(0.02)
with locks.lock("x", ttl=30) as lease:
    order.append(("first", lease.token))
    waiting = [gevent.spawn(turn, f"w{n}", (locks, others)[n % 2]) for n in range(4)]
    while len(others.inspect("x").waiters) < 4:
        gevent.sleep(0.01)
gevent.joinall(waiting, timeout=20, raise_error=True)
assert all(each.successful() for each in waiting)
assert len(order) == 5 and [token for _, token in order] == sorted(token for _, token in order), order
locks.close()
others.close()
print("fine")
"""


class Loops:
    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_what_acquire_returns_may_be_made_a_task(self, world: World) -> None:
        a = world.actor("a")

        async def take(locks: Any) -> None:
            first = await asyncio.create_task(locks.lock("x").acquire(timeout=5))
            async with asyncio.TaskGroup() as group:
                second = group.create_task(locks.lock("x").acquire(timeout=5))
                third = group.create_task(locks.all_of("y", "z").acquire(timeout=5))
                fourth = group.create_task(locks.rwlock("r").read().acquire(timeout=5))
                await first.release()
            for each in (second, third, fourth):
                await each.result().release()
            async with asyncio.timeout(5):
                got = await asyncio.wait_for(locks.lock("x").acquire(), 5)
                await got.release()

        a.do(take)
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_one_that_was_never_awaited_asks_for_nothing(self, world: World) -> None:
        a = world.actor("a")

        async def forget(locks: Any) -> None:
            locks.lock("x").acquire(timeout=5).close()

        a.do(forget)
        assert world.names() == []

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
    @pytest.mark.parametrize(
        "world", ["asyncio"], indirect=True
    )  # uvloop passes the factory words that it does not know
    def test_eager_tasks_are_as_good_as_others(self, world: World) -> None:
        a, holder = world.actors("a", "holder")
        held = holder.do(lambda locks: locks.lock("x").acquire())

        async def eagerly(locks: Any) -> None:
            factory = getattr(asyncio, "eager_task_factory")  # noqa: B009 - Python 3.12
            asyncio.get_running_loop().set_task_factory(factory)
            kept = await locks.lock("y", ttl=world.ttl_short).acquire(timeout=5)
            waiting = asyncio.get_running_loop().create_task(locks.lock("x").acquire(timeout=20))
            await asyncio.to_thread(world.until, lambda: len(world.waiters("x")) == 1)
            await asyncio.to_thread(holder.do, lambda _: held.release())
            await (await waiting).release()
            await asyncio.to_thread(world.until, lambda: world.inspect("y").holders[0].age > 2 * world.ttl_short)
            assert kept.held
            await kept.release()
            cancelled = asyncio.get_running_loop().create_task(locks.lock("y").acquire(timeout=20))
            cancelled.cancel()
            await asyncio.wait([cancelled])

        a.do(eagerly)
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", ["asyncio"], indirect=True)
    def test_whoever_cancels_all_other_tasks_makes_no_waiter_deaf(self, world: World) -> None:
        """Here it broke: what listened for the bell was such a task, and the waiter slept for a third of its ttl."""
        a, holder = world.actors("a", "holder")
        held = holder.do(lambda locks: locks.lock("x").acquire())

        async def wait(locks: Any) -> None:
            waiting = asyncio.create_task(locks.lock("x", ttl=60).acquire(timeout=30))
            await asyncio.to_thread(world.until, lambda: len(world.waiters("x")) == 1)
            await asyncio.sleep(0.05)  # it sleeps by now
            for each in asyncio.all_tasks() - {waiting, asyncio.current_task()}:
                if each.get_name() != "a":
                    each.cancel()
            await asyncio.to_thread(holder.do, lambda _: held.release())
            async with asyncio.timeout(3 + world.slack):
                lease = await waiting
            await lease.release()

        a.do(wait)
        world.until_nothing_is_left()

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio's word for what its loop was left with
    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_what_was_connected_in_a_loop_that_is_over_goes_on_in_the_next(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As a program does that calls asyncio.run() twice, or a suite of tests that has a loop a test."""
        holder = world.actor("holder")
        before: list[Any] = []
        soon = 3 + world.slack

        async def first() -> Any:
            locks = aio.connect(world.url)
            async with asyncio.TaskGroup() as group:  # two at once, so that one waits for the connection of the other
                for name in "ab":
                    group.create_task(_in_and_out(locks, name))
            renewed = asyncio.Event()
            locks.subscribe(lambda event: renewed.set(), [events.RENEWED])
            async with asyncio.timeout(30), locks.lock("r", ttl=world.ttl_kept):
                await renewed.wait()
            before.append(await locks.lock("x").acquire(timeout=5))
            before.append(asyncio.create_task(locks.lock("x").acquire(timeout=20)))
            await asyncio.to_thread(world.until, lambda: len(world.waiters("x")) == 1 or not world.traits.fair)
            return locks

        async def second(locks: Any) -> None:
            async with asyncio.timeout(6 * soon), asyncio.TaskGroup() as group:
                for name in "ab":
                    group.create_task(_in_and_out(locks, name))
            await before.pop(0).release()
            await _in_and_out(locks, "x", 6 * soon)
            held = await asyncio.to_thread(holder.do, lambda locks: locks.lock("y").acquire())
            waiting = asyncio.create_task(locks.lock("y", ttl=60).acquire(timeout=30))
            await asyncio.to_thread(world.until, lambda: len(world.waiters("y")) == 1 or not world.traits.fair)
            await asyncio.sleep(0.1)  # it sleeps by now, if there is no line to be seen in
            await asyncio.to_thread(holder.do, lambda _: held.release())
            async with asyncio.timeout(soon):
                await (await waiting).release()
            await locks.close()

        with caplog.at_level(logging.WARNING, "asyncio"):
            with asyncio.Runner(loop_factory=import_module(world.flavour).new_event_loop) as runner:
                locks = runner.run(first())
            with _files_of_others() as untouched:
                with asyncio.Runner(loop_factory=import_module(world.flavour).new_event_loop) as runner:
                    runner.run(second(locks))
                del locks, runner
                before.clear()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of what its closed loop cannot close
                    gc.collect()
                assert untouched(), "a number of the loop that is over was used, though it was somebody else's by then"
        assert [record.getMessage() for record in caplog.records] == []
        world.until_nothing_is_left(6 * soon)

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio's word for what its loop was left with
    @pytest.mark.filterwarnings(  # and for what it was dialling: where, and why, is asyncio's affair
        r"ignore:Exception ignored in. <(coroutine object BaseEventLoop\.|_cython)"
        ":pytest.PytestUnraisableExceptionWarning"
    )
    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_a_loop_that_ends_in_the_middle_of_everything_leaves_the_next_nothing_to_wait_for(
        self, world: World
    ) -> None:
        """asyncio.run() cancels the tasks that there are, but not those that they begin in order to tidy up."""
        chance = random.Random(11)
        told: list[str] = []

        async def connected() -> Any:
            locks = aio.connect(world.url)
            locks.subscribe(lambda event: told.append(f"{event.name}: {event.detail}"), [events.LOST])
            return locks

        async def come_and_go(locks: Any, name: str, confirm: bool) -> None:
            while True:
                async with locks.lock(name, ttl=60, timeout=30, confirm=confirm):
                    await asyncio.sleep(0)

        async def busy(locks: Any) -> None:
            some = [asyncio.create_task(come_and_go(locks, "xyz"[n % 3], confirm=n % 2 == 0)) for n in range(8)]
            await asyncio.wait(some, timeout=chance.uniform(0.02, 0.15))

        async def quiet(locks: Any) -> None:
            for name in "xyz":
                async with asyncio.timeout(2 + world.slack):
                    await _in_and_out(locks, name)

        def alone(main: Any) -> Any:
            with asyncio.Runner(loop_factory=import_module(world.flavour).new_event_loop) as runner:
                return runner.run(main)

        locks = alone(connected())
        for _ in range(4):
            alone(busy(locks))
            alone(quiet(locks))
        alone(locks.close())
        del locks
        _collect()
        assert told == []
        world.until_nothing_is_left()

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio's word for what its loop was left with
    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_whoever_has_a_loop_for_every_turn_keeps_nobody_waiting(self, world: World) -> None:
        """As a worker does that calls asyncio.run() for every job: what a loop leaves is neither listened to nor kept open."""
        sockets: list[int] = []

        def turns(most: int) -> None:
            locks = aio.connect(world.url)
            for number in range(most):
                with asyncio.Runner(loop_factory=import_module(world.flavour).new_event_loop) as runner:
                    runner.run(_in_and_out(locks, "x", 8 + world.slack))  # who is deaf looks again after ten
                    if number == most - 1:
                        runner.run(locks.close())
                sockets.append(_open_sockets())

        gc.disable()  # what is closed only when it is collected is not closed
        try:
            turns(2)
            with ThreadPoolExecutor(2) as threads:
                for each in [threads.submit(turns, 10) for _ in range(2)]:
                    each.result(20 * (8 + world.slack))
            turns(2)
            assert sockets[-1] <= sockets[1] + 4, sockets
        finally:
            gc.enable()
        world.until_nothing_is_left()

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_nothing_stays_open_of_loops_that_only_looked_nor_of_those_that_were_closed_late(
        self, world: World
    ) -> None:
        new_loop = import_module(world.flavour).new_event_loop
        sockets: list[int] = []

        async def look(locks: aio.Locks) -> None:
            await locks.inspect("x")

        gc.disable()
        try:
            locks = aio.connect(world.url)
            for _ in range(8):
                loops = new_loop(), new_loop()
                for loop in loops:  # the first is stopped while the second runs, and closed after it has begun
                    loop.run_until_complete(look(locks))
                for loop in loops:
                    loop.close()
                sockets.append(_open_sockets())
            assert sockets[-1] <= sockets[0] + 4, sockets
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(_in_and_out(locks, "x", 8 + world.slack))
                runner.run(locks.close())
        finally:
            gc.enable()
        _collect()
        world.until_nothing_is_left()

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_what_is_held_when_its_loop_ends_keeps_others_out_while_the_next_one_works(self, world: World) -> None:
        new_loop = import_module(world.flavour).new_event_loop
        locks = aio.connect(world.url)
        told: list[str] = []
        locks.subscribe(lambda event: told.append(event.kind), kinds=["lost"])

        async def take() -> aio.Lease:
            return await locks.lock("x", ttl=60).acquire(timeout=8 + world.slack)

        async def work(lease: aio.Lease) -> None:
            await _in_and_out(locks, "y", 8 + world.slack)
            async with aio.connect(world.url) as others:
                assert lease.held
                assert await others.lock("x").try_acquire() is None
            await lease.release()

        with asyncio.Runner(loop_factory=new_loop) as runner:
            lease = runner.run(take())
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(work(lease))
            runner.run(locks.close())
        assert told == []
        _collect()
        world.until_nothing_is_left()

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio's word for what its loop was left with
    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_who_waits_in_a_loop_that_is_closed_and_was_not_cancelled_keeps_nobody_out(self, world: World) -> None:
        """`run_until_complete(main())` and `close()`, as it was done before asyncio.run(): other tasks stay where they are."""
        new_loop = import_module(world.flavour).new_event_loop
        holder = world.actor("holder")
        held = holder.do(lambda locks: locks.lock("x").acquire())
        waiting: list[asyncio.Task[Any]] = []

        async def holds_and_waits(locks: aio.Locks) -> None:
            async with locks.lock("y", ttl=60):
                await asyncio.create_task(locks.lock("x", ttl=60).acquire(), name="waiter")

        async def watches(locks: aio.Locks) -> None:
            async for _ in locks.election("z").watch():
                pass

        async def first() -> aio.Locks:
            locks = aio.connect(world.url)
            waiting.append(asyncio.create_task(locks.lock("x", ttl=60).acquire()))
            waiting.extend(asyncio.create_task(main(locks)) for main in (holds_and_waits, watches))
            await asyncio.to_thread(world.until, lambda: len(world.waiters("x")) == 2 or not world.traits.fair)
            await asyncio.to_thread(world.until, lambda: world.inspect("y").holders)
            return locks

        async def second(locks: aio.Locks) -> None:
            await asyncio.to_thread(holder.do, lambda _: held.release())
            await _in_and_out(locks, "x", 3 + world.slack)
            waiting.clear()  # and with it, all that know of who has the other
            _collect()
            await _in_and_out(locks, "y", 3 + world.slack)
            started = time.monotonic()
            await locks.close()
            assert time.monotonic() - started < 2 + world.slack, "it waited for who will never answer"

        loop = new_loop()
        locks = loop.run_until_complete(first())
        loop.close()
        with _nothing_said_of_tasks(), asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(second(locks))
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_a_coroutine_that_is_closed_after_its_loop_waits_for_nothing(self, world: World) -> None:
        """As the collector does it, in the middle of somebody else's task: to wait there would be in that one's name."""

        async def holds(locks: aio.Locks, inside: asyncio.Event) -> None:
            async with locks.lock("x", ttl=60):
                inside.set()
                await asyncio.get_running_loop().create_future()

        async def first() -> tuple[aio.Locks, Coroutine[Any, Any, None], asyncio.Task[None]]:
            locks, inside = aio.connect(world.url), asyncio.Event()
            held = holds(locks, inside)
            task = asyncio.create_task(held)
            await asyncio.wait_for(inside.wait(), 10)
            return locks, held, task

        async def second(locks: aio.Locks) -> None:
            held.close()  # RuntimeError, if it waits
            await _in_and_out(locks, "x", 3 + world.slack)
            await locks.close()

        new_loop = import_module(world.flavour).new_event_loop
        loop = new_loop()
        locks, held, task = loop.run_until_complete(first())
        with _nothing_said_of_connections():  # uvloop stands still if what it says of them while it closes is an error
            loop.close()
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(second(locks))
        with _nothing_said_of_tasks():
            del task
            _collect()
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_who_waits_is_rung_while_a_loop_that_was_used_before_stands_still(self, world: World) -> None:
        """As with pytest-asyncio's loops of two scopes: one is stopped while the other runs, and goes on later. It listens to
        nothing meanwhile, nor does anybody in it give up what is kept there."""
        holder = world.actor("holder")
        soon = 4 + world.slack  # whoever is not rung looks again after ten

        async def handed_over(locks: aio.Locks) -> None:
            held = await asyncio.to_thread(holder.do, lambda locks: locks.lock("x").acquire())
            waiting = asyncio.create_task(locks.lock("x", ttl=60).acquire(timeout=30))
            await asyncio.to_thread(world.until, lambda: len(world.waiters("x")) == 1 or not world.traits.fair)
            await asyncio.sleep(0.1)  # it sleeps by now, if there is no line to be seen in
            await asyncio.to_thread(holder.do, lambda _: held.release())
            async with asyncio.timeout(soon):
                await (await waiting).release()

        async def kept(locks: aio.Locks) -> None:
            renewed = asyncio.Event()
            subscribed = locks.subscribe(lambda event: renewed.set(), [events.RENEWED])
            async with asyncio.timeout(30), locks.lock("k", ttl=world.ttl_kept, keep=60):
                await renewed.wait()
            subscribed()
            taking = asyncio.to_thread(holder.do, lambda locks: locks.lock("k").acquire(timeout=soon))
            lease: Any = await taking
            await asyncio.to_thread(holder.do, lambda _: lease.release())
            async with locks.lock("k", ttl=world.ttl_kept, keep=60):
                pass

        async def reads(locks: aio.Locks) -> aio.Lease:
            return await locks.rwlock("r", keep=60).read().acquire(timeout=soon)

        new_loop = import_module(world.flavour).new_event_loop
        loops = new_loop(), new_loop()
        locks = aio.connect(world.url)
        for loop in (*loops, *loops):
            loop.run_until_complete(handed_over(locks))
        with suppress(Unsupported):
            for loop in loops:
                loop.run_until_complete(kept(locks))
            for loop, lease in [(loop, loop.run_until_complete(reads(locks))) for loop in loops]:
                loop.run_until_complete(lease.release())
        loops[1].run_until_complete(locks.close())
        with _nothing_said_of_connections(), _nothing_said_of_tasks():
            for loop in loops:
                loop.run_until_complete(_others_have_ended())
                loop.close()
            _collect()
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_a_second_loop_at_the_same_time_works_or_is_refused_by_name(self, world: World) -> None:
        """Not served so badly that one has to find out why."""

        async def beside() -> None:
            locks = aio.connect(world.url)
            async with locks.lock("x"):
                try:
                    await asyncio.to_thread(asyncio.run, _in_and_out(locks, "y", 8 + world.slack))
                except Misuse as error:
                    assert "another event loop" in str(error), error  # noqa: PT017  # or it works
            await _in_and_out(locks, "y", 8 + world.slack)
            held = await locks.lock("x").acquire()
            await asyncio.to_thread(asyncio.run, locks.close())  # which is refused to nobody
            assert not held.held

        with asyncio.Runner(loop_factory=import_module(world.flavour).new_event_loop) as runner:
            runner.run(beside())
        world.until_nothing_is_left()

    @pytest.mark.skipif(not find_spec("gevent"), reason="gevent is not installed")
    def test_greenlets_take_turns(self, world: World) -> None:
        if world.asynchronous:
            return  # gevent brings its own
        assert run(_GEVENT + _TURNS, world.url) == "fine"
        world.until_nothing_is_left()

    @pytest.mark.skipif(not find_spec("gevent"), reason="gevent is not installed")
    def test_greenlets_take_turns_though_the_application_was_loaded_before(self, world: World) -> None:
        if world.asynchronous:
            return
        assert run(_GEVENT_LATE + _TURNS, world.url) == "fine"
        world.until_nothing_is_left()


def _collect() -> None:
    with _nothing_said_of_connections():
        gc.collect()


@contextmanager
def _nothing_said_of_connections() -> Iterator[None]:
    """ResourceWarning, of what closed loops cannot close."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


@contextmanager
def _nothing_said_of_tasks() -> Iterator[None]:
    """Asyncio warns of tasks that are pending when they are collected: these were meant to be."""
    logging.getLogger("asyncio").disabled = True
    try:
        yield
    finally:
        logging.getLogger("asyncio").disabled = False


async def _others_have_ended() -> None:
    """What hears only now that all is over; but for what waits for an answer still."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=1.0)


async def _in_and_out(locks: Any, name: str, within: float = 10.0) -> None:
    async with locks.lock(name).acquire(timeout=within):
        pass


@contextmanager
def _files_of_others() -> Iterator[Any]:
    """Files that get the numbers which are free now; afterwards each is the one that it was."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(40)]
        were = [os.fstat(file.fileno()).st_ino for file in files]
        yield lambda: [os.fstat(file.fileno()).st_ino for file in files] == were


def _open_sockets() -> int:
    found = 0
    for number in range(3, 1024):
        with suppress(OSError):
            found += stat.S_ISSOCK(os.fstat(number).st_mode)
    return found
