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
