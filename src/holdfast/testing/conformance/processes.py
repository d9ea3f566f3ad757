"""Other processes: to be killed, and to find out how far exclusion reaches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
