"""`holdfast watch`: what must have happened between two looks, and nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.claim import Eviction, Holding, Snapshot, Waiting
from holdfast.observe.changes import changes
from holdfast.testing import servers

from .conftest import HOLDFAST, Commands


@pytest.fixture
def following(run: Commands) -> Iterator[subprocess.Popen[str]]:
    command = [HOLDFAST, "watch", "job:", "--json", "--interval", "0.05"]
    with subprocess.Popen(command, env=run.environment, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def told(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    return line["event"], line["name"], line["token"]


def test_a_life_is_followed(following: subprocess.Popen[str], locks: holdfast.Locks) -> None:
    other = locks.lock("another").acquire()
    lease = locks.lock("job:1").acquire()
    assert told(following) == ("acquired", "job:1", lease.token)
    lease.release()
    assert told(following) == ("over", "job:1", lease.token)
    evicted = locks.lock("job:2").acquire()
    assert told(following) == ("acquired", "job:2", evicted.token)
    locks.force_release("job:2", token=evicted.token)
    assert told(following) == ("evicted", "job:2", evicted.token)
    assert told(following) == ("over", "job:2", evicted.token)
    following.send_signal(signal.SIGINT)
    assert following.wait(30) == 130
    assert other.held


def test_it_ends_after_the_time_it_was_given_and_tells_what_is_there(run: Commands, locks: holdfast.Locks) -> None:
    lease = locks.lock("job\x1b[2J").acquire()
    done = run("watch", "--for", "0")
    assert done.returncode == 0
    assert f"acquired       job\\x1b[2J  token {lease.token}  {lease.owner}" in done.stdout


@pytest.mark.server
def test_a_store_that_is_away_for_a_while_is_followed_when_it_is_back() -> None:
    """It is followed when something is wrong: that is no moment to go home."""
    with servers.start("redis") as redis, holdfast.connect(redis.url) as locks:
        command = [HOLDFAST, "watch", "--json", "--interval", "0.05", "--url", f"{redis.url}?timeout=0.5"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            first = locks.lock("first").acquire()
            assert told(process) == ("acquired", "first", first.token)
            redis.pause()
            assert "did not answer" in process.stderr.readline()
            redis.resume()
            assert "answers again" in process.stderr.readline()
            second = locks.lock("second").acquire()
            assert told(process) == ("acquired", "second", second.token)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130


def test_a_store_that_was_away_at_the_end_is_an_error(run: Commands) -> None:
    done = run("watch", "--for", "0.2", "--interval", "0.05", "--url", "redis://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("it is asked again and again") == 1


def snapshot(holders: dict[int, str], line: list[str], eviction: Eviction | None = None) -> dict[str, Snapshot]:
    inside = tuple(Holding(owner, token, 1, 1.0, 9.0) for token, owner in holders.items())
    return {"x": Snapshot("x", 1, inside, tuple(Waiting(owner, 1, 1.0, 9.0) for owner in line), eviction)}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (snapshot({1: "a"}, []), snapshot({1: "a"}, []), []),
        (snapshot({1: "a"}, ["b"]), snapshot({2: "b"}, []), [("over", "a"), ("acquired", "b")]),
        (snapshot({1: "a"}, ["b"]), snapshot({1: "a"}, []), [("left the line", "b")]),
        (snapshot({1: "a"}, ["b"]), snapshot({1: "a"}, ["b", "b"]), [("waiting", "b")]),
        (snapshot({1: "a"}, ["b", "b"]), snapshot({1: "a"}, ["b"]), [("left the line", "b")]),
        (snapshot({1: "a"}, []), snapshot({2: "a"}, []), [("over", "a"), ("acquired", "a")]),
        (snapshot({1: "a"}, []), {}, [("over", "a")]),
        (
            snapshot({1: "a"}, []),
            snapshot({}, [], Eviction("a", 1, 5, "c", 0.1)),
            [("evicted", "a"), ("over", "a")],
        ),
        (
            snapshot({}, [], Eviction("a", 1, 5, "c", 0.1)),
            snapshot({}, [], Eviction("a", 1, 5, "c", 9.1)),
            [],
        ),
    ],
)
def test_two_looks_are_compared(
    before: dict[str, Snapshot], after: dict[str, Snapshot], expected: list[tuple[str, str]]
) -> None:
    assert [(one.event, one.owner) for one in changes(before, after)] == expected
