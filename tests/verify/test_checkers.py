"""Every promise has a history that keeps it and one that breaks it: a checker that refuses nothing proves nothing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.history import (
    ACQUIRE,
    CHECK,
    CLAIM,
    CRASHED,
    DONE,
    FAILED,
    GRANTED,
    LOST,
    OPEN,
    READ,
    RELEASE,
    RENEW,
    RENEWED,
    STALE,
    UNKNOWN,
    WRITE,
    History,
    Operation,
)
from holdfast.verify import judging, record
from holdfast.verify.judging import BROKEN, CLEAN, KEPT, PROMISES, SERVED, UNDECIDED, Judgement

ABOUT: dict[str, Any] = {
    "begun": 0.0,
    "healed": 50.0,
    "ended": 60.0,
    "bound": 5.0,
    "wrong": [],
    "ttl": 1.0,
    "library": None,
}
ABOUT |= {"store": "redis://cache", "own": None, "register": "a file", "seconds": 9.0, "seed": 1, "workers": 2}
ABOUT |= {"fenced": True, "allowed": [], "left out": {}, "environment": {}}
STALE_WRITE, LOST_UPDATE, NO_CAUSE, TOKENS, LINEARIZABLE, HONEST = PROMISES


def kept(history: History, about: dict[str, Any], path: Path) -> record.Record:
    """As a run keeps it: notes of the run as a whole first, then what happened to names."""
    whole = [note for note in history.notes if not note.name]
    part = History()
    part.operations, part.final = history.operations, history.final
    part.notes = [note for note in history.notes if note.name]
    lines = [json.dumps({"holdfast verify": record.FORMAT, **about}), *(json.dumps(note._asdict()) for note in whole)]
    path.write_text("\n".join([*lines, *record.lines_of(part)]))
    return record.Record(path)


def judge(history: History, about: dict[str, Any]) -> Judgement:
    with tempfile.TemporaryDirectory() as folder:
        return judging.judge(kept(history, about, Path(folder) / "kept"))


def good() -> History:
    """w0 and w1 take turns: each is granted, looks, reads, writes what it made of it, and leaves. The last comes late."""
    history = History()
    last = ""
    final = []
    for turn in range(12):
        who, at, token = f"w{turn % 2}", float(5 * turn), 100 + turn
        entry = f"{who}.{turn}"
        add(history, who, ACQUIRE, at, GRANTED, token, holder=f"h{turn}", detail="mutex")
        add(history, who, CLAIM, at, GRANTED, token, holder=f"h{turn}", ttl=1.0)
        add(history, who, READ, at + 0.2, DONE, token, value=((last, 0),) if last else ())
        add(history, who, RENEW, at + 0.3, RENEWED, token, holder=f"h{turn}", ttl=1.0)
        add(history, who, CHECK, at + 0.4, DONE, token, holder=f"h{turn}")
        add(history, who, WRITE, at + 0.6, DONE, token, value=((entry, token),))
        add(history, who, RELEASE, at + 0.8, "left", token, holder=f"h{turn}")
        final.append((entry, token))
        last = entry
    history.final["x"] = tuple(final)
    return history


def add(history: History, process: str, kind: str, at: float, outcome: str, token: int = 0, **more: Any) -> Operation:
    returned = OPEN if outcome == UNKNOWN else at + 0.1
    return history.begin(Operation(process, kind, "x", at, returned, outcome, token=token, **more))


def of(history: History, kind: str, turn: int) -> Operation:
    return list(history.of(kind))[turn]


def broken_promises(judgement: Judgement) -> set[str]:
    return {promise for promise, found in judgement.promises.items() if found}


def test_a_good_history_keeps_every_promise() -> None:
    judgement = judge(good(), ABOUT)
    assert broken_promises(judgement) == set()
    assert judgement.verdict == KEPT
    assert judgement.exit_code == 0
    assert judgement.figures["updates"] == 12
    assert judgement.figures["overlaps"] == 0


def an_older_token_writes_after_a_newer_one_has_read(history: History) -> None:
    add(history, "w9", WRITE, 42.0, DONE, 90, value=(("w9.1", 90),))
    history.final["x"] = (*history.final["x"][:9], ("w9.1", 90), *history.final["x"][9:])


def the_answers_are_right_but_an_older_token_is_in_the_end(history: History) -> None:
    history.final["x"] = (*history.final["x"], ("w9.1", 90))
    add(history, "w9", WRITE, 57.0, UNKNOWN, 90, value=(("w9.1", 90),))


def an_acknowledged_update_is_gone(history: History) -> None:
    history.final["x"] = history.final["x"][:5] + history.final["x"][6:]


def all_updates_are_gone(history: History) -> None:
    del history.final["x"]


def somebody_is_refused_who_was_the_newest(history: History) -> None:
    add(history, "w9", WRITE, 58.0, STALE, 999, value=(("w9.1", 999),))


def a_token_is_given_twice(history: History) -> None:
    of(history, CLAIM, 4).token = of(history, CLAIM, 3).token


def tokens_go_back(history: History) -> None:
    of(history, CLAIM, 4).token = 7


def a_read_returns_what_was_there_before(history: History) -> None:
    of(history, READ, 6).value = (("w0.2", 0),)


def a_read_sees_what_is_written_later(history: History) -> None:
    of(history, READ, 6).value = (("w0.8", 0),)


def a_read_sees_what_nobody_has_written(history: History) -> None:
    of(history, READ, 6).value = (("ghost", 0),)


def the_register_holds_what_nobody_has_written(history: History) -> None:
    history.final["x"] = (*history.final["x"], ("ghost", 999))


def writes_came_in_another_order(history: History) -> None:
    first, second = of(history, WRITE, 3), of(history, WRITE, 4)
    first.value, second.value = second.value, first.value


def held_after_its_deadline(history: History) -> None:
    check = of(history, CHECK, 3)
    check.invoked += 2
    check.returned += 2


def held_because_of_a_renewal_without_an_answer(history: History) -> None:
    renewal = of(history, RENEW, 3)
    renewal.outcome, renewal.returned = UNKNOWN, OPEN
    check = of(history, CHECK, 3)
    check.invoked = check.returned = renewal.invoked + 0.9


def held_after_its_loss_was_told(history: History) -> None:
    check = of(history, CHECK, 3)
    history.note(check.invoked - 0.01, check.process, LOST, "x", check.token)


def somebody_waits_too_long_after_all_has_healed(history: History) -> None:
    add(history, "w9", ACQUIRE, 49.0, FAILED).returned = 56.0


def somebody_waits_for_ever(history: History) -> None:
    add(history, "w9", ACQUIRE, 30.0, UNKNOWN)


BAD: list[tuple[Callable[[History], None], str]] = [
    (an_older_token_writes_after_a_newer_one_has_read, STALE_WRITE),
    (the_answers_are_right_but_an_older_token_is_in_the_end, STALE_WRITE),
    (an_acknowledged_update_is_gone, LOST_UPDATE),
    (all_updates_are_gone, LOST_UPDATE),
    (somebody_is_refused_who_was_the_newest, NO_CAUSE),
    (a_token_is_given_twice, TOKENS),
    (tokens_go_back, TOKENS),
    (a_read_returns_what_was_there_before, LINEARIZABLE),
    (a_read_sees_what_is_written_later, LINEARIZABLE),
    (a_read_sees_what_nobody_has_written, LINEARIZABLE),
    (the_register_holds_what_nobody_has_written, LINEARIZABLE),
    (writes_came_in_another_order, LINEARIZABLE),
    (held_after_its_deadline, HONEST),
    (held_because_of_a_renewal_without_an_answer, HONEST),
    (held_after_its_loss_was_told, HONEST),
    (somebody_waits_too_long_after_all_has_healed, SERVED),
    (somebody_waits_for_ever, SERVED),
]


@pytest.mark.parametrize(("spoil", "promise"), BAD, ids=lambda one: getattr(one, "__name__", ""))
def test_a_bad_history_is_refused(spoil: Callable[[History], None], promise: str) -> None:
    history = good()
    spoil(history)
    judgement = judge(history, ABOUT)
    assert promise in broken_promises(judgement)
    assert judgement.verdict == BROKEN
    assert judgement.exit_code == 1


def test_every_promise_has_its_bad_history() -> None:
    assert {promise for _, promise in BAD} | {CLEAN} == {*PROMISES, SERVED, CLEAN}


def test_a_worker_that_failed_or_left_something_breaks_a_promise_too() -> None:
    judgement = judge(good(), {**ABOUT, "wrong": ["w3 failed: KeyError: 'x'"]})
    assert broken_promises(judgement) == {CLEAN}
    assert judgement.exit_code == 1


def a_refusal_of_one_who_was_overtaken(history: History) -> None:
    add(history, "w9", WRITE, 42.0, STALE, 90, value=(("w9.1", 90),))


def a_write_without_an_answer_that_came_through(history: History) -> None:
    write = of(history, WRITE, 11)
    write.outcome, write.returned = UNKNOWN, OPEN


def a_write_without_an_answer_that_did_not(history: History) -> None:
    add(history, "w9", WRITE, 57.0, UNKNOWN, 999, value=(("w9.1", 999),))


def a_worker_killed_while_it_waited(history: History) -> None:
    add(history, "w9", ACQUIRE, 30.0, UNKNOWN)
    history.note(31.0, "w9", CRASHED)


def a_process_stopped_between_the_look_and_its_writing_down(history: History) -> None:
    of(history, CHECK, 3).returned += 9  # it was held when it looked; that was long ago when it could say so


def a_look_that_a_renewal_overtook(history: History) -> None:
    check, renewal = of(history, CHECK, 3), of(history, RENEW, 3)
    check.invoked = of(history, CLAIM, 3).invoked + 1.05
    renewal.invoked = check.invoked - 0.1
    renewal.returned = check.invoked + 0.01
    check.returned = check.invoked + 0.02


@pytest.mark.parametrize(
    "change",
    [
        a_refusal_of_one_who_was_overtaken,
        a_write_without_an_answer_that_came_through,
        a_write_without_an_answer_that_did_not,
        a_worker_killed_while_it_waited,
        a_process_stopped_between_the_look_and_its_writing_down,
        a_look_that_a_renewal_overtook,
    ],
    ids=lambda one: one.__name__,
)
def test_what_may_happen_is_not_refused(change: Callable[[History], None]) -> None:
    history = good()
    change(history)
    assert broken_promises(judge(history, ABOUT)) == set()


def test_overlaps_are_counted_and_break_no_promise() -> None:
    history = good()
    add(history, "w9", ACQUIRE, 5.1, GRANTED, 102, holder="h99", detail="mutex")
    add(history, "w9", CHECK, 5.5, LOST, 102, holder="h99")
    judgement = judge(history, ABOUT)
    assert judgement.figures["overlaps"] == 1
    assert judgement.verdict == KEPT


def test_who_still_writes_believes_though_it_is_refused() -> None:
    history = good()
    add(history, "w9", ACQUIRE, 3.0, GRANTED, 90, holder="h99", detail="mutex")
    add(history, "w9", WRITE, 6.5, STALE, 90, holder="h99", value=(("w9.1", 90),))
    judgement = judge(history, ABOUT)
    assert judgement.figures["overlaps"] == 1
    assert judgement.verdict == KEPT


def test_a_release_that_is_repeated_in_the_background_is_no_overlap() -> None:
    history = good()
    add(history, "w0", RELEASE, 7.0, "gone", 100, holder="h0")
    assert judge(history, ABOUT).figures["overlaps"] == 0


def test_too_little_is_no_proof() -> None:
    history = good()
    history.operations = [one for one in history.operations if one.invoked < 20]
    history.final["x"] = history.final["x"][:4]
    judgement = judge(history, ABOUT)
    assert judgement.verdict == UNDECIDED
    assert judgement.exit_code == 2
    assert len(judgement.undecided) == 2  # few updates, and nobody after the healing


def test_names_are_judged_apart() -> None:
    history, other = good(), good()
    for one in other.operations:
        one.name = "y"
        one.token += 1000  # of one name after the other's higher ones: nothing to do with each other
    history.operations = [*other.operations, *history.operations]
    history.final["y"] = tuple((entry, token + 1000) for entry, token in other.final["x"])
    for one in other.of(WRITE):
        one.value = tuple((entry, token + 1000) for entry, token in one.value)
    assert judge(history, ABOUT).verdict == KEPT
