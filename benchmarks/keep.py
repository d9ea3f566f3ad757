"""`keep=` against the floor of two round trips, against ourselves, and against redis-py; and `confirm=False`."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import statistics
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import holdfast
from holdfast import aio
from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis

from . import etcd, unconfirmed
from .measure import Verdict, interleaved, report
from .redis import PROCESSES, TASKS, _counted, crowd, floor

KEEP = 0.05
SECONDS = 10.0
STRANGERS = 300


def main() -> bool:
    with servers.start("redis", "--appendonly", "no") as redis:
        verdicts = [
            *alone(redis),
            *unconfirmed.on_redis(redis),
            *asyncio.run(together(redis)),
            *apart(redis),
            strangers(redis),
        ]
    with servers.cluster("etcd", 3) as cluster, holdfast.connect(cluster.members[0].url) as locks:
        kept = locks.lock("kept", keep=60)
        taken = _in_turns({"floor": etcd.floor(cluster), "kept": lambda: kept.acquire().release()}, batch=5)
        verdicts.append(
            Verdict("etcd: two raw transactions against a kept name", taken("floor", "kept"), 200, at_least=True)
        )
    verdicts += unconfirmed.on_disk()
    return report("Past the floor", verdicts)


def _in_turns(tasks: dict[str, Callable[[], object]], batch: int = 40) -> Callable[[str, str], float]:
    for task in tasks.values():
        task()
    rounds = [interleaved(tasks, rounds=1, batch=batch) for _ in range(40)]

    def times(one: str, other: str) -> float:
        return statistics.median(taken[one] / taken.get(other, 1e-6) for taken in rounds)

    return times


def alone(redis: Redis) -> list[Verdict]:
    """One thread, nobody else."""
    with holdfast.connect(redis.url) as locks:
        kept = locks.lock("kept", keep=60)
        times = _in_turns({"floor": floor(redis), "kept": lambda: kept.acquire().release()})
    typical = f"floor {times('floor', 'µs'):.0f} µs"
    return [
        Verdict("a kept name, taken again and left", times("kept", "µs"), 7, "µs", detail=typical),
        Verdict("two raw round trips to Redis against a kept name", times("floor", "kept"), 10, at_least=True),
    ]


async def together(redis: Redis) -> list[Verdict]:
    """Tasks of one process, one name."""
    client: Any = importlib.import_module("redis.asyncio")
    peer = client.Redis(port=redis.port)
    async with aio.connect(redis.url) as locks:

        async def ours(keep: float, cycles: int) -> None:
            lock = locks.lock(f"together {keep}", keep=keep)
            for _ in range(cycles):
                await (await lock.acquire()).release()

        async def theirs(cycles: int) -> None:
            lock = peer.lock("theirs", timeout=30, sleep=0.001)
            for _ in range(cycles):
                await lock.acquire()
                await lock.release()

        async def rate(work: Callable[[int], Coroutine[Any, Any, None]], cycles: int) -> float:
            started = time.perf_counter()
            await asyncio.gather(*(work(cycles) for _ in range(TASKS)))
            return TASKS * cycles / (time.perf_counter() - started)

        against_peer, against_ourselves, best = [], [], 0.0
        for _ in range(5):
            kept = await rate(partial(ours, 0.2), 100)
            best = max(best, kept)
            against_ourselves.append(kept / await rate(partial(ours, 0.0), 5))
            against_peer.append(kept / await rate(theirs, 2))
    await peer.aclose()
    what = f"asyncio, {TASKS} tasks on one name, kept, against"
    return [
        Verdict(f"{what} redis-py's lock", statistics.median(against_peer), 20, at_least=True),
        Verdict(f"{what} not kept", statistics.median(against_ourselves), 10, at_least=True, detail=f"{best:.0f}/s"),
    ]


def worker(keep: float, port: int, seconds: float, results: Any, ready: Any) -> None:
    with holdfast.connect(f"redis://127.0.0.1:{port}") as locks:
        lock = locks.lock(f"apart {keep}", keep=keep)

        def cycle() -> float:
            lock.acquire().release()
            return 0.0

        results.put(len(_counted(cycle, seconds, ready)))


def apart(redis: Redis) -> list[Verdict]:
    """Processes, one name."""
    seconds = SECONDS / 2
    plain: Any = crowd(partial(worker, 0.0), redis.port, seconds)
    kept: Any = crowd(partial(worker, KEEP), redis.port, SECONDS)
    what = f"{PROCESSES} processes on one name, keep={KEEP:g}"
    rates = sum(kept) / SECONDS, sum(plain) / seconds
    return [
        Verdict(f"{what}, against not kept", rates[0] / rates[1], 5, at_least=True, detail=f"{rates[0]:.0f}/s"),
        Verdict(f"{what}, fairness over {SECONDS:g} s", min(kept) / max(kept), 0.8, at_least=True),
    ]


def neighbour(port: int, keep: float, pipe: Any) -> None:
    """Keeps it, idle; or, with nothing kept, takes and leaves it all the time."""
    with holdfast.connect(f"redis://127.0.0.1:{port}") as locks:
        lock = locks.lock("stranger", keep=keep)
        pipe.send("ready")
        while pipe.recv():
            while True:
                lock.acquire().release()
                if keep or pipe.poll():
                    break
            pipe.send("used")


def strangers(redis: Redis) -> Verdict:
    """How long somebody waits who comes from outside: behind an idle keeper, and behind one that releases and asks again."""
    context = multiprocessing.get_context("spawn")
    waits: dict[float, list[float]] = {60.0: [], 0.0: []}
    with holdfast.connect(redis.url) as locks:
        lock = locks.lock("stranger")
        for keep, taken in waits.items():
            ours, theirs = context.Pipe()
            process = context.Process(target=neighbour, args=(redis.port, keep, theirs))
            process.start()
            ours.recv()
            if not keep:
                ours.send(True)
            for _ in range(STRANGERS):
                if keep:
                    ours.send(True)
                    ours.recv()
                time.sleep(0.005)
                before = time.perf_counter()
                lease = lock.acquire()
                taken.append(time.perf_counter() - before)
                lease.release()
            ours.send(False)
            if not keep:
                ours.recv()
            process.join(30)
    late = {keep: sorted(taken)[int(0.99 * len(taken))] * 1e3 for keep, taken in waits.items()}
    return Verdict(
        "a stranger's wait behind an idle keeper, p99, against that behind somebody who takes and leaves it",
        late[60.0] / late[0.0],
        1.5,
        detail=f"{late[60.0]:.2f} ms against {late[0.0]:.2f} ms",
    )
