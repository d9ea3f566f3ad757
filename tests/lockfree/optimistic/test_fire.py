"""Under fire: eight processes update one value, and are killed and stopped at random. No acknowledged update is lost, none is
made twice; and the naive way, beside it, loses some. `HOLDFAST_ROUNDS=200` for the long form."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ..fire import ROUNDS, play

STORES = [
    "sqlite",
    *(pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb", "redis", "etcd", "zookeeper")),
]
FIXTURES = {"redis": "redis_url", "etcd": "etcd_url", "zookeeper": "zookeeper_hosts"}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    kind: str = request.param
    if kind == "sqlite":
        return kind, str(tmp_path / "burning.db")
    return kind, str(request.getfixturevalue(FIXTURES.get(kind, kind)))


@pytest.mark.timeout(240 + 3 * ROUNDS)
def test_no_update_is_lost_or_made_twice_under_fire(store: tuple[str, str]) -> None:
    done = play("optimistic", *store, "optimistic", wanted=8 * ROUNDS, faults=ROUNDS + 2)
    marks, acknowledged = Counter(done["marks"]), {one["mark"] for one in done["said"]}
    assert acknowledged <= set(marks), "an acknowledged update was lost"
    assert max(marks.values()) == 1, "an update was made twice"
    assert len(marks) <= len(acknowledged) + done["kills"], "only a killed worker may be silent about what it did"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.server)], indirect=True)
def test_the_naive_way_loses_updates(store: tuple[str, str]) -> None:
    done = play("optimistic", *store, "naive", wanted=200)
    acknowledged = {one["mark"] for one in done["said"]}
    assert not acknowledged <= set(done["marks"])
