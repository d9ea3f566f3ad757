"""Fork, exit and Ctrl-C, in processes of their own."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.conformance.processes import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


EXITS = {
    "threads": """
import sys, holdfast
locks = holdfast.connect(sys.argv[1])
locks.lock("x", ttl=600).acquire()
locks.lock("again", ttl=600, reentrant=True).acquire()
locks.lock("again", reentrant=True).acquire()
locks.once("job", at_least=600).acquire()
""",
    "asyncio": """
import asyncio, sys
from holdfast import aio
async def main():
    global locks
    locks = aio.connect(sys.argv[1])
    await locks.lock("x", ttl=600).acquire()
    await locks.all_of("y", "z", ttl=600).acquire()
    await locks.once("job", at_least=600).acquire()
asyncio.run(main())
""",
}


@pytest.mark.parametrize("world", EXITS)
def test_an_interpreter_that_exits_releases_what_it_holds_but_for_at_least(world: str, url: str) -> None:
    run(EXITS[world], url)
    with holdfast.connect(url) as locks:
        assert list(locks.names()) == ["job"]


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_who_waits_on_a_connection_that_is_closed_is_told_and_leaves_the_line(scheme: str, url: str) -> None:
    target = url if scheme == "sqlite" else "memory://closed under a waiter"
    with holdfast.connect(target) as locks, ThreadPoolExecutor() as threads:
        held = locks.lock("x").acquire()
        closing = holdfast.connect(target)
        # In memory nobody rings when a connection closes, but nobody waits longer than a third of the ttl without looking.
        waiter = threads.submit(closing.lock("x", ttl=0.6 if scheme == "memory" else 600).acquire)
        while not locks.inspect("x").waiters:
            time.sleep(0.005)
        closing.close()
        with pytest.raises(holdfast.Misuse, match="cannot acquire 'x': this connection was closed"):
            waiter.result(5)
        assert locks.inspect("x").waiters == ()
        held.release()


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "raise ValueError('dies')", "sys.exit()"])
def test_however_it_ends(ending: str, url: str) -> None:
    script = EXITS["threads"].replace('locks.once("job", at_least=600).acquire()', ending)
    subprocess.run([sys.executable, "-c", script, url], capture_output=True, timeout=30, check=False)
    with holdfast.connect(url) as locks:
        assert list(locks.names()) == []


WAITS = {
    "threads": """
import sys, holdfast
locks = holdfast.connect(sys.argv[1])
print("ready", flush=True)
try:
    locks.lock("x", ttl=600).acquire()
except KeyboardInterrupt:
    print("interrupted", list(len(locks.inspect("x")[part]) for part in (2, 3)), flush=True)
""",
    "asyncio": """
import asyncio, sys
from holdfast import aio
async def main():
    async with aio.connect(sys.argv[1]) as locks:
        print("ready", flush=True)
        try:
            async with locks.lock("x", ttl=600):
                pass
        except asyncio.CancelledError:
            seen = await locks.inspect("x")
            print("interrupted", [len(seen.holders), len(seen.waiters)], flush=True)
            raise
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
""",
}


@pytest.mark.parametrize("world", WAITS)
def test_ctrl_c_while_waiting_leaves_nothing_behind(world: str, url: str) -> None:
    with holdfast.connect(url) as locks, locks.lock("x"):
        process = subprocess.Popen([sys.executable, "-c", WAITS[world], url], stdout=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 20
            while not locks.inspect("x").waiters:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=20)
        finally:
            process.kill()
        assert out.split("\n")[1] == "interrupted [1, 0]"
        assert locks.inspect("x").waiters == ()


def test_a_child_of_a_memory_store_starts_afresh_and_the_parent_goes_on() -> None:
    script = """
import os, sys, threading, holdfast
locks = holdfast.connect("memory://x")
lease = locks.lock("x", ttl=0.5).acquire()
seen = []
lease.on_lost(seen.append)
loss = lease.lost
pid = os.fork()
if pid == 0:
    ok = (
        not lease.held
        and loss.wait(5) is True
        and lease.release() is False
        and locks.names() == []
        and locks.lock("x", timeout=5).acquire().held
        and holdfast.connect("memory://other").lock("y").try_acquire() is not None
        and seen == []
    )
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
threading.Event().wait(0.8)
assert lease.held, "the parent's renewer goes on"
print("fine")
"""
    assert run(script) == "fine"


def test_a_fork_while_others_are_busy_does_not_deadlock_the_child(url: str) -> None:
    """Every lock of ours that another thread held at that moment is replaced in the child."""
    script = """
