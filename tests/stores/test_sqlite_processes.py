"""Several real processes on one SQLite file: order, handoff, and what happens when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing.stopping import stop_another

DEADLINE = 30.0


class Worker:
    """A process that takes one lock when told to, reports what it got, and releases when told to."""

    SCRIPT = """if True:
        import json, sys, holdfast
        url, ttl = sys.argv[1], float(sys.argv[2])
        locks = holdfast.connect(url)
        def say(**what): print(json.dumps(what), flush=True)
        say(ready=True)
        for line in sys.stdin:
            word, _, name = line.strip().partition(" ")
            if word == "take":
                lease = locks.lock(name, ttl=ttl).acquire(timeout=60)
                say(token=lease.token)
            elif word == "give":
                say(released=lease.release())
    """

    def __init__(self, url: str, ttl: float = 30.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, url, str(ttl)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.hear() == {"ready": True}

    def tell(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def worker(url: str) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(ttl: float = 30.0) -> Worker:
        started.append(Worker(url, ttl))
        return started[-1]

    yield start
    for one in started:
        if one.process.returncode is None:
            one.process.kill()
            one.end()


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.005)


def test_processes_are_served_in_the_order_in_which_they_came(url: str, worker: Callable[..., Worker]) -> None:
    locks = holdfast.connect(url)
    held = locks.lock("x").acquire()
    line = [worker() for _ in range(4)]
    for number, one in enumerate(line, 1):
        one.tell("take x")
        until(lambda number=number: len(locks.inspect("x").waiters) == number)  # type: ignore[misc]
    last = held.token
    assert held.release()
    for one in line:
        token = one.hear()["token"]
        assert token > last
        last = token
        one.tell("give")
        assert one.hear() == {"released": True}
    until(lambda: locks.names() == [])


def test_a_release_wakes_the_next_process_long_before_it_would_look_again(
    url: str, worker: Callable[..., Worker]
) -> None:
    locks = holdfast.connect(url)
    held = locks.lock("x").acquire()
    waiting = worker()
    waiting.tell("take x")
    until(lambda: len(locks.inspect("x").waiters) == 1)
    start = time.monotonic()
    held.release()
    waiting.hear()
    assert time.monotonic() - start < 5, "the bell was not heard: it looked again only after a third of its ttl"


def test_a_killed_holder_is_followed_when_its_ttl_ends_with_a_higher_token(
    url: str, worker: Callable[..., Worker]
) -> None:
    holder, waiting = worker(ttl=1.0), worker()
    holder.tell("take x")
    first = holder.hear()["token"]
    waiting.tell("take x")
    locks = holdfast.connect(url)
    until(lambda: len(locks.inspect("x").waiters) == 1)
    start = time.monotonic()
    holder.kill()
    assert waiting.hear()["token"] > first
    assert time.monotonic() - start < 5


def test_a_killed_waiter_is_passed_over_at_once(url: str, worker: Callable[..., Worker]) -> None:
    locks = holdfast.connect(url)
    held = locks.lock("x").acquire()
    first, second = worker(), worker()
    first.tell("take x")
    until(lambda: len(locks.inspect("x").waiters) == 1)
    second.tell("take x")
    until(lambda: len(locks.inspect("x").waiters) == 2)
    first.kill()
    start = time.monotonic()
    held.release()
    assert second.hear()["token"] > held.token
    assert time.monotonic() - start < 5, "the dead waiter was waited for"


def test_a_stopped_holder_learns_of_its_loss_and_cannot_release_its_successor(
    url: str, worker: Callable[..., Worker]
) -> None:
    holder, successor = worker(ttl=0.5), worker()
    holder.tell("take x")
    stale = holder.hear()["token"]
    stop_another(holder.process.pid, url.removeprefix("sqlite://"))
    successor.tell("take x")
    newer = successor.hear()["token"]
    assert newer > stale
    os.kill(holder.process.pid, signal.SIGCONT)
    holder.tell("give")
    assert holder.hear() == {"released": False}
    assert [holding.token for holding in holdfast.connect(url).inspect("x").holders] == [newer]


def test_processes_never_overlap_and_lose_no_update(url: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    script = """if True:
        import sys, holdfast
        locks = holdfast.connect(sys.argv[1])
        for _ in range(100):
            with locks.lock("counter", timeout=60):
                with open(sys.argv[2]) as file:
                    value = int(file.read())
                with open(sys.argv[2], "w") as file:
                    file.write(str(value + 1))
    """
    crowd = [subprocess.Popen([sys.executable, "-c", script, url, str(counter)]) for _ in range(4)]
    for one in crowd:
        assert one.wait(60) == 0
    assert counter.read_text() == "400"
    assert holdfast.connect(url).names() == []


def test_an_interpreter_that_exits_releases_what_it_holds(url: str) -> None:
    for surface in (
        "locks = holdfast.connect(url); lease = locks.lock('x').acquire()",
        "import asyncio, holdfast.aio as aio\nasync def main():\n"
        "    global locks, lease\n    locks = aio.connect(url); lease = await locks.lock('x').acquire()\nasyncio.run(main())",
    ):
        script = f"import holdfast\nurl = {url!r}\n{surface}\nassert holdfast.connect(url).names() == ['x']"
        subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)
        assert holdfast.connect(url).names() == []


def test_many_may_open_a_new_file_at_the_same_moment(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def opens(url: str, start: threading.Barrier) -> None:
        start.wait(DEADLINE)
        try:
            with holdfast.connect(url) as locks, locks.lock("x", timeout=DEADLINE):
                pass
        except BaseException as error:
            failures.append(error)

    for number in range(25):
        start = threading.Barrier(6)
        crowd = [threading.Thread(target=opens, args=(f"sqlite://{tmp_path}/{number}.db", start)) for _ in range(6)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join(DEADLINE)
    assert failures == []
