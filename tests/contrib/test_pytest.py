"""The pytest plugin, used as its users use it."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast as library
from holdfast import LeaseLost, Misuse, NotAcquired, StaleToken, Unavailable, aio, fenced
from holdfast.contrib.pytest import Controls


def test_code_that_connects_to_nothing_in_particular_gets_the_store_of_the_test(holdfast: Controls) -> None:
    with library.connect() as others, holdfast.locks.lock("x"):
        assert others.names() == ["x"]
        assert others.lock("x").try_acquire() is None


def test_a_lost_lease_tells_its_holder_and_lets_the_next_in(holdfast: Controls) -> None:
    told: list[object] = []
    lease = holdfast.locks.lock("x").acquire()
    lease.on_lost(told.append)
    holdfast.lose(lease)
    assert told == [lease]
    assert lease.lost
    with pytest.raises(LeaseLost, match="evicted"):
        lease.check()
    assert holdfast.locks.lock("x").acquire(timeout=0).token > lease.token


def test_a_waiter_is_let_in_when_the_holder_loses_it(holdfast: Controls) -> None:
    lease = holdfast.locks.lock("x").acquire()
    entered = threading.Event()

    def wait() -> None:
        with holdfast.locks.lock("x", timeout=20):
            entered.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    while not holdfast.locks.inspect("x").waiters:
        pass
    with pytest.raises(Misuse, match="waits"):
        holdfast.steal(lease)
    holdfast.lose(lease)
    assert entered.wait(20)
    waiter.join()


def test_an_expired_lease_says_that_its_time_ran_out(holdfast: Controls) -> None:
    with pytest.raises(LeaseLost, match=r"its ttl of 30 s ran out"), holdfast.locks.lock("x") as lease:
        holdfast.expire(lease)


def test_a_stolen_lock_is_believed_in_and_fenced_out(holdfast: Controls, tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
    fenced.create_table(db)
    lease = holdfast.locks.lock("x").acquire()
    thief = holdfast.steal(lease)
    assert lease.held, "it has not noticed"
    assert thief.token > lease.token
    with fenced.transaction(db, thief):
        pass
    with pytest.raises(StaleToken), fenced.transaction(db, lease):
        pass
    assert lease.release() is False
    db.close()


def test_one_of_several_units_can_be_stolen(holdfast: Controls) -> None:
    lease = holdfast.locks.semaphore("gpu", 2).acquire()
    with holdfast.locks.semaphore("gpu", 2):
        thief = holdfast.steal(lease)
        assert {one.token for one in holdfast.locks.inspect("gpu").holders} > {thief.token}
    thief.release()
    lease.release()


def test_a_lease_in_danger_still_holds(holdfast: Controls) -> None:
    with holdfast.locks.lock("x") as lease:
        holdfast.endanger(lease)
        assert lease.in_danger
        lease.check()


def test_a_store_that_does_not_answer_is_unavailable_and_comes_back(holdfast: Controls) -> None:
    with holdfast.unavailable(), pytest.raises(Unavailable, match="the test said so"):
        holdfast.locks.lock("x", timeout=0).acquire()
    with holdfast.locks.lock("x", timeout=0):
        pass


def test_a_lease_can_be_lost_while_the_store_does_not_answer(holdfast: Controls) -> None:
    lease = holdfast.locks.lock("x").acquire()
    with holdfast.unavailable():
        holdfast.expire(lease)
        assert lease.lost


def test_the_body_of_an_async_with_is_cancelled(holdfast: Controls) -> None:
    async def body() -> None:
        async with aio.connect() as locks, locks.lock("x") as lease:
            holdfast.lose(lease)
            await asyncio.sleep(20)
            raise AssertionError("the body went on")

    with pytest.raises(LeaseLost):
        asyncio.run(body())


def test_a_lease_of_a_loop_can_be_lost_from_another_thread(holdfast: Controls) -> None:
    async def body() -> None:
        async with aio.connect() as locks, locks.lock("x") as lease:
            await asyncio.to_thread(holdfast.lose, lease)
            await asyncio.sleep(20)
            raise AssertionError("the body went on")

    with pytest.raises(LeaseLost):
        asyncio.run(body())


def test_what_is_not_held_or_not_of_this_test_is_refused(holdfast: Controls) -> None:
    lease = holdfast.locks.lock("x").acquire()
    lease.release()
    with pytest.raises(Misuse, match="not held"):
        holdfast.lose(lease)
    with library.connect("memory://") as others, others.lock("x") as theirs:
        with pytest.raises(Misuse, match="no lease of this test's store"):
            holdfast.lose(theirs)
        theirs.check()


@pytest.mark.parametrize("again", [1, 2])
def test_every_test_has_a_store_of_its_own(holdfast: Controls, again: int) -> None:
    kept = holdfast.locks.lock("kept").acquire(timeout=0)  # never given back
    with pytest.raises(NotAcquired):
        holdfast.locks.lock("kept").acquire(timeout=0)
    del kept


# ---- in a pytest of its own: one that runs alone, and one with two workers

NEITHER = """
import sys

