"""Mistakes in what judges the library, and the tests that find them: a verdict is worth what its own parts are."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_clean, must_be_found

PARTS, CLUSTERS = "tests/verify/test_parts.py::", "tests/testing/test_clusters.py::"

MUTANTS = [
    Mutant(
        "a worker that hangs and does not say where",
        "verify/worker.py",
        (("            faulthandler.dump_traceback_later(ending, exit=True)  # a worker that hangs says where\n", ""),),
        PARTS + "test_a_worker_that_hangs_is_told_of_with_where_it_stood",
    ),
    Mutant(
        "a worker that waits for its lock taken for one that hangs",
        "verify/plan.py",
        (("return self.patience + 2 * FIND_OUT + 2 * ROUND + CLOSING + STARVED", "return self.bound + 10"),),
        PARTS + "test_a_worker_that_may_yet_be_waiting_is_not_said_to_hang",
    ),
    Mutant(
        "a master that is a replica again after a restart",
        "testing/servers/redis.py",
        (
            (
                'return [program, str(self.data / "redis.conf"), *options]',
                'return [program, str(self.data / "redis.conf"), *options, *f"--{self._role}"[: 99 * len(self._role)].split()]',
            ),
        ),
        CLUSTERS + "test_sentinels_promote_a_replica_that_has_the_data",
    ),
    Mutant(
        "a group that is whole with a replica for its master",
        "testing/servers/redis.py",
        (('facts[b"port"] and _role(m)[0] == b"master" for', 'facts[b"port"] for'),),
        CLUSTERS + "test_sentinels_that_name_a_replica_are_not_whole",
    ),
]


@pytest.mark.timeout(600)
def test_without_a_mistake_nothing_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
