"""Every networked store under a short attack, on servers of its own, by the command; several at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.verify.own import KINDS

pytestmark = [pytest.mark.server, pytest.mark.timeout(400)]

AT_ONCE = 4  # they mostly wait
# What a few seconds have room for; each fault is struck somewhere. As root, those that take it too.
FAULTS = {
    "redis": "pause,restart,clock",
    "valkey": "pause,drop,clock-server",
    "redis-sentinel": "failover,kill",
    "redlock": "pause,pause-server,clock",
    "etcd": "leader,pause,cut",
    "zookeeper": "pause,leader,delay",
    "consul": "cut,restart",  # its ttl is 10 s, and so is a pause that means something
    "postgresql": "pause,restart,drop",
    "mariadb": "pause,cut,kill",
}


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[tuple[int, dict[str, Any]]]]]:
    with ThreadPoolExecutor(AT_ONCE) as together:
        yield {kind: together.submit(verdict, kind, faults) for kind, faults in FAULTS.items()}


def verdict(kind: str, faults: str) -> tuple[int, dict[str, Any]]:
    words = ["--own", kind, "--seconds", "2.5", "--workers", "2", "--faults", faults, "--json"]
    for _ in range(2):  # undecided, on a machine that let nobody work: once more
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "verify", *words],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.stdout, done.stderr
        told = json.loads(done.stdout)
        if done.returncode != 2:
            break
    return done.returncode, told


def test_no_kind_is_forgotten() -> None:
    assert set(FAULTS) == set(KINDS)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_store_keeps_its_promises(kind: str, verdicts: dict[str, Future[tuple[int, dict[str, Any]]]]) -> None:
    code, told = verdicts[kind].result()
    assert [one for promise in told["promises"].values() for one in promise["findings"]] == []
    assert code == 0, told["undecided"]
    assert told["run"]["own"] == kind
    assert told["figures"]["faults"]
