"""Rendezvous hashing: the same everywhere, even, and moving no more than it must."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from holdfast import Misuse
from holdfast.lockfree.partition import Ring
from holdfast.lockfree.partition.ring import partition_of

KEYS = [f"customer:{number}" for number in range(20_000)]


def owners(workers: int) -> dict[str, str]:
    ring = Ring(f"worker-{number}" for number in range(workers))
    return {key: ring.owner(key) for key in KEYS[: 20_000 // max(1, workers // 10)]}


@pytest.mark.parametrize("workers", [1, 2, 3, 10, 50])
def test_a_worker_that_joins_takes_its_share_and_nothing_else_moves(workers: int) -> None:
    before, after = owners(workers), owners(workers + 1)
    keys = before.keys() & after.keys()
    moved = [key for key in keys if before[key] != after[key]]
    least = len(keys) / (workers + 1)
    assert 0.8 * least < len(moved) < 1.2 * least  # the minimum is n / workers
    assert {after[key] for key in moved} == {f"worker-{workers}"}


def test_taking_the_remainder_of_a_hash_instead_would_move_nearly_all() -> None:
    moved = sum(partition_of(key, 10) != partition_of(key, 11) for key in KEYS)
    assert moved > 0.8 * len(KEYS)


def test_a_worker_that_leaves_gives_up_its_own_keys_only() -> None:
    before, after = owners(8), owners(7)
    assert all(before[key] == "worker-7" for key in after if before[key] != after[key])


def test_every_worker_has_about_the_same() -> None:
    counts = Counter(owners(8).values())
    assert len(counts) == 8
    assert min(counts.values()) > 0.85 * len(KEYS) / 8
    assert max(counts.values()) < 1.15 * len(KEYS) / 8


def test_the_order_of_workers_and_the_process_make_no_difference() -> None:
    ring = Ring(["c", "a", "b", "a"])
    assert ring.workers == ("a", "b", "c")
    assert ring == Ring("abc")
    assert len({ring, Ring("abc"), Ring("ab")}) == 2
    script = "from holdfast.lockfree.partition import Ring; print(*map(Ring('abc').owner, 'klmnopqrst'))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=60
        )
        assert done.stdout.split() == [ring.owner(key) for key in "klmnopqrst"]
    assert repr(ring) == "Ring(['a', 'b', 'c'])"


def test_what_is_remembered_is_bounded() -> None:
    ring = Ring("ab")
    for number in range(70_000):
        ring.owner(str(number))
    assert len(ring.owner.__self__) < 66_000  # type: ignore[attr-defined]


def test_without_workers_nobody_owns_anything() -> None:
    with pytest.raises(Misuse, match="there are no workers"):
        Ring([])


@pytest.mark.parametrize("key", ["", 5, "x" * 600, "\0", None])
def test_a_key_needs_a_name(key: object) -> None:
    with pytest.raises(Misuse, match="key"):
        Ring("ab").owner(key)  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        Ring(["a", key])  # type: ignore[list-item]
