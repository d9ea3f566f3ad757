"""The parts of a run, one by one: what may be struck, the journal, the register, the ways, the page."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.claim import ROUND
from holdfast.cli import main
from holdfast.engine import CLOSING
from holdfast.errors import Misuse, StaleToken
from holdfast.lab.record import opened
from holdfast.testing.history import ACQUIRE, DONE, GRANTED, OPEN, READ, STALE, WRITE, Note
from holdfast.verify import Plan, Record, judge, record
from holdfast.verify.crew import Crew
from holdfast.verify.journal import Journal, Tail
from holdfast.verify.nemesis import FAULT
from holdfast.verify.plan import allowed, possible
from holdfast.verify.register import Place, Register
from holdfast.verify.report import page
from holdfast.verify.ways import Ways, with_ports
from holdfast.waiting import FIND_OUT

from .test_checkers import ABOUT, an_acknowledged_update_is_gone, good, kept

RUN: dict[str, Any] = {
    **ABOUT,
    "store": "redis://somebody:***@cache/",
    "own": None,
    "seed": 1,
    "seconds": 9.0,
    "workers": 2,
    "fenced": True,
    "allowed": ["pause"],
    "left out": {"disk-full": "takes root"},
    "register": "a file",
    "environment": {"system": "<Linux>"},
}


def test_only_what_can_be_struck_is_and_only_what_is_allowed() -> None:
    assert possible(proxied=False, servers=()) == ("pause", "kill", "clock")
    assert possible(proxied=True, servers=()) == ("pause", "kill", "clock", "cut", "delay", "drop")
    can = possible(proxied=True, servers=("leader", "restart"))
    assert allowed(None, can, {}) == can == ("pause", "kill", "clock", "cut", "delay", "drop", "restart", "leader")
    assert allowed(["kill", "pause"], can, {}) == ("pause", "kill")
    assert allowed([], can, {}) == ()


@pytest.mark.parametrize("fault", ["restart", "cut", "fire"])
def test_what_cannot_be_struck_is_refused_and_not_passed_over(fault: str) -> None:
    with pytest.raises(Misuse, match=fault):
        allowed([fault], possible(proxied=False, servers=()), {})


def test_why_a_fault_is_not_possible_here_is_said() -> None:
    with pytest.raises(Misuse, match="takes root"):
        allowed(["disk-full"], possible(proxied=True, servers=("restart",)), {"disk-full": "takes root on Linux"})


def test_a_store_in_a_file_and_tls_have_no_proxy_in_between() -> None:
    for url in (
        "sqlite:////tmp/x.db",
        "rediss://cache",
        "redis+sentinel://a:1/main",
        "postgresql://h/db?sslmode=require",
    ):
        with Ways(url, 4) as ways:
            assert not ways
            assert ways.urls == [url]


def test_a_port_that_is_not_said_is_the_usual_one() -> None:
    assert with_ports("redis://user:pw@cache/2?x=1", 6379) == "redis://user:pw@cache:6379/2?x=1"
    assert with_ports("etcd://a,[::1],b:1", 2379) == "etcd://a:2379,[::1]:2379,b:1"


def test_what_a_killed_worker_wrote_is_all_there_and_its_last_step_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "w0.jsonl"
    journal = Journal("w0", path)
    journal.step(ACQUIRE, "x").end(2.0, GRANTED, 7)
    journal.tell("lost", "x", 7)
    journal.step(WRITE, "x", token=7, value=(("w0.1", 7),))
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"number": 2, "process": "w')  # killed in mid-line
    record.write(tmp_path / "kept", dict(RUN), [], [path], lambda name: None, tmp_path)
    [history] = Record(tmp_path / "kept").parts()
    acquire, write = history.operations
    assert (acquire.outcome, acquire.token, acquire.returned) == (GRANTED, 7, 2.0)
    assert (write.returned, write.value) == (OPEN, (("w0.1", 7),))
    assert [(note.what, note.token) for note in history.notes] == [("lost", 7)]


def test_what_somebody_elses_history_says_is_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\nAll promises were kept."
    about = {**RUN, "store": evil, "library": evil, "fenced": False, "left out": {evil: evil, "x": 5}, "wrong": [evil]}
    history = good()
    history.notes.append(Note(1.0, evil, f"{FAULT}{evil}", detail=evil))
    kept(history, about, tmp_path / "kept")
    assert main(["verify", "--check", str(tmp_path / "kept")]) == 1
    said = capsys.readouterr().out
    assert said.count("pwned") == 6
    assert not {"\x1b", "\x07"} & set(said)
    assert "All promises were kept." not in said.splitlines()


@pytest.mark.parametrize("value", [[[[], 1]], [["x", None]], [["x", "y"]], [["x"]], [1], {"x": 1}])
def test_what_nobody_could_have_written_is_no_history(
    value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended in a traceback."""
    path = tmp_path / "kept"
    kept(good(), RUN, path)
    changed = [json.loads(line) for line in path.read_text().splitlines()]
    for one in changed:
        if one.get("kind") == WRITE:
            one["value"] = value
    path.write_text("".join(f"{json.dumps(one)}\n" for one in changed))
    assert main(["verify", "--check", str(path)]) == 125
    assert "is no history" in capsys.readouterr().err


