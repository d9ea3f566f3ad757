"""Short runs in which what stays with a process is lent there, and everything fails that can."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.history import ACQUIRE
from holdfast.testing.simulation import TROUBLE, run
from holdfast.testing.simulation.searching import opener_of
from holdfast.testing.simulation.workload import LENDING, SHARING, Plan

SEEDS = 25
STORES: dict[str, dict[str, Any]] = {
    "memory": {},
    "sqlite": {"same_machine": True, "trouble": TROUBLE._replace(partition=0.0, server_pause=0.0)},
}


@pytest.mark.parametrize("keep", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("plan", [pytest.param(LENDING, id="mutexes"), pytest.param(SHARING, id="readers")])
def test_it_is_lent_to_one_at_a_time_or_to_readers_and_never_when_it_is_over(
    plan: Plan, store: str, keep: float
) -> None:
    again = 0
    with opener_of(store) as opener:
        for seed in range(SEEDS):
            report = run(seed, plan._replace(keep=keep, **STORES[store]), opener)
            assert report.ok, str(report)
            grants = [one.token for one in report.history.operations if one.kind == ACQUIRE and one.token]
            again += len(grants) - len(set(grants))
    assert again > SEEDS, "grants were lent again and again"
