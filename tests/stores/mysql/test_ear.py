"""How a process hears bells, in one event loop after the other."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.drivers.aio import Asyncio
from holdfast.stores.mysql.ear import Ear


class Insistent:
    """A connection on which one is rung who does not come."""

    server = "8.4.0"

    def __init__(self, name: str) -> None:
        self.name = name

    async def ask(self, statement: str, within: float) -> Any:
        return [[(b"x",)]]

    def close(self) -> None:
        pass


def test_what_listened_in_a_loop_that_is_over_listens_no_more() -> None:
    """Its task was cancelled between two listenings, and could not say so."""
    dialled: list[str] = []

    async def dial(within: float) -> Any:
        dialled.append(f"connection {len(dialled)}")
        return Insistent(dialled[-1])

    ear = Ear(dial, Asyncio(), 5.0)

    async def listen() -> str:
        ear.expect("x")
        name = await ear.open(1.0)
        for _ in range(9):  # by then it pauses
            await asyncio.sleep(0)
        assert await ear.open(1.0) == name
        return name

    assert [asyncio.run(listen()) for _ in range(3)] == dialled
    assert len(dialled) == 3


def test_what_listens_in_a_loop_that_stands_still_is_replaced_and_leaves_the_other_alone() -> None:
    """Gone on, it would read what belongs to the other loop."""
    dialled: list[str] = []
    asked: list[tuple[str, object]] = []

    class Known(Insistent):
        async def ask(self, statement: str, within: float) -> Any:
            asked.append((self.name, asyncio.get_running_loop()))
            await asyncio.sleep(0)
            return [[(b"x",)]]

    async def dial(within: float) -> Any:
        dialled.append(f"connection {len(dialled)}")
        return Known(dialled[-1])

    ear = Ear(dial, Asyncio(), 5.0)

    async def listen() -> str:
        ear.expect("x")
        name = await ear.open(1.0)
        asked.clear()
        while not any(one == name for one, _ in asked):  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.001)
        return name

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert first.run_until_complete(asyncio.wait_for(listen(), 10)) == "connection 0"
    assert second.run_until_complete(asyncio.wait_for(listen(), 10)) == "connection 1"
    asked.clear()
    first.run_until_complete(asyncio.sleep(0.1))
    assert ("connection 1", first) not in asked
    ear.close()
    for loop in (first, second):
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()


def test_one_that_connects_anew_in_its_own_loop_goes_on() -> None:
    dialled: list[str] = []
    asked: list[str] = []

    class Known(Insistent):
        async def ask(self, statement: str, within: float) -> Any:
            asked.append(self.name)
            await asyncio.sleep(0)
            return [[(b"x",)]]

    async def dial(within: float) -> Any:
        dialled.append(f"connection {len(dialled)}")
        return Known(dialled[-1])

    ear = Ear(dial, Asyncio(), 5.0)

    async def main() -> None:
        ear.expect("x")
        await ear.open(1.0)
        while "connection 0" not in asked:  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.001)
        connection = ear._connection
        assert connection is not None
        ear._lose(connection)
        await ear.open(1.0)
        while "connection 1" not in asked:  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.001)
        ear.close()
        await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(main(), 10))
