"""What a loop that was closed has left in the middle of something is ended by the first who comes in another."""

from __future__ import annotations

import asyncio

from holdfast.drivers.aio import Asyncio
from holdfast.drivers.loops import end_what_loops_have_left, ends_with_this_loop


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


def test_an_attempt_that_is_over_is_forgotten() -> None:
    """Kept in a plain set, which another thread may copy at any moment; a WeakSet would raise there."""
    driver = Asyncio()

    async def answer() -> int:
        return 7

    async def main() -> None:
        assert await driver.shield(answer) == 7

    asyncio.run(main())
    assert not driver._attempts


class Connection:
    def __init__(self, ended: list[str], name: str) -> None:
        self.ended, self.name, self.troubles = ended, name, 1 if name == "a" else 0

    def end(self) -> None:
        if self.troubles:
            self.troubles -= 1
            raise OSError("Too many open files")
        self.ended.append(self.name)


def test_what_cannot_be_ended_now_is_ended_by_the_next() -> None:
    ended: list[str] = []
    connections = [Connection(ended, name) for name in "abc"]

    async def connect() -> None:
        for one in connections:
            ends_with_this_loop(one, Connection.end)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(connect())
    end_what_loops_have_left()
    assert not ended, "its loop is only stopped"
    loop.close()
    end_what_loops_have_left()
    assert sorted(ended) == ["b", "c"]
    end_what_loops_have_left()
    end_what_loops_have_left()
    assert sorted(ended) == ["a", "b", "c"]