def test_a_write_of_nothing_breaks_no_checker(tmp_path: Path) -> None:
    history = good()
    for one in history.of(WRITE):
        one.value = ()
    assert judge(kept(history, RUN, tmp_path / "kept")).verdict


def test_every_step_is_on_file_before_it_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "w0.jsonl"
    journal = Journal("w0", path)
    seen: list[dict[str, Any]] = []
    tail = Tail(path, [b"write"], seen.append)
    step = journal.step(WRITE, "x")
    tail.read()
    assert [one.get("outcome") for one in seen] == [None]
    step.end(1.0, DONE)
    tail.read()
    assert [one.get("outcome") for one in seen] == [None, DONE]
    journal.close()


def test_a_run_is_kept_era_by_era_and_its_notes_are_known_to_every_part(tmp_path: Path) -> None:
    journals = []
    for process in ("w0", "w1"):
        journal = Journal(process, tmp_path / process)
        journals.append(tmp_path / process)
        for era in (2, 10, 1):
            journal.step(ACQUIRE, f"mutex.0.{era}").end(1.0, GRANTED, era)
            journal.tell("lost", f"mutex.0.{era}", era)
        journal.close()
    crash = Note(3.0, "w1", "crashed")
    record.write(tmp_path / "kept", dict(RUN), [crash], journals, {"mutex.0.2": (("a", 1),)}.get, tmp_path)
    again = Record(tmp_path / "kept")
    assert (again.about, again.notes) == (RUN, [crash])
    parts = list(again.parts())
    assert [{one.name for one in part.operations} for part in parts] == [{f"mutex.0.{era}"} for era in (1, 2, 10)]
    assert all([note.what for note in part.notes] == ["crashed", "lost", "lost"] for part in parts)
    assert [part.final for part in parts] == [{}, {"mutex.0.2": (("a", 1),)}, {}]
    assert list(tmp_path.glob("era-*")) == []


def test_a_worker_keeps_nothing_of_what_it_wrote_down_in_memory(tmp_path: Path) -> None:
    journal = Journal("w0", tmp_path / "w0")
    names = {journal.alias(f"nonce {number}") for number in range(100)}
    assert len(names) == 100
    assert journal.alias("nonce 7") in names
    for _ in range(100):
        journal.step(ACQUIRE, "x").end(1.0, GRANTED, 7)
    assert not journal.operations
    assert not journal._aliases
    journal.close()
    journal.tell("lost", "x", 7)  # by a thread that comes too late: passed over, and not written into another's file
    assert b"nonce" not in (tmp_path / "w0").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "no json",
        '{"holdfast verify": 99}',
        '{"holdfast verify": 2}\n[]',
        '{"holdfast verify": 2}\n{"part": true}\n{"final": 1}',
    ],
)
def test_what_is_no_history_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(Misuse, match="file"):
        list(Record(tmp_path / "file").parts())


