"""How long a name stays taken that its holder gave up: what the checker must find, and what it must let pass."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing.checkers import check_freed, longest_free
from holdfast.testing.crowd import Journal, read
from holdfast.testing.history import ACQUIRE, CLAIM, CRASHED, FAILED, GRANTED, LEFT, OPEN, RELEASE, History, Operation


def history(*operations: Operation) -> History:
    made = History()
    made.operations = list(operations)
    return made


def told(kind: str, who: str, invoked: float, returned: float, outcome: str) -> Operation:
    return Operation(who, kind, "x", invoked, returned, outcome, f"h-{who}", 1, ttl=60.0)


def held(who: str, since: float, until: float) -> list[Operation]:
    """Was let in, and gave it up; the answer to that never came."""
    return [
        told(CLAIM, who, since - 0.1, since, GRANTED),
        told(ACQUIRE, who, since - 0.1, since, GRANTED),
        told(RELEASE, who, until, OPEN, "unknown"),
    ]


def test_a_name_that_stays_taken_after_it_was_given_up_is_found() -> None:
    late = history(*held("a", 1, 2), told(ACQUIRE, "b", 1.5, 9, GRANTED))
    assert [finding.checker for finding in check_freed(late, within=1)] == ["freed"]
    assert longest_free(late) == 7


def test_whoever_comes_later_and_gives_up_counts_too() -> None:
    never = history(*held("a", 1, 2), told(ACQUIRE, "b", 3, 13, FAILED))
    assert longest_free(never) == 10
    assert list(check_freed(never, within=1))


def test_a_name_that_is_had_in_time_or_wanted_by_nobody_passes() -> None:
    prompt = history(*held("a", 1, 2), told(ACQUIRE, "b", 1.5, 2.5, GRANTED))
    unwanted = history(*held("a", 1, 2), told(ACQUIRE, "b", 50, 50.1, GRANTED))
    assert not list(check_freed(prompt, within=1))
    assert not list(check_freed(unwanted, within=1))


def test_what_a_dead_process_may_have_left_behind_is_its_own_matter() -> None:
    after = history(*held("a", 1, 2), told(ACQUIRE, "dead", 1.8, OPEN, "unknown"), told(ACQUIRE, "b", 1.5, 9, GRANTED))
    after.note(3, "dead", CRASHED)
    assert not list(check_freed(after, within=1))


def test_a_release_that_had_its_answer_is_judged_like_any_other() -> None:
    answered = history(
        told(CLAIM, "a", 0, 1, GRANTED), told(RELEASE, "a", 2, 2.1, LEFT), told(ACQUIRE, "b", 1.5, 9, GRANTED)
    )
    assert longest_free(answered) == 7


def test_a_journal_is_on_file_as_it_happens_and_half_a_line_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "w.history"
    with path.open("w") as file:
        journal = Journal("w", file)
        first = journal.begin(Operation("w", CLAIM, "x", 1.0, value=(("entry", 7),)))
        first.end(2.0, GRANTED, 7)
        journal.begin(Operation("w", RELEASE, "x", 3.0))
        assert [one.outcome for one in read(path)] == [GRANTED, "unknown"]
        file.write('{"number": 2, "process"')
    operations = read(path)
    assert [(one.kind, one.returned, one.token) for one in operations] == [(CLAIM, 2.0, 7), (RELEASE, OPEN, 0)]
    assert operations[0].value == (("entry", 7),)
