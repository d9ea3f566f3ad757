"""The command never outlives the lock."""

from __future__ import annotations

import os
import signal
import time

import holdfast
from holdfast.testing.stopping import stop_another

from .conftest import Commands, Job, alive, python, until

OBEDIENT = "trap 'echo told; exit 0' TERM; echo $$; while :; do sleep 0.02; done"
STUBBORN = "trap '' TERM; (exec sleep 100) & echo $$; echo $!; while :; do sleep 0.02; done"


def started(run: Commands, script: str, ttl: float) -> Job:
    return run.start("run", "x", "--ttl", str(ttl), "--", "sh", "-c", script)


def evict(locks: holdfast.Locks) -> None:
    assert locks.force_release("x", token=locks.inspect("x").holders[0].token)


def test_a_lock_that_was_taken_away_ends_the_command_with_term(run: Commands, locks: holdfast.Locks) -> None:
    job = started(run, OBEDIENT, 1.0)
    pid = int(job.line())
    evict(locks)
    assert job.line() == "told"
    assert job.end() == 76
    (said,) = [line for line in job.errors().splitlines() if line.startswith("holdfast:")]
    assert "lost the lock 'x'" in said
    assert not alive(pid)
    assert locks.names() == []


def test_a_command_that_ignores_term_is_killed_with_all_its_group(run: Commands, locks: holdfast.Locks) -> None:
    job = started(run, STUBBORN, 1.0)
    pids = [int(job.line()), int(job.line())]
    evict(locks)
    assert job.end() == 76
    until(lambda: not any(map(alive, pids)))


def test_a_stopped_command_is_ended_too(run: Commands, locks: holdfast.Locks) -> None:
    job = started(run, OBEDIENT, 1.0)
    pid = int(job.line())
    os.kill(pid, signal.SIGSTOP)
    evict(locks)
    assert job.end() == 76
    assert not alive(pid)


def test_a_store_that_is_gone_ends_the_command_before_its_lease_does(run: Commands, locks: holdfast.Locks) -> None:
    source = """
import os, signal, sys, time
def told(*_):
    print(time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
while True: signal.pause()
"""
    job = run.start("run", "x", "--ttl", "1.5", "--", *python(source))
    assert job.line() == "ready"
    path = run.url.removeprefix("sqlite://")
    os.rename(path, f"{path}.gone")
    gone = time.clock_gettime(time.CLOCK_BOOTTIME)
    at = float(job.line())
    assert at < gone + 1.5  # whatever was confirmed before the file went away is not over yet
    assert job.end() == 76
    assert "could not renew 'x'" in job.errors()


def test_the_command_is_dead_before_the_next_one_enters_although_we_were_stopped(
    run: Commands, locks: holdfast.Locks
) -> None:
    job = started(run, STUBBORN, 3.0)  # a tenth of it is what a loaded machine has to run the watch in
    pids = [int(job.line()), int(job.line())]
    stop_another(job.process.pid, run.url.removeprefix("sqlite://"))
    lease = locks.lock("x").acquire(timeout=15)
    assert not any(map(alive, pids))  # the watch did that: `holdfast run` itself is still stopped
    job.send(signal.SIGCONT)
    assert job.end() == 76
    assert lease.held
    assert lease.release()


def test_a_killed_holdfast_takes_its_command_along(run: Commands) -> None:
    job = started(run, STUBBORN, 30)
    pids = [int(job.line()), int(job.line())]
    job.process.kill()
    job.end()
    until(lambda: not any(map(alive, pids)))


def test_a_lock_that_was_gone_at_the_end_is_told(run: Commands, locks: holdfast.Locks) -> None:
    job = run.hold("x", "--ttl", "60")  # renewed after 20 s: this run ends before it could notice
    evict(locks)
    job.type("\n")
    assert job.end() == 76
    assert "The command ended with 0" in job.errors()


def test_without_its_watch_the_command_runs_on(run: Commands) -> None:
    job = started(run, "echo $PPID; read line; exit 4", 0.3)
    parent = int(job.line())
    with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
        children = [int(pid) for pid in file.read().split()]
    (watch,) = [pid for pid in children if os.getpgid(pid) == os.getsid(pid)]
    os.kill(watch, signal.SIGKILL)
    job.type("\n")
    assert job.end() == 4


def test_the_watch_goes_with_us(run: Commands) -> None:
    job = started(run, "echo $PPID; read line", 30)
    parent = int(job.line())
    with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
        children = [int(pid) for pid in file.read().split()]
    job.type("\n")
    assert job.end() == 0
    assert len(children) == 2
    assert not any(map(alive, children))
