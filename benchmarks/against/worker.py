"""Takes and leaves locks with whatever holdfast is on the path, as often as it is told, and says how long that took.

Started as a script: it must not import the benchmarks, which belong to one of the two checkouts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import holdfast
from holdfast import aio

TASKS = 64


def in_a_thread(locks: holdfast.Locks, cycles: int) -> None:
    lock = locks.lock("one thread")
    for _ in range(cycles):
        with lock:
            pass


async def in_tasks(locks: aio.Locks, tasks: int, cycles: int) -> None:
    async def one(number: int) -> None:
        lock = locks.lock(f"task {number}")
        for _ in range(cycles):
            async with lock:
                pass

    await asyncio.gather(*(one(number) for number in range(tasks)))


def main(url: str) -> None:
    loop = asyncio.new_event_loop()
    with holdfast.connect(url) as locks:
        tasks = loop.run_until_complete(_connected(url))
        for line in sys.stdin:
            what, cycles = json.loads(line)
            started, worked = time.perf_counter(), time.process_time()
            if what == "one thread":
                in_a_thread(locks, cycles)
            elif what == "one task":
                loop.run_until_complete(in_tasks(tasks, 1, cycles))
            else:
                each = max(1, cycles // TASKS)
                cycles = each * TASKS
                loop.run_until_complete(in_tasks(tasks, TASKS, each))
            passed = time.perf_counter() - started, time.process_time() - worked
            print(json.dumps([part / cycles for part in passed]), flush=True)
        loop.run_until_complete(tasks.close())
    loop.close()


async def _connected(url: str) -> aio.Locks:
    return aio.connect(url)


main(sys.argv[1])