def test_who_asks_for_neither_fixture_does_not_even_import_holdfast():
    assert "holdfast" not in sys.modules
"""

SHARED = """
import os
from pathlib import Path

import pytest

MADE, UNDONE, SEEN = (Path(__file__).parent / name for name in ("made", "undone", "seen"))

def note(file, what):
    with file.open("a") as lines:
        lines.write(f"{what}\\n")

def make():
    note(MADE, os.getpid())
    return {"by": os.getpid()}

@pytest.fixture(scope="session")
def database(once_across_workers):
    return once_across_workers("the database", make, lambda made: note(UNDONE, made["by"]))

@pytest.mark.parametrize("number", range(3))
def test_it_is_there(database, number):
    note(SEEN, database["by"])
"""

BROKEN = """
import pytest

tries = []

def make():
    tries.append(1)
    if len(tries) == 1:
        raise OSError("no room")
    return "made"

def test_what_could_not_be_made_is_tried_again(once_across_workers):
    with pytest.raises(OSError):
        once_across_workers("x", make)
    assert once_across_workers("x", make) == "made"
    assert once_across_workers("x", make) == "made"
    assert len(tries) == 2

def test_what_json_cannot_say_is_refused(once_across_workers):
    with pytest.raises(ValueError, match="JSON"):
        once_across_workers("y", object)
"""


def run(folder: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "HOLDFAST_"))}
    own = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio", f"--basetemp={folder / 'tmp'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *own, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def notes(folder: Path) -> list[list[str]]:
    return [(folder / name).read_text().split() for name in ("made", "undone", "seen")]


def test_alone_things_are_made_once_and_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    (tmp_path / "test_1.py").write_text(SHARED)
    (tmp_path / "test_2.py").write_text(BROKEN)
    page = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for number, code in enumerate(examples):
        (tmp_path / f"test_page_{number}.py").write_text(code)
    told = run(tmp_path)
    assert f"{5 + sum(code.count('def test_') for code in examples)} passed" in told, told
    made, undone, seen = notes(tmp_path)
    assert made == undone
    assert set(seen) == set(made)
    assert len(made) == 1


def test_two_workers_share_what_one_of_them_made_and_import_nothing_unasked(tmp_path: Path) -> None:
    (tmp_path / "test_0.py").write_text(NEITHER)
    (tmp_path / "test_1.py").write_text(SHARED)
    run(tmp_path, "-n", "2", "--dist", "each")
    made, undone, seen = notes(tmp_path)
    # A worker that begins after the other has ended finds it undone, and makes it anew; together they never have two.
    assert sorted(made) == sorted(undone)
    assert set(seen) == set(made)
    assert len(seen) == 6
