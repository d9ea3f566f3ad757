"""The same scenario, of calls to the store itself, run by threads and by asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.claim import Claim, new_holder
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.mysql import open_store

WORLDS = ["threads", "asyncio"]
MODES = ["lease", "session"]


def run(world: str, url: str, scenario: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    if world == "threads":
        store = open_store(url, Threads())
        try:
            finish(scenario(store))
        finally:
            finish(store.close())
        return

    async def main() -> None:
        store = open_store(url, Asyncio())
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


async def beside(
    world: str, work: Callable[[], Coroutine[Any, Any, Any]]
) -> Callable[[float], Coroutine[Any, Any, Any]]:
    """Begin `work`; what is returned waits for its result, for so many seconds."""
    if world == "asyncio":
        task = asyncio.create_task(work())

        async def result(within: float) -> Any:
            return await asyncio.wait_for(asyncio.shield(task), within)

        return result
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(finish(work())), daemon=True)
    thread.start()

    async def joined(within: float) -> Any:
        thread.join(within)
        assert got, "not over in time"
        return got[0]

    return joined


def claim(name: str = "x", ttl: float = 30.0, **more: Any) -> Claim:
    return Claim(name, new_holder(), "somebody", ttl, **more)
