"""PostgreSQL, eight processes in a tight loop: a handoff against the sum of its parts. Half a minute, for a quiet machine.

`python -m benchmarks parts`. A part of `postgresql`, with what that does not show: how much of the time is processor time, and
how little there could be. The bar is a NOTIFY that is heard and a claim that is on the disk, both alone on the machine. Nobody is
alone here: with every handoff whoever has left comes again and stands in line, which is a transaction more; and all of it, eight
clients and their backends, has so many processors between them.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast.stores.postgresql import schema
from holdfast.testing import servers
from holdfast.testing.servers.postgresql import PostgreSQL

from .measure import Verdict, report
from .postgresql import PROCESSES, SECONDS, TIGHT, Work, against_parts, crowd, holdfast_worker

ROUNDS = 5


def main() -> bool:
    with servers.start("postgresql") as server:
        server.query(schema(server.url))
        crowd(holdfast_worker, server.url, TIGHT)  # warm
        verdicts = [against_parts(server, [one]) for one in rounds(server)]
        best = min(verdicts, key=lambda one: one.measured)
        middle = statistics.median(one.measured for one in verdicts)
        return report("PostgreSQL: a handoff and its parts", [best._replace(measured=middle), processors(server)])


def rounds(server: PostgreSQL) -> list[list[int]]:
    return [crowd(holdfast_worker, server.url, TIGHT) for _ in range(ROUNDS)]


def processors(server: PostgreSQL) -> Verdict:
    """If the processors do nothing but this, a handoff takes their time, shared among them: no quicker ones can be had."""
    before = of_server(server.pid)
    counts: Any = crowd(worker, server.url, TIGHT)
    handoffs, clients = sum(count for count, _ in counts), sum(taken for _, taken in counts)
    servers_time = of_server(server.pid) - before
    cores = len(os.sched_getaffinity(0))
    handoff, bound = SECONDS / handoffs, (clients + servers_time) / handoffs / cores
    told = (
        f"clients {clients / handoffs * 1e6:.0f} µs, server {servers_time / handoffs * 1e6:.0f} µs "
        f"of processor time, {cores} processors, handoff {handoff * 1e6:.0f} µs"
    )
    what = f"{PROCESSES} processes, one name, a tight loop: a handoff against the processor time that it takes, shared"
    return Verdict(what, handoff / bound, 1.3, detail=told)


def worker(url: str, work: Work, seconds: float, results: Any, ready: Any) -> None:
    locks = holdfast.connect(url)
    lock = locks.lock("contended")
    lock.acquire().release()
    ready.wait()
    began, until, count = time.process_time(), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        lock.acquire().release()
        count += 1
    results.put((count, time.process_time() - began))
    locks.close()


def of_server(postmaster: int) -> float:
    """Seconds of processor time, of all its processes, also those that have ended."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(stat.parent.name) == postmaster:
            total += sum(int(field) for field in fields[11:15])
        elif int(fields[1]) == postmaster:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")
