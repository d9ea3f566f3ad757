"""Thousands of short runs in which everything fails that can: `make soak` goes on where these stop."""

from __future__ import annotations

import pytest

from holdfast.testing.simulation import CALM, NO_TROUBLE, Plan, memory_behind_network, run
from holdfast.testing.simulation.__main__ import PLANS, main, opener_of

CHUNK = 25  # so many take seconds, on a busy machine too


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_memory_behind_a_network(first: int) -> None:
    for seed in range(first, first + CHUNK):
        report = run(seed, PLANS["memory"])
        assert report.ok, str(report)


@pytest.mark.parametrize("first", range(0, 250, CHUNK))
def test_sqlite(first: int) -> None:
    with opener_of("sqlite") as opener:
        for seed in range(first, first + CHUNK):
            report = run(seed, PLANS["sqlite"], opener)
            assert report.ok, str(report)


def test_sqlite_too_gives_the_same_history_for_the_same_seed() -> None:
    with opener_of("sqlite") as opener:
        one, other = (run(3, PLANS["sqlite"], opener).history.json_lines() for _ in range(2))
    assert one == other


def test_when_nothing_fails_nobody_is_refused_and_no_two_overlap() -> None:
    plan = Plan(faults=CALM, trouble=NO_TROUBLE)
    for seed in range(40):
        report = run(seed, plan, memory_behind_network)
        assert report.ok, str(report)
        assert report.overlaps == 0
        assert not [one for one in report.history.operations if one.outcome in ("lost", "stale", "unknown")]


def test_the_soak_tells_how_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3"]) == 0
    told = capsys.readouterr().out
    assert "memory: 3 seeds passed" in told
    assert "sqlite: 3 seeds passed" in told
