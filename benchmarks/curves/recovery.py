"""How long it takes until everybody has a lock again, against how many were lost when the server came back empty."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator

import holdfast
from holdfast import aio
from holdfast.testing import servers

from .found import Curve

LOST = (10, 100, 1_000, 10_000)
TTL = 6.0
PATIENCE = 60.0


def curves(stores: tuple[str, ...], tell: Callable[[str], None]) -> Iterator[Curve]:
    curve = Curve(
        "recovery",
        f"A Redis that comes back empty, ttl={TTL:g}",
        "locks lost",
        "seconds from its return until all are held again",
    )
    if "redis" in stores:
        for count in LOST:
            tell(f"recovery: {count:,}")
            curve.add("redis", count, asyncio.run(recovery(count)))
        yield curve


async def recovery(count: int) -> float:
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # thousands of losses: that is the point
    with servers.start("redis", "--appendonly", "no") as redis:
        async with aio.connect(redis.url) as locks:
            held = 0
            all_held, all_again, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def one(number: int) -> None:
                nonlocal held
                lock = locks.lock(f"worker {number}", ttl=TTL)
                while True:
                    try:
                        async with lock:
                            held += 1
                            if held == count:
                                all_held.set()
                            elif held == 2 * count:
                                all_again.set()
                            await over.wait()
                            return
                    except (holdfast.LeaseLost, holdfast.Unavailable):
                        await asyncio.sleep(0.05)  # told of it; and back to work

            crowd = asyncio.gather(*(one(number) for number in range(count)))
            await asyncio.wait_for(all_held.wait(), PATIENCE)
            back: list[float] = []

            def fail() -> None:
                redis.kill()
                redis.restart(empty=True)
                back.append(time.monotonic())

            failing = threading.Thread(target=fail)
            failing.start()
            await asyncio.wait_for(all_again.wait(), PATIENCE)
            took = time.monotonic() - back[0]
            failing.join()
            over.set()
            await crowd
            return took
