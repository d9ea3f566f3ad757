"""A forked child owns nothing. Elsewhere: the child's exit released its parent's lock.

Each scenario is a script in an interpreter of its own, so that nobody forks a test runner full of threads.
"""

from __future__ import annotations

import pytest

from .processes import run
from .world import LOOPS, World, on_every_loop

_PRELUDE = """
import asyncio, gc, os, sys, holdfast
from holdfast import aio

def report(text):
    os.write(1, (text + "\\n").encode())

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            report(f"child failed: {error!r}")
            os._exit(1)
        sys.exit(0)          # an ordinary exit, with its exit handlers
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

url = sys.argv[1]
"""

_THREADS = """
locks = holdfast.connect(url)
again = locks.lock("again", reentrant=True).acquire()
lease = locks.lock("x", ttl=60).acquire()

def work():
    assert not lease.held and lease.lost
    assert lease.release() is False
    assert again.release() is False
    try:
        lease.check()
    except holdfast.LeaseLost as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("the child thinks that it holds its parent's lock")
    if locks.traits.scope != "process":
        assert locks.lock("x").try_acquire() is None
        assert locks.lock("again", reentrant=True).try_acquire() is None
    with locks.lock("y", timeout=5) as mine:
        mine.check()
        report("child works")
    locks.lock("z", ttl=60).acquire(timeout=5)   # its exit gives this back, and nothing else

child(work)
lease.check()
again.check()
assert locks.names() == ["again", "x"], locks.names()
assert lease.release() is True
assert again.release() is True
report("parent held on")
"""

_ASYNCIO = """
async def main():
    async with aio.connect(url) as locks:
        lease = await locks.lock("x", ttl=60).acquire()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert not lease.held
                asyncio.events._set_running_loop(None)
                asyncio.run(inherited(locks))  # though its parent's loop seems to run here
                asyncio.run(afresh())
                code = 0
            except BaseException as error:
                report(f"child failed: {error!r}")
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        lease.check()
        assert list(await locks.names()) == ["x"]
        assert await lease.release() is True
        report("parent held on")

async def inherited(locks):
    async with locks.lock("z", timeout=5):
        pass
    await locks.close()

async def afresh():
    async with aio.connect(url) as locks:
        if locks.traits.scope != "process":
            assert await locks.lock("x").try_acquire() is None
        async with locks.lock("y", timeout=5):
            report("child works")

asyncio.run(main())
"""

_WHILE_WAITING = """
import threading
locks = holdfast.connect(url)
lease = locks.lock("x", ttl=60).acquire()
got = []
waiter = threading.Thread(target=lambda: got.append(locks.lock("x", ttl=60).acquire(timeout=30)))
waiter.start()
while not locks.inspect("x").waiters:
    pass

def work():
    if locks.traits.scope != "process":
        assert len(locks.inspect("x").waiters) == 1
    report("child works")

child(work)
assert len(locks.inspect("x").waiters) == 1
lease.release()
waiter.join(20)
assert got and got[0].held
got[0].release()
report("parent held on")
"""

# Nothing is held and nothing is asked, but there are connections, and whoever watches over them.
_IDLE = """
async def main():
    async with aio.connect(url) as locks:
        async with locks.lock("x", ttl=60):
            pass
        for _ in range(2):
            inherit()
            async with asyncio.timeout(10):
                async with locks.lock("x", ttl=60, timeout=5) as lease:
                    lease.check()
                await locks.names()
    report("parent went on")

def threads():
    locks = holdfast.connect(url)
    with locks.lock("x", ttl=60):
        pass
    for _ in range(2):
        inherit(lambda: use(locks))
        with locks.lock("x", ttl=60, timeout=5) as lease:
            lease.check()
        locks.names()
    report("parent went on")

def use(locks):
    with locks.lock("y", ttl=60, timeout=5) as lease:
        lease.check()

def inherit(work=lambda: None):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            gc.collect()
        except BaseException as error:
            report(f"child failed: {error!r}")
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

if sys.argv[2] == "threads":
    threads()
else:
    __import__(sys.argv[2]).run(main())
"""

_ASYNCIO_WAITER = """
async def main():
    async with aio.connect(url) as locks, aio.connect(url) as others:
        lease = await others.lock("x", ttl=60).acquire()
        waiter = asyncio.ensure_future(locks.lock("x", ttl=60).acquire(timeout=30))
        while not (await others.inspect("x")).waiters:
            await asyncio.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        await asyncio.sleep(0.1)
        assert len((await others.inspect("x")).waiters) == 1
        await lease.release()
        async with asyncio.timeout(float(sys.argv[3])):
            got = await waiter
        got.check()
        await got.release()
    report("parent went on")

__import__(sys.argv[2]).run(main())
"""

# What multiprocessing forks ends with os._exit: no exit handlers but multiprocessing's own.
_MULTIPROCESSING = """
import multiprocessing, time
locks = holdfast.connect(url)
held = locks.lock("parent's", ttl=60).acquire()

def work():
    global kept
    kept = locks.lock("child's", ttl=60).acquire(timeout=5)
    assert "child's" in locks.names()

process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join(20)
assert process.exitcode == 0, process.exitcode
end = time.monotonic() + float(sys.argv[2])
while list(locks.names()) != ["parent's"] and time.monotonic() < end:
    time.sleep(0.01)
report(f"left: {list(locks.names())}")
held.check()
assert held.release() is True
"""


class Forks:
    def test_a_child_owns_nothing_and_its_exit_releases_nothing(self, world: World) -> None:
        script = _ASYNCIO if world.asynchronous else _THREADS
        assert run(_PRELUDE + script, world.url).split("\n") == ["child works", "parent held on"]
        world.until_nothing_is_left()

    def test_a_child_does_not_disturb_who_waits_in_the_parent(self, world: World) -> None:
        if world.asynchronous:
            return  # the same store, and the loop stays in the parent
        assert run(_PRELUDE + _WHILE_WAITING, world.url).split("\n") == ["child works", "parent held on"]
        world.until_nothing_is_left()

    @on_every_loop
    def test_a_child_of_an_idle_parent_disturbs_nothing(self, world: World) -> None:
        assert run(_PRELUDE + _IDLE, world.url, world.flavour) == "parent went on"
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_a_child_does_not_disturb_a_task_that_waits(self, world: World) -> None:
        within = str(1 + world.slack)
        assert run(_PRELUDE + _ASYNCIO_WAITER, world.url, world.flavour, within) == "parent went on"
        world.until_nothing_is_left()

    def test_a_child_of_multiprocessing_gives_back_what_it_acquired_itself(self, world: World) -> None:
        if world.asynchronous or world.traits.scope == "process":
            return  # a loop does not outlive a fork; and what one process has, another cannot see
        left = run(_PRELUDE + _MULTIPROCESSING, world.url, str(1 + world.slack))
        assert left == 'left: ["parent\'s"]'
        world.until_nothing_is_left()
