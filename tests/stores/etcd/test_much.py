"""More than fits into what HTTP/2 lets a server send unasked: 64 KiB a stream, unless it is told that it may."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast import aio

from .hands import by_the_hundred

pytestmark = pytest.mark.server


def test_a_list_of_names_that_is_longer_than_a_window(url: str) -> None:
    async def use() -> None:
        async with aio.connect(url) as locks:
            names = [f"{number:03}" + "x" * 500 for number in range(300)]
            leases = await by_the_hundred([locks.lock(name).acquire() for name in names])
            assert await locks.names() == names
            await by_the_hundred([lease.release() for lease in leases])

    asyncio.run(asyncio.wait_for(use(), 60))


def test_a_process_that_waits_again_and_again_never_misses_its_turn(url: str) -> None:
    """Elsewhere, and here once: what a stream of watches had told in all was more than its window, and it fell silent."""

    async def use() -> None:
        async with aio.connect(url) as locks:
            lock = locks.lock("n" * 500)  # long, so that it takes few handoffs

            async def take_turns() -> None:
                for _ in range(30):
                    async with lock:
                        pass

            started = time.monotonic()
            await asyncio.gather(*(take_turns() for _ in range(6)))
            assert time.monotonic() - started < 60

    asyncio.run(asyncio.wait_for(use(), 100))