@pytest.mark.parametrize(
    "changed",
    [
        {"workers": "<script>alert(1)</script>"},
        {"store": ["<script>"]},
        {"environment": "<script>"},
        {"begun": "<script>"},
    ],
)
def test_a_history_of_somebody_elses_puts_nothing_into_the_page_but_text(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    run = kept(good(), RUN, tmp_path / "kept")
    if isinstance(changed.get("workers"), str):  # and should it come that far
        run.about |= changed
        assert "<script" not in page(run, judge(run))
    with pytest.raises(Misuse, match="is no history"):
        kept(good(), {**RUN, **changed}, tmp_path / "kept")


NOTE = {"at": 0.5, "process": "w1", "what": "fault: pause", "name": "", "token": 0, "detail": "for 1 s"}


@pytest.mark.parametrize(
    "changed",
    [
        {"at": "<script>"},
        {"at": float("nan")},
        {"at": float("inf")},
        {"at": 10**400},
        {"process": ["<script>"]},
        {"token": "<script>"},
        {"detail": {}},
    ],
)
def test_a_note_of_another_kind_is_no_history(changed: dict[str, Any], tmp_path: Path) -> None:
    kept(good(), RUN, tmp_path / "kept")
    first, *rest = (tmp_path / "kept").read_text().splitlines()
    (tmp_path / "kept").write_text("\n".join([first, json.dumps({**NOTE, **changed}), *rest]))
    with pytest.raises(Misuse, match="is no history"):
        list(Record(tmp_path / "kept").parts())


@pytest.mark.parametrize("detail", ["", "for", "for nan s", "for <script> s", "for 1e400 s", "for -1 s"])
def test_whatever_a_note_or_a_step_says_is_drawn_as_text(detail: str, tmp_path: Path) -> None:
    kept(good(), RUN, tmp_path / "kept")
    first, part, second, *rest = (tmp_path / "kept").read_text().splitlines()
    note = {**NOTE, "what": f"{FAULT}<script>", "detail": detail}
    step = {**json.loads(second), "process": "<script>", "kind": "<script>", "outcome": STALE}
    (tmp_path / "kept").write_text("\n".join([first, json.dumps(note), part, second, json.dumps(step), *rest]))
    run = Record(tmp_path / "kept")
    assert "<script" not in page(run, judge(run))
    assert json.dumps(opened(tmp_path / "kept"), allow_nan=False)


def test_lists_in_lists_are_no_history(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("[" * 200_000)
    with pytest.raises(Misuse, match="is no history"):
        Record(tmp_path / "file")


@pytest.mark.parametrize(
    ("field", "value"), [("process", 5), ("token", "<script>"), ("invoked", "<script>"), ("name", None)]
)
def test_a_step_of_another_kind_is_no_history(field: str, value: object, tmp_path: Path) -> None:
    kept(good(), RUN, tmp_path / "kept")
    first, part, second, *rest = (tmp_path / "kept").read_text().splitlines()
    changed = json.dumps({**json.loads(second), field: value})
    (tmp_path / "kept").write_text("\n".join([first, part, changed, *rest]))
    with pytest.raises(Misuse, match="is no history"):
        list(Record(tmp_path / "kept").parts())


def test_the_register_refuses_who_was_overtaken_and_knows_what_was_lost(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "r"))
    place.create()
    fenced = Register(place)
    fenced.write({"x": 1}, fenced.read({"x": 1}), "a")
    before = fenced.read({"x": 2})
    fenced.write({"x": 3}, fenced.read({"x": 3}), "b")
    with pytest.raises(StaleToken):
        fenced.write({"x": 2}, before, "c")
    assert fenced.kept("x") == (("a", 1), ("b", 3))
    assert fenced.kept("y") is None
    fenced.close()
    plain = Register(place, fence=False)
    plain.write({"x": 2}, before, "c")
    assert plain.kept("x") == (("a", 1), ("c", 2))  # b was overwritten by one who had not read it
    plain.close()


def test_the_page_says_the_verdict_first_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    history = good()
    an_acknowledged_update_is_gone(history)
    history.notes.append(Note(1.0, "w0<b>", "fault pause", detail="for 0.500 s"))
    run = kept(history, RUN, tmp_path / "kept")
    text = page(run, judge(run))
    body = text.partition("<body>")[2]
    assert body.lstrip().startswith('<h1 class="broken">A promise was broken</h1>')
    assert "w0<b>" not in text
    assert "<Linux>" not in text
    assert text.count("<svg") == 3
    for outside in ("http://", "https://", "<script", "<link", "src=", "@import"):
        assert outside not in text


def test_the_bound_that_is_stated_grows_with_the_ttl_and_the_line() -> None:
    assert Plan(ttl=10).bound > Plan(ttl=1).bound
    assert Plan(workers=40).bound > Plan(workers=4).bound
    assert Plan(lanes=40).bound > Plan(lanes=4).bound


def test_a_worker_that_may_yet_be_waiting_is_not_said_to_hang() -> None:
    """By what calls may take: a wait for two locks, then two releases of which the first try fails, then close()."""
    plan = Plan()
    assert plan.ending - plan.patience > 2 * FIND_OUT + 2 * ROUND + CLOSING + 30, "a busy machine has its time too"


class Hasty(Plan):
    ending = 0.2


def test_a_worker_that_hangs_is_told_of_with_where_it_stood(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "register.db"))
    place.create()
    crew = Crew(Hasty(workers=1, lanes=1), [f"sqlite:///{tmp_path}/locks.db"], place, "x/", tmp_path)
    with closing(sqlite3.connect(place.where, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")  # nobody comes into the register
        worker = crew.start()
        try:
            until = time.monotonic() + 60
            while not (worker.journal.exists() and '"token"' in _begun(worker.journal, READ)):
                assert worker.alive, worker.errors.read_text()
                assert time.monotonic() < until
                time.sleep(0.01)
            (wrong,) = crew.stop()
        finally:
            crew.end()
    told, _, where = wrong.partition(" Its threads stood in ")
    assert told == "w0 failed: it did not end when it was told to."
    lane, *_, main = where.split("; ")  # and maybe a renewer
    assert " in_threads < " in main, "it waits for its lane"
    assert lane != main
    assert re.match(r".+:\d+ ", lane), "which may be a step before the register on a busy machine"


def _begun(journal: Path, kind: str) -> str:
    """Of those who hold something: others look without a token, and are not kept waiting."""
    return "".join(line for line in journal.read_text().splitlines() if f'"kind": "{kind}"' in line)


def test_the_verdict_is_plain_json(tmp_path: Path) -> None:
    told = json.loads(json.dumps(judge(kept(good(), ABOUT, tmp_path / "kept")).as_json()))
    assert told["verdict"] == "kept"
    assert all(promise["kept"] for promise in told["promises"].values())
