"""What `run` says on a terminal while it waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.claim import Holding, Snapshot, Waiting
from holdfast.cli.waiting import fitting, sentence, shortened
from holdfast.rule import EVERYBODY

from .conftest import HOLDFAST, Commands, until
from .screen import Screen


@pytest.fixture
def screens(run: Commands) -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for one in opened:
        one.close()


def start(screens: list[Screen], run: Commands, *words: str, **environment: str) -> Screen:
    screens.append(Screen([HOLDFAST, *words], {**run.environment, "TERM": "xterm", **environment}))
    return screens[-1]


def test_it_says_whom_it_waits_for_and_takes_it_back_when_granted(
    screens: list[Screen], run: Commands, locks: holdfast.Locks
) -> None:
    lease = locks.lock("deploy").acquire()
    screen = start(screens, run, "run", "deploy", "--", "echo", "done")
    told = screen.expect(r"\r\x1b\[K(holdfast: waiting for deploy since \d\d:\d\d:\d\d; held for \S+ s by [^\r]*)")
    assert lease.owner[:20] in told[1]
    assert len(told[1]) < 100, "it fits one line"
    lease.release()
    screen.expect(r"\r\x1b\[Kdone")
    assert screen.end() == 0


def test_it_takes_it_back_when_it_gives_up_too(screens: list[Screen], run: Commands, locks: holdfast.Locks) -> None:
    lease = locks.lock("deploy").acquire()
    screen = start(screens, run, "run", "-w", "1.5", "deploy", "--", "true")
    screen.expect("waiting for deploy")
    screen.expect(r"\r\x1b\[Kholdfast: could not get 'deploy' within 1.5 s")
    assert screen.end() == 75
    assert lease.held


def test_a_wait_of_less_than_a_second_says_nothing(screens: list[Screen], run: Commands, locks: holdfast.Locks) -> None:
    lease = locks.lock("deploy").acquire()
    screen = start(screens, run, "run", "deploy", "--", "echo", "done")
    until(lambda: locks.inspect("deploy").waiters)
    lease.release()
    assert screen.end() == 0
    assert screen.text.strip() == "done"


@pytest.mark.parametrize(("words", "term"), [(("-q",), "xterm"), ((), "dumb")])
def test_it_is_silent_when_told_to_and_where_a_line_cannot_be_taken_back(
    words: tuple[str, ...], term: str, screens: list[Screen], run: Commands, locks: holdfast.Locks
) -> None:
    lease = locks.lock("deploy").acquire()
    screen = start(screens, run, "run", *words, "-w", "1.3", "-E", "9", "deploy", "--", "true", TERM=term)
    assert screen.end() == 9
    assert "waiting for" not in screen.text
    assert lease.held


def test_a_pipe_is_told_nothing(run: Commands, locks: holdfast.Locks) -> None:
    lease = locks.lock("deploy").acquire()
    done = run("run", "-q", "-w", "1.3", "deploy", "--", "true")
    assert (done.returncode, done.stderr) == (75, "")
    assert lease.held


def test_what_it_says_names_the_oldest_and_counts_those_ahead() -> None:
    holders = (Holding("a/1/main", 7, 1, 5.0, 20.0), Holding("b/2/main", 8, 1, 65.0, 20.0))
    waiters = tuple(Waiting(owner, 1, 3.0, 20.0) for owner in ("c/3/x", "d/4/x", "me"))
    told = sentence(Snapshot("cat\x1b[2J", EVERYBODY, holders, waiters), "me", "14:03:05")
    assert told == (
        "holdfast: waiting for cat\\x1b[2J since 14:03:05; held for 1 min 5 s by b/2/main and 1 more; 2 ahead in line"
    )


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (90, "holdfast: waiting for reports since 14:03:05; held for 1 min 5 s by vm/7/main"),
        (70, "waiting since 14:03:05 for vm/7/main, inside for 1 min 5 s"),
        (49, "waiting for vm/7/main, inside for 1 min 5 s"),
        (30, "waiting for vm/7/main"),
        (15, "waiting for vm…"),
    ],
)
def test_where_there_is_little_room_it_says_for_whom(columns: int, expected: str) -> None:
    snapshot = Snapshot("reports", 1, (Holding("vm/7/main", 7, 1, 65.0, 20.0),), (Waiting("me", 1, 3.0, 20.0),))
    assert fitting(snapshot, "me", "14:03:05", columns) == expected


@pytest.mark.parametrize("columns", [10, 20, 79])
def test_a_long_line_is_cut_by_columns_not_by_letters(columns: int) -> None:
    from holdfast.cli.terminal import width_of

    assert width_of(shortened("日" * 60, columns)) <= columns
    assert shortened("short", columns) == "short"
