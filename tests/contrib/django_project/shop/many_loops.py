"""What WSGI does with asynchronous views: in every thread, one event loop after the other, and all at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from asgiref.sync import async_to_sync

from holdfast.contrib.django import alocks, lock

inside = threading.Lock()


@lock("counter", timeout=8)  # whoever does not hear the bell looks again after ten seconds
async def view() -> None:
    assert inside.acquire(blocking=False)
    inside.release()
    async with alocks.lock("other", timeout=8):
        pass


def turns() -> None:
    for _ in range(10):
        async_to_sync(view)()


with ThreadPoolExecutor(4) as threads:
    for each in [threads.submit(turns) for _ in range(4)]:
        each.result(100)
(used,) = alocks._of_loops.values()  # type: ignore[attr-defined]
assert len(used) <= 4, "a loop goes on with what one that is over was connected to"


async def close() -> None:
    await alocks.close()


async_to_sync(close)()
for _ in range(5):  # whoever comes next is not given what was closed
    async_to_sync(view)()
print("all 40 came and went")
