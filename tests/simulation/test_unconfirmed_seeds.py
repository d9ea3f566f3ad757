"""Short runs in which nobody waits for the answer to a release, and everything fails that can."""

from __future__ import annotations

import pytest

from holdfast.leaving import Leaving
from holdfast.testing.simulation import run
from holdfast.testing.simulation.searching import opener_of
from holdfast.testing.simulation.workload import LEAVING

SEEDS = 25


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_what_nobody_waits_to_have_left_is_left_and_nobody_enters_before(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_in = []
    whole = Leaving._hand_in

    def counted(*args: object) -> bool:
        handed_in.append(whole(*args))  # type: ignore[arg-type]  # as they come
        return handed_in[-1]

    monkeypatch.setattr(Leaving, "_hand_in", counted)
    with opener_of(store) as opener:
        for seed in range(SEEDS):
            report = run(seed, LEAVING, opener)
            assert report.ok, str(report)
    assert sum(handed_in) > SEEDS
