"""Does the holder live? What `why` says of its renewals."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.claim import Holding, Snapshot, Waiting
from holdfast.cli import story
from holdfast.stores.mysql.store import _snapshot as of_mysql
from holdfast.waitfor import WaitGraph


def told(age: float, left: float, ttl: float) -> str:
    snapshot = Snapshot("x", 1, (Holding("host/1/main", 7, 1, age, left, "", ttl),))
    return " ".join(story.tell(snapshot, WaitGraph([snapshot])))


def test_one_that_is_late_is_paused_cut_off_or_dead() -> None:
    said = told(age=60.0, left=3.0, ttl=10.0)
    assert "It has not renewed for 7.0 s of 10 s, and should have after 3.3 s" in said
    assert "paused, cut off from the store, or dead" in said
    assert "free in 3.0 s" in said


def test_one_that_renews_is_alive() -> None:
    assert "It renewed 2.0 s ago, of a ttl of 10 s: it is alive." in told(age=60.0, left=8.0, ttl=10.0)


def test_one_that_never_did_may_not_want_to() -> None:
    said = told(age=7.0, left=3.0, ttl=10.0)
    assert "unless it was taken with renew=False" in said
    assert "dead." not in said


def test_a_store_that_cannot_tell_says_so() -> None:
    said = told(age=60.0, left=3.0, ttl=0.0)
    assert "This store does not say when it last renewed" in said
    assert "dead" not in said


@pytest.mark.parametrize(("age", "left", "ttl"), [(2.0, 8.0, 10.0), (60.0, 12.0, 10.0)])
def test_nothing_is_said_of_who_just_came_or_whose_times_make_no_sense(age: float, left: float, ttl: float) -> None:
    said = told(age, left, ttl)
    assert "renewed" not in said


def test_a_store_says_the_ttl_that_was_asked_for() -> None:
    with holdfast.connect("memory://") as locks, locks.lock("x", ttl=42):
        assert locks.inspect("x").holders[0].ttl == 42


def test_what_an_older_holdfast_wrote_tells_no_ttl(tmp_path: Path) -> None:
    """Procedures of MySQL that were made before there was one to tell, and rows of SQLite that an older process entered."""
    row = (b"host/1/main", 1, 1, 1, 7, 60_000_000, 3_000_000, b"")
    assert of_mysql("x", [row], []).holders[0].ttl == 0
    assert of_mysql("x", [(*row, 10_000_000)], []).holders[0].ttl == 10
    with holdfast.connect(f"sqlite:///{tmp_path}/locks.db") as locks:
        with locks.lock("x", ttl=42):
            assert locks.inspect("x").holders[0].ttl == 42
        lease = locks.lock("x", ttl=7).acquire()
        assert locks.inspect("x").holders[0].ttl == 7
        with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as older:
            older.execute("UPDATE holdfast_claims SET bell = NULL")
        assert locks.inspect("x").holders[0].ttl == 0
        lease.release()


def test_holders_that_wait_are_told_in_few_sentences_however_many_they_are() -> None:
    """A thousand readers of x, who all wait for y, which a thousand others read."""
    readers = tuple(Holding(f"r{number}", number + 1, 1, 1.0, 9.0) for number in range(1000))
    others = tuple(Holding(f"o{number}", number + 1, 1, 1.0, 9.0) for number in range(1000))
    inside = Snapshot("x", 1000, readers)
    world = [inside, Snapshot("y", 1000, others, tuple(Waiting(one.owner, 1000, 1.0, 9.0) for one in readers))]
    said = story.tell(inside, WaitGraph(world))
    assert "r0 itself waits for y, which o0, o1, o2, o3, o4 and 995 more hold." in said
    assert "And so on: 980 more of them wait." in said
    assert len(said) < 50


def test_two_crowds_that_wait_for_each_other_are_told_of_in_a_moment() -> None:
    def crowd(name: str, inside: str, outside: str) -> Snapshot:
        holders = tuple(Holding(f"{inside}{one}", 1, 1, 0.0, 9.0) for one in range(10_000))
        return Snapshot(name, 10_000, holders, tuple(Waiting(f"{outside}{one}", 1, 0.0, 9.0) for one in range(10_000)))

    locks = [crowd("a", "x", "y"), crowd("b", "y", "x")]
    began = time.process_time()
    told = story.tell(locks[0], WaitGraph(locks))
    assert time.process_time() - began < 2
    assert "And so on: 19980 more of them wait." in told


def test_a_chain_as_long_as_strangers_make_it_is_told_in_a_moment() -> None:
    inside = [tuple(Holding(f"h{at}.{one}", 1, 1, 0.0, 9.0) for one in range(100)) for at in range(100)]
    waiters = tuple(Waiting(f"h0.{one}", 1, 0.0, 9.0) for one in range(100))
    locks = [
        Snapshot(f"n{at}", 100, holders, waiters) for at, holders in enumerate(inside)
    ]  # a million wait for each other
    began = time.process_time()
    told = story.tell(locks[0], WaitGraph(locks))
    assert time.process_time() - began < 2
    assert any(one.startswith("And so on") for one in told)
    assert len(told) < 50
