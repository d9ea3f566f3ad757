"""A forked child owns nothing. Elsewhere: the child's exit released its parent's lock.

Each scenario is a script in an interpreter of its own, so that nobody forks a test runner full of threads.
"""

from __future__ import annotations

from .processes import run
from .world import World

_PRELUDE = """
import asyncio, os, sys, holdfast
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
