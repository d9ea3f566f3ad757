"""What a page is told, what is news, and what needs attention."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.claim import Eviction, Holding, Snapshot, Waiting
from holdfast.dashboard import board as module
from holdfast.dashboard import history as history_of
from holdfast.dashboard import looking
from holdfast.dashboard.board import Board
from holdfast.dashboard.history import MOST, History
from holdfast.errors import Misuse
from holdfast.observe.changes import Change, changes
from holdfast.rule import EVERYBODY
from holdfast.secret import Secret

from .serving import until


def held(
    name: str = "x", token: int = 1, age: float = 1.0, left: float = 29.0, *, line: tuple[Waiting, ...] = ()
) -> Snapshot:
    return Snapshot(name, 1, (Holding("a", token, 1, age, left),), line)


def looks(*snapshots: Snapshot, step: float = 1.0) -> tuple[Board, list[int]]:
    """One lock, seen again and again, so many seconds apart; and the board's version after each."""
    board, versions = Board(), []
    before: dict[str, Snapshot] = {}
    for number, snapshot in enumerate(snapshots):
        now = {snapshot.name: snapshot}
        board.put("s", now, list(changes(before, now)), 1000.0 + number * step)
        versions.append(board.version)
        before = now
    return board, versions


def test_a_look_that_takes_minutes_is_as_old_as_its_beginning_and_each_lock_as_when_it_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who came after the names were asked for is not in it: at its end, "free" is minutes old."""
    clock, inspect = [1000.0], holdfast.Locks.inspect

    def slow(self: holdfast.Locks, name: str) -> Snapshot:
        clock[0] += 100
        return inspect(self, name)._replace(holders=(Holding("a", 1, 1, 7.0, 30.0),))

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def time() -> float:
            return clock[0]

    monkeypatch.setattr(holdfast.Locks, "inspect", slow)
    monkeypatch.setattr(looking, "time", Clock)
    board, history = Board(), History(None)
    with holdfast.connect("memory://slow") as locks, locks.lock("x"), locks.lock("y"):
        one = looking.Looking("s", Secret("memory://slow"), board, history, 60.0)
        until(lambda: len(board.since(0)["locks"]) == 2, "the first look")
        one.close()
    told = board.since(0)
    assert told["looked"] == {"s": 1000.0}
    assert sorted((lock["holders"][0]["since"], lock["holders"][0]["ends"]) for lock in told["locks"]) == [
        (1093.0, 1130.0),
        (1193.0, 1230.0),
    ]
    history.close()


def test_that_time_passes_is_no_news_and_a_renewal_is() -> None:
    _, versions = looks(held(age=1, left=29), held(age=2, left=28), held(age=3, left=27.1), held(age=4, left=29.9))
    assert versions == [1, 1, 1, 2]


def test_whoever_joins_the_line_anew_has_not_waited_since_the_first_time() -> None:
    """As a worker does that gives up after two seconds and asks again: the same owner, in another place."""
    waits = (1.0, 2.0, 0.5)
    seen = (held(age=n, left=30 - n, line=(Waiting("b", 1, wait, 9.0),)) for n, wait in enumerate(waits, 1))
    board, versions = looks(*seen)
    assert versions == [1, 1, 2]
    [lock] = board.since(0)["locks"]
    assert lock["waiters"] == [{"owner": "b", "share": "", "since": 1001.5}]


def test_a_page_is_told_what_is_newer_than_what_it_has_seen() -> None:
    board = Board()
    board.put("s", {"x": held("x"), "y": held("y")}, [], 1000.0)
    seen = board.since(0)
    assert [one["name"] for one in seen["locks"]] == ["x", "y"]
    board.put("s", {"y": held("y"), "z": held("z")}, [], 1000.0)
    news = board.since(seen["version"])
    assert [one["name"] for one in news["locks"]] == ["z"]
    assert news["gone"] == [["s", "x"]]
    assert board.since(news["version"])["locks"] == []
    assert board.since(0)["gone"] == []


def test_stores_with_locks_of_the_same_name_are_kept_apart() -> None:
    board = Board()
    board.put("s", {"x": held()}, [], 1000.0)
    board.put("t", {}, [], 1000.0)
    assert [(one["store"], one["name"]) for one in board.since(0)["locks"]] == [("s", "x")]


def test_names_that_came_and_went_take_no_memory_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRAVES", 3)
    board = Board()
    for number in range(20):
        board.put("s", {f"n{number}": held(f"n{number}")}, [], 1000.0)
    board.put("s", {}, [], 1000.0)
    assert len(board._locks) == 3
    assert len(board._seen) <= 4


def test_a_page_that_was_away_while_too_many_went_is_told_all_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would show the ghosts of those whose going nobody remembers."""
    monkeypatch.setattr(module, "_GRAVES", 3)
    board = Board()
    board.put("s", {f"n{number}": held(f"n{number}") for number in range(5)}, [], 1000.0)
    seen = board.since(0)["version"]
    board.put("s", {"x": held("x")}, [], 1000.0)
    told = board.since(seen)
    assert (told["whole"], [one["name"] for one in told["locks"]], told["gone"]) == (True, ["x"], [])
    board.put("s", {}, [], 1000.0)
    last = board.since(told["version"])
    assert (last["whole"], last["gone"]) == (False, [["s", "x"]])


