"""A lease that nobody can reach any more is let go, as a file is: with a warning, and in the background.

To renew it for ever would be to hold a lock that nobody can release. Here it broke: a gather() that failed, a signal handler
that raised between acquire and `with`, and the lock stayed taken until the process ended.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .kinds import MUTEXES
from .processes import run
from .world import LOOPS, PATIENCE, World, inside, on_every_loop, settled

SOON = 2.0

_FORGETFUL = """
import gc, logging, sys, time, warnings, holdfast
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
warnings.simplefilter("always", ResourceWarning)
locks = holdfast.connect(sys.argv[1])
locks.lock("x").acquire()  # LINE
gc.collect()
end = time.monotonic() + 10
while locks.names() and time.monotonic() < end:
    time.sleep(0.01)
print(locks.names())
"""

LOCKING = """locks.lock(f"x{number}", ttl=60, timeout=10):
            pass"""

# What Ctrl-C, and the time limits of task queues, do to a thread: an exception out of nothing, at any bytecode.
SIGNALLED = """
import gc, logging, random, signal, sys, threading, time, warnings, holdfast
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
class Stop(BaseException): pass
class Late(Exception): pass  # as the time limits of Celery and RQ are
armed = False
def stop(*_):
    global armed
    if armed:
        armed = False
        raise random.choice((Stop, Late))
signal.signal(signal.SIGALRM, stop)
sys.unraisablehook = lambda _: None  # what is raised in a __del__ goes nowhere
random.seed(5)
locks = holdfast.connect(sys.argv[1])
before = time.monotonic()
locks.lock("warm").acquire(timeout=5).release()
span = 1.2 * (time.monotonic() - before)
for number in range(int(sys.argv[2])):
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, span))
        with locks.lock(f"x{number}", ttl=60, timeout=10):
            pass
        armed = False
    except (Stop, Late):
        pass
    armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
gc.collect()
other = threading.Thread(target=lambda: locks.lock("other").acquire(timeout=10).release(), daemon=True)
other.start()
other.join(20)
assert not other.is_alive(), "what this thread has locked, no other gets any more"
end = time.monotonic() + 3
while locks.names() and time.monotonic() < end:
    time.sleep(0.01)
print(len(locks.names()), flush=True)
import os
os._exit(0)
"""


class Abandonment:
    signals = 300  # that are sent to somebody who takes and leaves locks

    @on_every_loop
    def test_a_lease_that_nobody_references_is_let_go_and_somebody_is_told(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        a = world.actor("a")
        for number, (kind, make) in enumerate(MUTEXES.items()):
            name = f"x{number}"
            caplog.clear()
            with recorded() as told, caplog.at_level(logging.WARNING, "holdfast"):
                a.do(lambda locks, make=make, name=name: forgotten(make(locks, name, ttl=60)))
                gc.collect()
                world.until(lambda name=name: name not in world.names(), within=SOON + world.slack)
                world.until(lambda: caplog.records, within=SOON)
            assert any(issubclass(one.category, ResourceWarning) and repr(name) in str(one.message) for one in told), (
                kind
            )
            assert any("was dropped" in one.getMessage() and repr(name) in one.getMessage() for one in caplog.records)

    def test_who_is_told_learns_where_the_lease_was_acquired(self, world: World, tmp_path: Path) -> None:
        if world.asynchronous:
            return  # the same words
        script = tmp_path / "forgetful.py"
        script.write_text(_FORGETFUL)
        line = _FORGETFUL[: _FORGETFUL.index("# LINE")].count("\n") + 1
        done = subprocess.run(
            [sys.executable, str(script), world.url], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert done.stdout.strip() == "[]"
        assert "ResourceWarning" in done.stderr
        warned = re.search(r"^WARNING holdfast\S* .*was dropped.*$", done.stderr, re.MULTILINE)
        assert warned, done.stderr
        assert re.search(rf"forgetful\.py\D+{line}\b", done.stderr), done.stderr

    @on_every_loop
    def test_what_is_in_use_or_was_given_back_is_not_abandoned(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        a = world.actor("a")

        def look(_: object) -> None:
            gc.collect()
            assert world.holders("x") == ["a"]

        async def give_back(locks: Any) -> None:
            lease = await settled(locks.lock("x").acquire(timeout=5))
            await settled(lease.release())

        async def keep_going(locks: Any) -> None:
            """Entered as it was acquired: nothing but the `with` knows the lease."""
            await settled(inside(locks.lock("x").acquire(timeout=5), lambda _: look(None)))

        with recorded() as told, caplog.at_level(logging.WARNING, "holdfast"):
            for make in MUTEXES.values():
                a.do(lambda locks, make=make: inside(make(locks, "x"), lambda _: look(None)))
            a.do(keep_going)
            a.do(give_back)
            gc.collect()
        assert [str(one.message) for one in told] == []
        assert [one.getMessage() for one in caplog.records if one.name.startswith("holdfast")] == []
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_a_gather_that_fails_leaves_nothing_held(self, world: World) -> None:
        a, holder = world.actors("a", "holder")
        held = holder.do(lambda locks: locks.lock("busy").acquire())

        async def failing() -> None:
            await asyncio.sleep(0.05)
            raise KeyError("as the test wants it")

        async def gather(locks: Any) -> None:
            with pytest.raises(KeyError):
                await asyncio.gather(locks.lock("one", ttl=60).acquire(), failing())

        async def cancelled_while_it_arrived(locks: Any) -> None:
            task = asyncio.ensure_future(locks.lock("two", ttl=60).acquire())
            await asyncio.wait([task])
            del task

        with recorded():
            a.do(gather)
            a.do(cancelled_while_it_arrived)
            gc.collect()
            world.until(lambda: world.names() == ["busy"], within=SOON + world.slack)
        holder.do(lambda _: held.release())

    def test_a_signal_handler_that_raises_leaves_nothing_held(self, world: World) -> None:
        if world.asynchronous:
            return  # there it is a cancellation
        assert run(SIGNALLED, world.url, str(self.signals)) == "0"

    def test_a_signal_handler_that_raises_in_a_downgrade_leaves_nothing_held(self, world: World) -> None:
        """Here it broke: etcd had moved it to another key, and only the old one was given back."""
        if world.asynchronous:
            return
        writing = 'locks.rwlock(f"x{number}", ttl=60, timeout=10).write() as lease:\n            lease.downgrade()'
        script = SIGNALLED.replace(LOCKING, writing).replace("1.2 *", "1.8 *")
        assert script.count("downgrade") == 1
        assert run(script, world.url, str(self.signals)) == "0"


def forgotten(lock: Any) -> Any:
    """Acquire, and let go of what came of it."""
    if hasattr(lock, "__aenter__"):
        return _forgotten(lock)
    lock.acquire(timeout=5)
    return None


async def _forgotten(lock: Any) -> None:
    await lock.acquire(timeout=5)


@contextmanager
def recorded() -> Iterator[list[warnings.WarningMessage]]:
    """The ResourceWarnings of everybody, in whatever thread."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ResourceWarning)
        yield told
