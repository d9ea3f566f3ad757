"""Other processes: to be killed, and to find out how far exclusion reaches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .world import PATIENCE, World

_HOLD = """
import sys, holdfast
url, name, ttl = sys.argv[1:]
lease = holdfast.connect(url).lock(name, ttl=float(ttl)).acquire(timeout=20)
print(lease.token, flush=True)
sys.stdin.read()
"""

_TRY = """
import sys, holdfast
lease = holdfast.connect(sys.argv[1]).lock(sys.argv[2]).try_acquire()
print("in" if lease else "out")
"""

# uWSGI forks its workers without a word to Python: os.register_at_fork() hears nothing of it. Here, nobody is registered: were it
# done in C, CPython's own locks would now and then be in the middle of something.
_FORKED_IN_SILENCE = """
import logging, os, random, signal, sys, threading, time, traceback
del os.register_at_fork
import holdfast
url, folder = sys.argv[1:]
locks = holdfast.connect(url)
with locks.lock("before"):  # now there are nonces, connections, a renewer
    pass
kept = locks.lock("kept").acquire()
children = []
for number in range(3):
    if not (child := os.fork()):
        signal.alarm(200)  # where a mistake stops it, it is not left behind
        code = 1
        try:
            for _ in range(8):
                with locks.lock("x", timeout=60) as lease:
                    os.close(os.open(f"{folder}/inside", os.O_CREAT | os.O_EXCL))
                    open(f"{folder}/{lease.token}", "x").close()
                    time.sleep(0.005)
                    os.unlink(f"{folder}/inside")
            assert locks.lock("kept").try_acquire() is None
            assert not kept.release()  # it is the parent's
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
kept.check()
assert kept.release()
locks.close()
print(codes, len(os.listdir(folder)))
"""


@contextmanager
def holding_process(url: str, name: str, ttl: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds `name` until it is killed, or its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, url, name, str(ttl)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def run(script: str, *args: str) -> str:
    """What a script prints, in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *args],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()


class Processes:
    def test_exclusion_reaches_as_far_as_the_traits_say(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        assert run(_TRY, world.url, "x") == ("in" if world.traits.scope == "process" else "out")
        a.do(lambda _: lease.release())
        assert run(_TRY, world.url, "x") == "in"

    def test_a_process_that_ends_gives_back_what_it_held(self, world: World) -> None:
        if world.traits.scope == "process":
            return  # nobody is left to see it
        with holding_process(world.url, "x", 60.0) as (process, _):
            assert len(world.inspect("x").holders) == 1
            process.communicate("", timeout=PATIENCE)
        world.until_nothing_is_left()

    def test_children_that_python_was_not_told_of_own_nothing(self, world: World, tmp_path: Path) -> None:
        if world.asynchronous or world.traits.scope == "process" or not hasattr(os, "fork"):
            return
        turns = tmp_path / "turns"
        turns.mkdir()
        assert run(_FORKED_IN_SILENCE, world.url, str(turns)) == "[0, 0, 0] 24"
        world.until_nothing_is_left()