def test_many_that_go_at_once_are_buried_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on its own took seconds with 2,000 names, in which no page was told anything."""
    board = Board()
    looks: list[None] = []
    forget = board._forget_old_graves
    monkeypatch.setattr(board, "_forget_old_graves", lambda: looks.append(forget()))
    board.put("s", {f"n{number}": held(f"n{number}") for number in range(100)}, [], 1000.0)
    board.put("s", {}, [], 1000.0)
    assert len(looks) == 1


def attention(board: Board) -> list[str]:
    (lock,) = board.since(0)["locks"]
    found: list[str] = lock["attention"]
    return found


def test_a_holder_that_did_not_renew_is_in_danger() -> None:
    board, _ = looks(held(left=30), held(age=11, left=19))
    assert attention(board) == []
    board, _ = looks(held(left=30), held(age=22, left=9), step=21.0)
    assert attention(board) == ["in danger"]


def test_who_waits_long_first_in_line_is_starving() -> None:
    assert attention(looks(held(line=(Waiting("b", 1, 59, 9),)))[0]) == []
    assert attention(looks(held(line=(Waiting("b", 1, 61, 9),)))[0]) == ["starving"]


def test_what_is_unusually_long_is_known_from_before() -> None:
    assert attention(looks(held(age=3599))[0]) == []
    assert attention(looks(held(age=3601))[0]) == ["held unusually long"]
    before = [held(token=token, age=2.0) for token in (1, 2, 3)]
    assert attention(looks(*before, held(token=4, age=19.0))[0]) == []
    assert attention(looks(*before, held(token=4, age=21.0))[0]) == ["held unusually long"]


@pytest.mark.parametrize("note", ["10.0.0.7", "kept for 10 s after use", "traceparent=00-ab-cd-01"])
def test_a_leader_leads_and_a_candidate_stands_by_for_as_long_as_the_leader_lives(note: str) -> None:
    one = held(age=90_000, line=(Waiting("b", 1, 90_000, 9),))
    told = one._replace(holders=tuple(holding._replace(note=note) for holding in one.holders))
    assert attention(looks(told)[0]) == ([] if note == "10.0.0.7" else ["starving", "held unusually long"])
    in_danger = told._replace(holders=(told.holders[0]._replace(ttl=30.0, left=5.0),))
    assert attention(looks(in_danger)[0])[0] == "in danger"


def test_a_deadlock_comes_first() -> None:
    board = Board()
    one = Snapshot("x", 1, (Holding("a", 1, 1, 1, 9),), (Waiting("b", 1, 70, 9),))
    other = Snapshot("y", 1, (Holding("b", 2, 1, 1, 9),), (Waiting("a", 1, 1, 9),))
    board.put("s", {"x": one, "y": other}, [], 1000.0)
    assert [one["attention"] for one in board.since(0)["locks"]] == [["deadlock", "starving"], ["deadlock"]]


def test_kinds_and_shares_are_told_in_words() -> None:
    board = Board()
    readers = Snapshot("r", EVERYBODY, (Holding("a", 1, 1, 1, 9),), (Waiting("b", EVERYBODY, 1, 9),))
    gpus = Snapshot("g", 4, (Holding("a", 1, 3, 1, 9, "note"),), (), Eviction("o", 1, 2, "c", 5.0))
    board.put("s", {"r": readers, "g": gpus}, [], 1000.0)
    told = {one["name"]: one for one in board.since(0)["locks"]}
    assert (told["r"]["kind"], told["r"]["capacity"], told["r"]["used"]) == ("readers and writers", None, 1)
    assert (told["r"]["holders"][0]["share"], told["r"]["waiters"][0]["share"]) == ("reads", "writes")
    assert (told["g"]["kind"], told["g"]["used"], told["g"]["holders"][0]["share"]) == ("semaphore", 3, "3 of 4")
    assert told["g"]["eviction"]["at"] == 995.0


def test_a_watcher_is_called_until_it_leaves() -> None:
    board, calls = Board(), []
    end = board.watch(lambda: calls.append(1))
    board.put("s", {"x": held()}, [], 1000.0)
    board.store("s", {"id": "s"})
    board.store("s", {"id": "s"})
    assert (len(calls), board.watched) == (2, True)
    end()
    board.put("s", {}, [], 1000.0)
    assert (len(calls), board.watched) == (2, False)


def test_the_history_keeps_so_much_and_finds_it(tmp_path: object) -> None:
    history = History(f"{tmp_path}/history.db")
    history.add("s", [Change("acquired", f"n{number}", "Owner", number) for number in range(MOST + 10)])
    assert [one["name"] for one in history.find("OWNER", most=2)] == [f"n{MOST + 9}", f"n{MOST + 8}"]
    assert history.find(name="n5") == []
    assert len(history.find(name="n50")) == 1
    assert history.find("50", store="other") == []
    assert len(list(history)) == MOST
    history.close()
    again = History(f"{tmp_path}/history.db")
    assert len(list(again)) == MOST
    again.add("s", [Change("over", "later", "b")])
    assert [one["id"] for one in again.find(most=2)] == [MOST + 11, MOST + 10]
    again.close()


def test_a_file_that_cannot_be_written_costs_the_file_and_is_caught_up_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_of, "_PAUSE", 0.0)
    history = History(f"{tmp_path}/history.db")
    other = sqlite3.connect(f"{tmp_path}/history.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    history.add("s", [Change("acquired", "x", "a", 1)])
    history.add("s", [Change("over", "x", "a", 1)])
    assert [one["event"] for one in history] == ["acquired", "over"]
    assert "locked" in history.trouble
    assert caplog.text.count("not kept in its file") == 1
    other.execute("ROLLBACK")
    history.add("s", [Change("acquired", "x", "a", 2)])
    assert history.trouble == ""
    assert other.execute("SELECT event, token FROM events ORDER BY id").fetchall() == [
        ("acquired", 1),
        ("over", 1),
        ("acquired", 2),
    ]
    other.close()
    history.close()


def test_a_file_that_cannot_be_written_is_not_waited_for_by_everybody_who_tells_something(tmp_path: Path) -> None:
    history = History(f"{tmp_path}/history.db")
    other = sqlite3.connect(f"{tmp_path}/history.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tried: list[str] = []
    assert history._file is not None
    history._file.execute("PRAGMA busy_timeout = 0")
    history._file.set_trace_callback(lambda said: tried.append(said) if said.startswith("INSERT") else None)
    for token in range(1, 41):
        history.add("s", [Change("acquired", "x", "a", token)])
    assert len(tried) == 1  # it was half a second for each
    other.execute("ROLLBACK")
    history.close()
    assert other.execute("SELECT count(*) FROM events").fetchone() == (40,)
    other.close()


def test_two_dashboards_keep_their_history_in_one_file(tmp_path: Path) -> None:
    both = [History(f"{tmp_path}/history.db") for _ in range(2)]
    for number in range(3):
        for who, history in enumerate(both):
            history.add(f"s{who}", [Change("acquired", "x", "a", number + 1)])
    assert [history.trouble for history in both] == ["", ""]
    assert [len(list(history)) for history in both] == [3, 3]
    for history in both:
        history.close()
    again = History(f"{tmp_path}/history.db")
    assert [(one["store"], one["token"]) for one in again] == [
        (f"s{who}", token) for token in (1, 2, 3) for who in (0, 1)
    ]
    again.close()


def test_a_file_of_somebody_else_is_no_history(tmp_path: Path) -> None:
    other = sqlite3.connect(f"{tmp_path}/theirs.db")
    other.execute("CREATE TABLE events (what TEXT)")
    other.close()
    with pytest.raises(Misuse, match="cannot be kept"):
        History(f"{tmp_path}/theirs.db")
