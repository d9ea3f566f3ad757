"""What a loop that was closed has left in the middle of something is ended by the first who comes in another."""

from __future__ import annotations

import asyncio

from holdfast.drivers.aio import Asyncio


def test_what_was_left_in_the_middle_puts_back_what_it_had() -> None:
    driver = Asyncio()
    back: list[str] = []

    async def has(what: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            back.append(what)

    async def first() -> None:
        driver.spawn(lambda: has("a connection"), "in the background")
        waiting = asyncio.create_task(driver.shield(lambda: has("a turn")))
        await asyncio.wait({waiting}, timeout=0.01)

    async def second() -> None:
        driver.whoami()
        assert sorted(back) == ["a connection", "a turn"]
        driver.spawn(lambda: has("another"), "in the background")
        await asyncio.sleep(0)
        driver.whoami()
        driver.bury()
        assert len(back) == 2, "this loop is not over"

    loop = asyncio.new_event_loop()
    waiter = loop.run_until_complete(first())
    loop.close()
    asyncio.run(second())
    assert waiter is None
