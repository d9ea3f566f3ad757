"""Under fire: eight processes want the same keys done, and are killed and stopped at random, for longer than the ttl. Every key
has one effect, and everybody is told the same result; the naive way, beside it, has effects twice.
`HOLDFAST_ROUNDS=200` for the long form."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ..fire import ROUNDS, play

STORES = ["sqlite", *(pytest.param(name, marks=pytest.mark.server) for name in ("postgresql", "mariadb", "redis"))]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    kind: str = request.param
    if kind == "sqlite":
        return kind, str(tmp_path / "burning.db")
    return kind, str(request.getfixturevalue("redis_url" if kind == "redis" else kind))


def told(done: dict[str, Any]) -> dict[str, set[str]]:
    results = defaultdict(set)
    for one in done["said"]:
        if "result" in one:
            results[one["key"]].add(one["result"])
    return results


def made(done: dict[str, Any]) -> dict[str, list[str]]:
    effects = defaultdict(list)
    for key, result in done["effects"]:
        effects[key].append(result)
    return effects


@pytest.mark.timeout(240 + 3 * ROUNDS)
def test_every_key_has_one_effect_and_one_result_under_fire(store: tuple[str, str]) -> None:
    done = play("idempotency", *store, "idempotent", wanted=20 * ROUNDS, faults=ROUNDS + 2)
    results, effects = told(done), made(done)
    assert len(results) > 2
    for key, one in results.items():
        assert len(one) == 1, f"two callers were told different results of {key}"
        assert effects[key] == list(one), f"what was told of {key} is not what was done"
    assert max(map(len, effects.values())) == 1, "an effect was had twice"


@pytest.mark.timeout(240)
def test_the_naive_way_has_effects_twice(store: tuple[str, str]) -> None:
    done = play("idempotency", *store, "naive", wanted=300)
    assert max(map(len, made(done).values())) > 1
