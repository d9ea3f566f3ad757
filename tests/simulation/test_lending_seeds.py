"""Short runs in which what stays with a process is lent there, and everything fails that can."""

from __future__ import annotations

import pytest

from holdfast.testing.history import ACQUIRE
from holdfast.testing.simulation import TROUBLE, run
from holdfast.testing.simulation.searching import opener_of
from holdfast.testing.simulation.workload import LENDING

SEEDS = 25
PLANS = {
    "memory": LENDING,
    "sqlite": LENDING._replace(same_machine=True, trouble=TROUBLE._replace(partition=0.0, server_pause=0.0)),
}


@pytest.mark.parametrize("keep", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("store", PLANS)
def test_it_is_lent_to_one_at_a_time_and_never_when_it_is_over(store: str, keep: float) -> None:
    again = 0
    with opener_of(store) as opener:
        for seed in range(SEEDS):
            report = run(seed, PLANS[store]._replace(keep=keep), opener)
            assert report.ok, str(report)
            grants = [one.token for one in report.history.operations if one.kind == ACQUIRE and one.token]
            again += len(grants) - len(set(grants))
    assert again > SEEDS, "grants were lent again and again"
