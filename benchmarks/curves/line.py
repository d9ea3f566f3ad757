"""How long a handoff takes against how many stand in line: the time from one who enters to the next."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import holdfast
from holdfast import aio

from ..where import started
from .found import Curve

LENGTHS = (1, 4, 16, 64, 256, 1024, 4096)
SECONDS, HANDOFFS = 3.0, 300  # of each length: whatever comes first
JOINING = 40.0  # seconds that a line may take to form; then it is as long as this store makes them
STORES = ("sqlite", "redis", "etcd", "zookeeper", "consul", "postgresql", "mysql")


def curves(stores: tuple[str, ...], tell: Callable[[str], None]) -> Iterator[Curve]:
    middle = Curve("line-p50", "A handoff, by the length of the line: the median", "in line", "milliseconds")
    late = Curve("line-p99", "A handoff, by the length of the line: the 99th of a hundred", "in line", "milliseconds")
    for store in (one for one in stores if one in STORES):
        with started(store) as (url, _):
            for length in LENGTHS:
                tell(f"line: {store}, {length:,}")
                gaps = handoffs(url, length)
                if not gaps:
                    tell(f"line: {store}: no line of {length:,} within {JOINING:g} s")
                    break
                middle.add(store, length, gaps[len(gaps) // 2] * 1e3)
                late.add(store, length, gaps[int(len(gaps) * 0.99)] * 1e3)
    yield from (middle, late)


def handoffs(url: str, length: int) -> list[float]:
    """Two processes have the line between them, so that handoffs go from one to the other. Whoever leaves joins again."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(2)]
    name, half = f"line of {length}", (length + 1) // 2
    processes = [
        context.Process(target=worker, args=(url, name, tasks, theirs), daemon=True)
        for (_, theirs), tasks in zip(pairs, (half, length + 1 - half), strict=True)
    ]
    for process in processes:
        process.start()
    try:
        if not _formed(url, name, length):
            return []
        for ours, _ in pairs:
            ours.send("go")
        entered = sorted(moment for ours, _ in pairs for moment in ours.recv())
    finally:
        for process in processes:
            process.kill()  # the line is left to its ttl: the next has another name
            process.join()
    # The first ones still meet those who had not heard that it begins.
    settled = entered[len(entered) // 10 :]
    return sorted(after - before for before, after in pairwise(settled))


def _formed(url: str, name: str, length: int) -> bool:
    """Does everybody stand there in time? One holds it until it begins."""
    deadline = time.monotonic() + JOINING
    with holdfast.connect(url) as locks:
        while len(locks.inspect(name).waiters) < length:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
    return True


def worker(url: str, name: str, tasks: int, orders: Any) -> None:
    asyncio.run(_worker(url, name, tasks, orders))


async def _worker(url: str, name: str, tasks: int, orders: Any) -> None:
    entered: list[float] = []
    begun, over = asyncio.Event(), asyncio.Event()
    async with aio.connect(url) as locks:

        async def one() -> None:
            lock = locks.lock(name, ttl=60)
            while True:
                async with lock:
                    await begun.wait()  # whoever is first holds it until all others stand behind
                    entered.append(time.monotonic())
                    if len(entered) >= HANDOFFS:
                        over.set()

        crowd = asyncio.gather(*(one() for _ in range(tasks)))
        await asyncio.to_thread(orders.recv)
        begun.set()
        await asyncio.wait({asyncio.ensure_future(over.wait())}, timeout=SECONDS)
        orders.send(list(entered))
        await crowd  # until we are killed
