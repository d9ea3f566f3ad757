"""`holdfast simulate`: what it prints, how it ends, and the story of a seed that fails."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from holdfast.cli import main
from holdfast.testing.checkers import UNDECIDED, Finding
from holdfast.testing.history import History
from holdfast.testing.simulation import NO_TROUBLE, Fence, Plan, Report, searching, swarm
from holdfast.testing.simulation.story import FAULT
from holdfast.testing.simulation.swarm import faults_of

Captured = pytest.CaptureFixture[str]


def without_a_fence(store: str, seed: int, only: object = None) -> Plan:
    """Many are paused, and whoever wakes writes."""
    return Plan(fence=Fence.NONE, rounds=3, chaos=8.0, kinds=("mutex",), trouble=NO_TROUBLE._replace(pause=1.0))


def test_a_table_tells_how_it_went_and_a_file_where_to_go_on(capsys: Captured, tmp_path: Path) -> None:
    count = tmp_path / "seeds.json"
    for _ in range(2):
        assert main(["simulate", "memory", "--seeds", "3", "--count", str(count)]) == 0
    told = capsys.readouterr().out
    assert told.count("memory      3") == 2
    assert "all kept" in told
    assert json.loads(count.read_text())["memory"]["seeds"] == 6


def test_every_store_has_a_row(capsys: Captured) -> None:
    some = ("memory", "redis")
    with mock.patch.object(swarm, "STORES", some):
        assert main(["simulate", "--seeds", "1", "--json"]) == 0
    assert [row["store"] for row in json.loads(capsys.readouterr().out)] == list(some)


def test_a_seed_is_a_story(capsys: Captured) -> None:
    assert main(["simulate", "redis", "--seed", "3"]) == 0
    words = capsys.readouterr().out
    assert "wants 'mutex', and has it: token #" in words
    assert " ● " in words, "what was done to it"
    assert main(["simulate", "redis", "--seed", "3", "--json"]) == 0
    story = json.loads(capsys.readouterr().out)
    assert set(story) == {"store", "seed", "lanes", "events", "findings", "tokens", "seconds"}
    assert {event["lane"] for event in story["events"]} == set(story["lanes"])
    assert "redis" in story["lanes"]


def test_only_the_faults_that_were_asked_for_happen(capsys: Captured) -> None:
    assert main(["simulate", "redis", "--seeds", "4", "--faults", "pause", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert set(row["faults"]) <= {"paused", "dropped"}


def test_a_seed_that_fails_is_made_simpler_and_told(capsys: Captured) -> None:
    seen: list[Report] = []

    def few_tries(store: str, failed: Report, only: object = None) -> Report:
        seen.extend((failed, shrunk(store, failed, tries=1)))
        return seen[-1]

    shrunk = searching.shrunk
    with mock.patch.multiple(searching, plan_of=without_a_fence, shrunk=few_tries):
        assert main(["simulate", "memory", "--seeds", "100"]) == 1
    told = capsys.readouterr().out
    assert "broken by seed" in told
    assert "Its shortest story" in told
    assert "Wrong: [storage]" in told
    assert "The whole of it: holdfast simulate memory --seed" in told
    failed, shortest = seen
    assert len(shortest.history.operations) < len(failed.history.operations)
    assert shortest.findings[0].checker == failed.findings[0].checker
    story = searching.story_of("memory", shortest)
    about = story.about(shortest.findings[0].name)
    assert 0 < len(about.events) <= len(story.events)
    assert all(event.kind == FAULT or event.name == shortest.findings[0].name for event in about.events)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "there is no simulation of 'nosuch'"),
        (["--seed", "1"], "a seed is a story of one store"),
        (["redis", "--faults", "nosuch"], "there is no fault 'nosuch' for redis"),
        (["memory", "--faults", "fail_over"], "there is no fault 'fail_over' for memory"),
        (["redis", "--seeds", "0"], "how many seeds"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], said: str, capsys: Captured) -> None:
    assert main(["simulate", *words]) == 125
    assert said in capsys.readouterr().err


def test_the_help_names_every_fault(capsys: Captured) -> None:
    assert main(["simulate", "--help"]) == 0
    told = capsys.readouterr().out
    assert [fault for fault in faults_of("redis") if fault not in told] == []


def test_a_seed_that_is_too_tangled_for_one_checker_is_not_broken(capsys: Captured) -> None:
    tangled = Report(3, [Finding(UNDECIDED, "mutex", "no verdict")], History(), 0, 1, 1.0)
    with mock.patch.object(searching, "run", return_value=tangled):
        assert main(["simulate", "memory", "--seed", "3"]) == 0
    assert "no verdict" in capsys.readouterr().out
