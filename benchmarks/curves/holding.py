"""What it costs to hold, by how many: a round of renewals in processor time and bytes, and the memory of a lease."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import aio

from ..where import started
from .found import Curve

LEASES = (10, 100, 1_000, 10_000, 100_000)
TTL = 30.0
ROUND = TTL / 3  # seconds between two renewals
AT_ONCE = 64
CLAIMING = 30.0  # seconds that it may take to claim them all; then it is as many as this store takes in that time
FORGETFUL = ("redis", "redlock", "etcd", "consul")  # those that keep leases in memory, and whose memory grows with them
STORES = ("memory", "sqlite", "redis", "redlock", "etcd", "zookeeper", "consul", "postgresql", "mysql")


class Held(NamedTuple):
    """What one process that holds some leases saw."""

    processor: float  # seconds for one round
    sent: float  # bytes over loopback for one round, there and back
    memory: float  # bytes, of all of them


def curves(stores: tuple[str, ...], tell: Callable[[str], None]) -> Iterator[Curve]:
    processor = Curve(
        "leases-processor", "Processor time for renewing, at ttl=30", "leases held", "per cent of a core, at the client"
    )
    sent = Curve("leases-bytes", "Bytes for renewing, at ttl=30", "leases held", "bytes per second, both ways")
    memory = Curve("leases-memory", "Memory of a lease at the client", "leases held", "bytes per lease")
    servers = Curve(
        "leases-server", "Memory of a lease at the server, all members together", "leases held", "bytes per lease"
    )
    for store in stores:
        with started(store) as (url, pids):
            took = 0.0
            for count, before in zip(LEASES, (0, *LEASES), strict=False):
                if before and took / before * count > CLAIMING:
                    tell(f"leases: {store}: {count:,} would take {took / before * count:.0f} s to claim")
                    break
                tell(f"leases: {store}, {count:,}")
                begun, server = time.monotonic(), _resident(*pids)
                cost = holding(url, count)
                took, server = time.monotonic() - begun, _resident(*pids) - server
                processor.add(store, count, cost.processor / ROUND * 100)
                sent.add(store, count, cost.sent / ROUND)
                if count >= 1_000:  # below, it is lost in what the interpreter takes anyway
                    memory.add(store, count, cost.memory / count)
                    if store in FORGETFUL:
                        servers.add(store, count, server / count)
    yield from (processor, sent, memory, servers)


def holding(url: str, count: int) -> Held:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=worker, args=(url, count, theirs), daemon=True)
    process.start()
    theirs.close()  # so that a process that fails is heard of
    try:
        return Held(*ours.recv())
    finally:
        process.kill()
        process.join()


def worker(url: str, count: int, answer: Any) -> None:
    answer.send(tuple(asyncio.run(_cost(url, count))))
    time.sleep(60)  # killed before: the servers need not be told of every one


async def held(locks: aio.Locks, count: int) -> list[Any]:
    """So many leases, claimed by several tasks at once."""
    leases: list[Any] = []

    async def some(names: Iterator[int]) -> None:
        for number in names:
            lease = await locks.lock(f"held:{os.getpid()}:{number}", ttl=TTL).acquire()
            leases.append(lease)

    names = iter(range(count))
    await asyncio.gather(*(some(names) for _ in range(AT_ONCE)))
    return leases


async def _cost(url: str, count: int) -> Held:
    locks = aio.connect(url)
    await (await locks.lock("first").acquire()).release()
    before = _resident("self")
    leases = await held(locks, count)
    memory = _resident("self") - before
    store, grants = locks._engine.store, [lease._grant for lease in leases]
    await store.renew(grants, ROUND)  # once, so that the connection for renewals stands
    bytes_before, begun = _over_loopback(), time.process_time()
    verdicts = await store.renew(grants, ROUND)
    cost = Held(time.process_time() - begun, _over_loopback() - bytes_before, memory)
    assert all(verdicts), "a lease was not kept"
    return cost


def _resident(*pids: int | str) -> float:
    """Bytes of memory that these processes have."""
    return sum(float(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * os.sysconf("SC_PAGE_SIZE")


def _over_loopback() -> float:
    """Bytes that went through this machine's loopback: the servers are here, and nobody else should be."""
    return float(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())
