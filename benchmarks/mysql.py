"""Locks in MariaDB against the least that its driver and its disk allow.

    python -m benchmarks.mysql

The floor of acquire and release is two durable one-row UPDATEs through the same driver: what any table of locks must pay.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import pymysql

import holdfast
from holdfast import aio
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.testing import servers
from holdfast.testing.servers.mariadb import MariaDB

from .measure import Verdict, interleaved, report

PROCESSES = 8
SECONDS = 3.0
LEASES = 10_000


def main() -> bool:
    with servers.start("mariadb") as server:
        verdicts = [*uncontended(server), *asyncio.run(concurrent(server)), *contended(server), *renewal(server)]
    return report("MySQL (MariaDB)", verdicts)


def connect(server: MariaDB) -> Any:
    return pymysql.connect(
        host="127.0.0.1", port=server.port, user="root", database="holdfast", autocommit=True, ssl_disabled=True
    )


# ---- one thread, nobody else


def uncontended(server: MariaDB) -> list[Verdict]:
    cursor = connect(server).cursor()
    cursor.execute("CREATE TABLE floor (id INT PRIMARY KEY, holder VARBINARY(32), n BIGINT) ENGINE = InnoDB")
    cursor.execute("INSERT INTO floor VALUES (1, '', 0)")

    def floor() -> None:
        cursor.execute("UPDATE floor SET holder = x'6162', n = n + 1 WHERE id = 1")
        cursor.execute("UPDATE floor SET holder = '' WHERE id = 1")

    bare = connect(server).cursor()

    def get_lock() -> None:
        bare.execute("SELECT GET_LOCK('bench', 5)")
        bare.execute("SELECT RELEASE_LOCK('bench')")

    locks, sessions = holdfast.connect(server.url), holdfast.connect(f"{server.url}?mode=session")
    ours, session = locks.lock("bench"), sessions.lock("bench")
    tasks: dict[str, Callable[[], object]] = {
        "floor": floor,
        "holdfast": lambda: ours.acquire().release(),
        "session": lambda: session.acquire().release(),
        "GET_LOCK": get_lock,
    }
    tasks |= peers(server)
    for task in tasks.values():
        task()
    rounds = [interleaved(tasks, rounds=1, batch=20) for _ in range(25)]

    def times(one: str, other: str) -> float:
        return statistics.median(taken[one] / taken[other] for taken in rounds)

    typical = {name: statistics.median(taken[name] for taken in rounds) * 1e6 for name in tasks}
    shown = ", ".join(f"{name} {micros:.0f} µs" for name, micros in typical.items())
    locks.close()
    sessions.close()
    return [
        Verdict("acquire + release against two durable UPDATEs", times("holdfast", "floor"), 2.0, detail=shown),
        Verdict("the same, session locks (one durable token)", times("session", "floor"), 2.0),
        *(
            Verdict(f"session locks against {name}, which has no token", times("session", name), 1.1)
            for name in tasks
            if name == "tooz"
        ),
    ]


def peers(server: MariaDB) -> dict[str, Callable[[], object]]:
    """Those that are installed and still run."""
    try:
        coordination: Any = importlib.import_module("tooz.coordination")
        coordinator = coordination.get_coordinator(f"mysql://root@127.0.0.1:{server.port}/holdfast", b"bench")
        coordinator.start()
        lock = coordinator.get_lock(b"tooz")
    except Exception:
        return {}
    return {"tooz": lambda: (lock.acquire(), lock.release())}


# ---- asyncio


async def concurrent(server: MariaDB) -> list[Verdict]:
    """Group commit: many tasks share the disk's waits."""
    async with aio.connect(server.url) as locks:

        async def cycles(number: int, count: int) -> None:
            lock = locks.lock(f"task{number}")
            for _ in range(count):
                await (await lock.acquire()).release()

        async def rate(tasks: int, count: int) -> float:
            started = time.perf_counter()
            await asyncio.gather(*(cycles(number, count) for number in range(tasks)))
            return tasks * count / (time.perf_counter() - started)

        await rate(64, 1)
        alone, together = await rate(1, 100), await rate(64, 10)
    return [
        Verdict(
            "asyncio, 64 tasks against one",
            together / alone,
            1.5,
            at_least=True,
            detail=f"{together:.0f} and {alone:.0f} cycles/s",
        )
    ]


# ---- eight processes, one name


def worker(url: str, seconds: float, results: Any, ready: Any) -> None:
    locks = holdfast.connect(url)
    lock = locks.lock("contended")
    waits = []
    ready.wait()
    until = time.monotonic() + seconds
    while (before := time.monotonic()) < until:
        lease = lock.acquire()
        waits.append(time.monotonic() - before)
        lease.release()
    results.put(waits)
    locks.close()


def contended(server: MariaDB) -> list[Verdict]:
    holdfast.connect(server.url).lock("contended").acquire().release()
    context = multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(PROCESSES)
    crowd = [context.Process(target=worker, args=(server.url, SECONDS, results, ready)) for _ in range(PROCESSES)]
    for process in crowd:
        process.start()
    waits = [results.get(timeout=120) for _ in crowd]
    for process in crowd:
        process.join()
    counts = [len(some) for some in waits]
    everything = sorted(wait for some in waits for wait in some)
    p99 = everything[int(len(everything) * 0.99)]
    return [
        Verdict(
            f"{PROCESSES} processes on one name: acquisitions",
            sum(counts) / SECONDS,
            50,
            unit="/s",
            at_least=True,
            detail=f"counts {sorted(counts)}",
        ),
        Verdict("fairness: fewest / most acquisitions", min(counts) / max(counts), 0.9, unit="", at_least=True),
        Verdict("wait p99 / (mean handoff * 8)", p99 / (SECONDS / len(everything) * PROCESSES), 2.0),
    ]


# ---- ten thousand leases


def renewal(server: MariaDB) -> list[Verdict]:
    cursor = connect(server).cursor()
    cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")  # only to take them sooner
    locks = holdfast.connect(f"{server.url}?durability=relaxed")
    store = locks._engine.store
    grants: list[Grant] = []
    for number in range(LEASES):
        grant = finish(store.claim(Claim(f"held:{number}", new_holder(), "bench", 300.0)))
        assert isinstance(grant, Grant)
        grants.append(grant)
    cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    finish(store.renew(grants, 30.0))
    started = time.perf_counter()
    kept = finish(store.renew(grants, 30.0))
    took = time.perf_counter() - started
    assert all(kept)
    locks.close()
    return [Verdict(f"{LEASES:,} renewals in one statement", took, 2.0, unit="s")]


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