import os, sys, threading, holdfast
locks = holdfast.connect(sys.argv[1])
stop = threading.Event()
def busy(n):
    while not stop.is_set():
        locks.lock(f"busy{n}", ttl=5).acquire().release()
threads = [threading.Thread(target=busy, args=(n,), daemon=True) for n in range(2)]
for thread in threads:
    thread.start()
for number in range(10):
    pid = os.fork()
    if pid == 0:
        lease = locks.lock(f"child{number}", timeout=20).acquire()
        os._exit(0 if lease.release() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
stop.set()
for thread in threads:
    thread.join(20)
print("fine")
"""
    for store in (url, "memory://busy"):
        assert run(script, store) == "fine"


def test_an_engine_is_let_go_when_nobody_uses_it() -> None:
    locks = holdfast.connect("memory://gone")
    engine = weakref.ref(locks._engine)
    locks.lock("x").acquire().release()
    del locks
    gc.collect()
    assert engine() is None


def test_a_finalizer_that_releases_when_the_interpreter_ends_does_not_hang() -> None:
    """The end of the interpreter stops the renewer wherever it is; nobody may wait for a mutex that it had then."""
    script = """
import holdfast
class Job:
    def __init__(self): self.lease = locks.lock("x").acquire()
    def __del__(self): print(self.lease.release())
locks = holdfast.connect("memory://")
job = Job()
"""
    assert run(script) == "False"


def test_a_thread_left_behind_that_waits_ends_with_the_process_and_without_a_word(url: str) -> None:
    script = """
import sys, threading, holdfast
locks = holdfast.connect(sys.argv[1])
waits = threading.Event()
locks.subscribe(lambda event: waits.set(), ["waiting"])
held = locks.lock("x").acquire()
threading.Thread(target=lambda: locks.lock("x").acquire(), daemon=True).start()
waits.wait(20)
print("fine")
"""
    for store in (url, "memory://"):
        assert run(script, store) == "fine"  # and no traceback, see there


def test_a_child_that_is_forked_in_the_middle_of_an_acquire_leaves_the_claim_to_its_parent(url: str) -> None:
    script = """
import os, sys, holdfast
locks, others = holdfast.connect(sys.argv[1]), holdfast.connect(sys.argv[1])
held = others.lock("x").acquire()
children = []
inside, tell = os.pipe()
def fork(event):  # as a signal handler may, or another greenlet
    if not children:
        children.append(os.fork())
        if children[0]:
            held.release()
        else:
            os.read(inside, 1)  # it goes on when its parent has the lock
locks.subscribe(fork, ["waiting"])
try:
    lease = locks.lock("x", ttl=600).acquire(timeout=20)
except holdfast.Misuse as error:
    os._exit(7 if children == [0] and "forked" in str(error) else 8)
os.write(tell, b"!")
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
assert [one.token for one in others.inspect("x").holders] == [lease.token]
print("fine")
"""
    assert run(script, url) == "fine"


_IN_SILENCE = """
import logging, os, random, signal, sys, threading
del os.register_at_fork
import holdfast
locks = holdfast.connect(sys.argv[1])
kept = locks.lock("kept").acquire()
read, write = os.pipe()
for _ in range(2):
    if not (child := os.fork()):  # and nobody is told, as by uWSGI, which forks in C
        signal.alarm(20)  # where a mistake stops it, it is not left behind
        code = 1
        try:
            {what}
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
os.close(write)
told = os.read(read, 1000).split()
held = [one.token for one in locks.inspect("kept").holders] == [kept.token]
print(len(told), len(set(told)), held)
"""


def _in_silence(what: str, url: str) -> str:
    script = _IN_SILENCE.replace("{what}", what)
    done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_children_forked_in_silence_do_not_ask_as_one(tmp_path: Path) -> None:
    """With one nonce, both would be inside, and with one token, which no fence tells apart."""
    ask = 'os.write(write, locks.lock("x", ttl=1).acquire()._grant.claim.holder.encode() + b" ")'
    assert _in_silence(ask, f"sqlite://{tmp_path}/locks.db") == "2 2 True"


def test_a_child_forked_in_silence_releases_nothing_of_its_parent(tmp_path: Path) -> None:
    assert _in_silence("assert not kept.release()", f"sqlite://{tmp_path}/locks.db") == "0 0 True"
