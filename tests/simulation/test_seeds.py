"""Hundreds of short runs in which everything fails that can: `make soak` goes on where these stop."""

from __future__ import annotations

import pytest

from holdfast.testing.simulation import CALM, NO_TROUBLE, Plan, memory_behind_network, run
from holdfast.testing.simulation.searching import opener_of, search
from holdfast.testing.simulation.swarm import CONSUL, ETCD, REDIS, REDLOCK, REDLOCK5, plan_of

CHUNK = 25  # so many take seconds, on a busy machine too
SMALLER = {ETCD: 5, CONSUL: 10}
SEEDS = {"memory": 400, "sqlite": 150, REDIS: 200, REDLOCK: 50, REDLOCK5: 25, ETCD: 60, CONSUL: 80}


@pytest.mark.parametrize(
    ("store", "first"),
    [(store, first) for store, seeds in SEEDS.items() for first in range(0, seeds, SMALLER.get(store, CHUNK))],
)
def test_no_promise_is_broken(store: str, first: int) -> None:
    seeds = SMALLER.get(store, CHUNK)
    tally = search(store, first, seeds)
    assert tally.failed is None, str(tally.failed)
    assert tally.seeds == seeds


@pytest.mark.parametrize("store", SEEDS)
def test_the_same_seed_gives_the_same_history(store: str) -> None:
    with opener_of(store) as opener:
        one, other = (run(3, plan_of(store, 3), opener).history.json_lines() for _ in range(2))
    assert one == other


def test_when_nothing_fails_nobody_is_refused_and_no_two_overlap() -> None:
    plan = Plan(faults=CALM, trouble=NO_TROUBLE)
    for seed in range(40):
        report = run(seed, plan, memory_behind_network)
        assert report.ok, str(report)
        assert report.overlaps == 0
        assert not [one for one in report.history.operations if one.outcome in ("lost", "stale", "unknown")]


@pytest.mark.parametrize("store", [REDIS, REDLOCK, ETCD, CONSUL])
def test_on_servers_where_nothing_fails_nobody_is_refused_and_no_two_overlap(store: str) -> None:
    with opener_of(store) as opener:
        for seed in range(15):
            report = run(seed, plan_of(store, seed, ())._replace(hold=0.2, drop=0.0), opener)
            assert report.ok, str(report)
            assert report.overlaps == 0
            assert not [one for one in report.history.operations if one.outcome in ("stale", "unknown")]
            assert not [note for note in report.history.notes if note.what in ("lost", "in danger")]
