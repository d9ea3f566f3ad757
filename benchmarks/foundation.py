"""The core, the memory store, the SQLite store, and starting up."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import holdfast
from holdfast.claim import Grant
from holdfast.errors import Unavailable

from .measure import Verdict, commands, import_time, interleaved, ratio, report


def importing() -> Verdict:
    ours, floor = [], []
    for _ in range(5):  # in turns
        ours.append(import_time("holdfast", rounds=7))
        floor.append(import_time("sqlite3, threading, dataclasses", rounds=7))
    measured = sorted(one / other for one, other in zip(ours, floor, strict=True))[2]
    return Verdict(
        "import holdfast / import sqlite3, threading, dataclasses", measured, 2.5, detail=f"{ours[0] * 1e3:.1f} ms"
    )


def memory() -> Verdict:
    lock = holdfast.connect("memory://benchmark").lock("x")
    bare = threading.Lock()

    def ours() -> None:
        for _ in range(10):
            lock.acquire().release()

    def floor() -> None:
        for _ in range(10):
            bare.acquire()
            bare.release()

    tasks = {"ours": ours, "floor": floor}
    taken = interleaved(tasks, rounds=20)["ours"] / 10
    return Verdict(
        "memory: acquire + release / threading.Lock", ratio(tasks, "ours", "floor"), 150, detail=f"{taken * 1e6:.1f} µs"
    )


def sqlite(folder: Path) -> list[Verdict]:
    """Two minimal write transactions, both ways to write one: with BEGIN and COMMIT, and as a lone statement."""
    path = folder / "locks.db"
    lock = holdfast.connect(f"sqlite://{path}").lock("x")
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("PRAGMA synchronous = NORMAL")
    plain.execute("CREATE TABLE floor (id INTEGER PRIMARY KEY, x INTEGER)")
    plain.execute("INSERT INTO floor VALUES (1, 0)")
    update = "UPDATE floor SET x = x + 1 WHERE id = 1"

    def ours() -> None:
        lock.acquire().release()

    def transactions() -> None:
        for _ in range(2):
            plain.execute("BEGIN IMMEDIATE")
            plain.execute(update)
            plain.execute("COMMIT")

    def statements() -> None:
        plain.execute(update)
        plain.execute(update)

    tasks = {"ours": ours, "transactions": transactions, "statements": statements}
    taken = interleaved(tasks, rounds=20)
    detail = f"{taken['ours'] * 1e6:.0f} µs; two lone statements: {ratio(tasks, 'ours', 'statements'):.2f} x"
    measured = ratio(tasks, "ours", "transactions")
    return [Verdict("sqlite: acquire + release / two write transactions", measured, 1.5, detail=detail)]


def holding(url: str, leases: int = 10_000) -> list[Verdict]:
    """What it costs to keep ten thousand leases of 30 s alive: a round of renewals every 10 s, in one thread."""
    ttl = 6.0  # a fifth of the default, so that the benchmark sees several rounds
    locks = holdfast.connect(url)
    conversations: list[int] = []
    renew = locks._engine.store.renew

    async def counted(grants: Sequence[Grant], within: float) -> Sequence[Grant | Unavailable | None]:
        conversations.append(len(grants))
        return await renew(grants, within)

    locks._engine.store.renew = counted  # type: ignore[method-assign]  # counting is all it does
    held = [locks.lock(f"lease:{n}", ttl=ttl).acquire() for n in range(leases)]
    conversations.clear()
    before, start = time.process_time(), time.monotonic()
    while sum(conversations) < 3 * leases and time.monotonic() < start + 60:
        time.sleep(0.1)
    cpu = time.process_time() - before
    rounds = sum(conversations) / leases
    share = 100 * cpu / rounds / (30.0 / 3)
    assert all(lease.held for lease in held)
    locks.close()
    system = url.partition(":")[0]
    detail = f"{cpu / rounds * 1e3:.0f} ms of CPU a round; {threading.active_count() - 1} threads besides this one"
    return [
        Verdict(f"{system}: 10,000 leases held, share of a core", share, 5, "%", detail=detail),
        Verdict(f"{system}: calls of renew() a round of 10,000", len(conversations) / rounds, 20, "", detail=""),
    ]


def starting(folder: Path) -> Verdict:
    os.environ["HOLDFAST_URL"] = f"sqlite://{folder}/run.db"
    holdfast_command = str(Path(sys.executable).with_name("holdfast"))
    taken = commands(
        {
            "ours": [holdfast_command, "run", "x", "--", "true"],
            "floor": [sys.executable, "-c", "import sqlite3"],
        }
    )
    detail = f"{taken['ours'] * 1e3:.0f} ms"
    return Verdict(
        'holdfast run x -- true / python -c "import sqlite3"', taken["ours"] / taken["floor"], 3, detail=detail
    )


def main() -> bool:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        verdicts = [importing(), memory(), *sqlite(folder), starting(folder)]
        verdicts += holding("memory://held") + holding(f"sqlite://{folder}/held.db")
    return report("Foundation", verdicts)


if __name__ == "__main__":
    sys.exit(not main())
