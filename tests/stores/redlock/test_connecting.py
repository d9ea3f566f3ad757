"""Tasks share the connection to a node, also while somebody opens it: what one had no time for is not the others' trouble."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from holdfast.drivers.aio import Asyncio
from holdfast.errors import Unavailable
from holdfast.stores.redis.url import Target, parse
from holdfast.stores.redis.wiring import Told
from holdfast.stores.redlock.fan import Question
from holdfast.stores.redlock.shared import SharedFan

TARGET = parse("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
LONG = 30.0


class Answers:
    """A connection that says yes."""

    def is_good(self) -> bool:
        return True

    def is_alive(self) -> bool:
        return True

    async def ask(self, request: bytes) -> int:
        return 1

    def put(self, request: bytes, reply: Told) -> None:
        reply.set_result(1)

    def owed(self) -> list[Told]:
        return []

    def tell(self, request: bytes) -> None: ...
    def expect_long(self, count: int) -> None: ...
    def in_its_loop(self, action: Callable[[], None]) -> None: ...
    def fail(self, error: Unavailable) -> None: ...
    def disown(self) -> None: ...


class OnlyTheSecond:
    """A server that lets the first who comes wait in vain."""

    reached = True

    def __init__(self, target: Target) -> None:
        self.dialled = 0

    async def pipe(self, within: float) -> Answers:
        self.dialled += 1
        if self.dialled == 1:
            await asyncio.sleep(within)
            raise Unavailable("too late")
        return Answers()

    def forked(self) -> None: ...
    async def close(self) -> None: ...


class Refuses(OnlyTheSecond):
    async def pipe(self, within: float) -> Answers:
        self.dialled += 1
        await asyncio.sleep(0.02)
        raise Unavailable("refused")


def question() -> Question:
    return Question(b"", lambda reply: reply == 1, lambda answers: None not in answers)


def test_who_has_more_time_to_connect_than_whoever_began_does_not_fail_with_it() -> None:
    async def scenario() -> tuple[list[object], list[object]]:
        fan = SharedFan(TARGET, Asyncio(), OnlyTheSecond)
        brief = asyncio.ensure_future(fan.ask(question(), 0.05, 0.05))
        await asyncio.sleep(0)
        patient = await asyncio.wait_for(fan.ask(question(), LONG, LONG), LONG)
        return await brief, patient

    assert asyncio.run(scenario()) == ([None] * 3, [1] * 3)


def test_a_node_that_refuses_is_dialled_once_for_all_who_ask_at_once() -> None:
    async def scenario() -> tuple[list[list[object]], list[int]]:
        fan = SharedFan(TARGET, Asyncio(), Refuses)
        asked = await asyncio.gather(*(fan.ask(question(), LONG, LONG) for _ in range(50)))
        return asked, [node.wire.dialled for node in fan._nodes]  # type: ignore[attr-defined]

    assert asyncio.run(scenario()) == ([[None] * 3] * 50, [1] * 3)


def test_who_is_asked_while_nodes_are_dialled_may_yet_be_told() -> None:
    """What is asked then follows when they are there, also of somebody who has gone: nobody may take it for never sent."""

    class Dials(OnlyTheSecond):
        reached = False

    async def scenario() -> tuple[bool, bool]:
        fan = SharedFan(TARGET, Asyncio(), Dials)
        before = fan.reached
        asked = asyncio.ensure_future(fan.ask(question(), LONG, LONG))
        await asyncio.sleep(0)
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked
        return before, fan.reached

    assert asyncio.run(scenario()) == (False, True)
