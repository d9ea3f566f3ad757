"""What a lock costs its server: processor time per lock taken and left, and per renewal. `python -m benchmarks costs`."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from holdfast import aio

from .curves.holding import TTL, held
from .where import started

STORES = ("redis", "redlock", "etcd", "zookeeper", "consul", "postgresql", "mysql")
TASKS, SECONDS = 64, 3.0
LEASES, ROUNDS = 1_000, 5
BUSY = 0.7  # of a server's time; beyond it, who comes waits for long


class Cost(NamedTuple):
    lock: float  # seconds of the server's processor time
    renewal: float

    @property
    def locks(self) -> float:
        """Per second, that one core carries."""
        return BUSY / self.lock

    @property
    def leases(self) -> float:
        """That one core can keep renewed."""
        return BUSY / self.renewal * TTL / 3


def worked(pids: tuple[int, ...]) -> float:
    """Seconds of processor time of these processes and of all that they started."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # its own, and of its children that have ended
    ours = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


async def cost(url: str, pids: tuple[int, ...]) -> Cost:
    async with aio.connect(url) as locks:
        done, until = 0, 0.0

        async def one(number: int) -> None:
            nonlocal done
            lock = locks.lock(f"cost {number}")
            while time.monotonic() < until:
                async with lock:
                    done += 1

        for _ in range(2):  # the first time is for the servers to get warm
            begun, done, until = worked(pids), 0, time.monotonic() + SECONDS
            await asyncio.gather(*(one(number) for number in range(TASKS)))
        per_lock = (worked(pids) - begun) / done
        leases = await held(locks, LEASES)  # a lease that nobody has is let go
        grants = [lease._grant for lease in leases]
        begun = worked(pids)
        for _ in range(ROUNDS):
            assert all(await locks._engine.store.renew(grants, 10.0))
        per_renewal = (worked(pids) - begun) / ROUNDS / LEASES
        return Cost(per_lock, max(per_renewal, 1e-7))


def main(into: Path = Path("build", "curves")) -> bool:
    print(
        "| store | server's time per lock | per renewal | locks/s, one core | leases, one core, ttl=30 |\n|---|---|---|---|---|"
    )
    found = {}
    for store in STORES:
        with started(store) as (url, pids):
            one = found[store] = asyncio.run(cost(url, pids))
        print(
            f"| {store} | {one.lock * 1e6:,.0f} µs | {one.renewal * 1e6:,.1f} µs | {one.locks:,.0f} | {one.leases:,.0f} |",
            flush=True,
        )
    into.mkdir(parents=True, exist_ok=True)
    (into / "costs.json").write_text(json.dumps({store: one._asdict() for store, one in found.items()}, indent=1))
    return True
