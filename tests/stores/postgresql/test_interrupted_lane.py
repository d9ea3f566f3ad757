"""A signal handler raises in the middle of what many tasks share, and the loop goes on: nobody waits there for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from holdfast import Unavailable, aio
from holdfast.testing.servers.postgresql import PostgreSQL

pytestmark = pytest.mark.server
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


def after(lane: Any, method: str, worth: Callable[[Any], bool]) -> None:
    """It does what it does, and raises then, as a handler does whose signal has come meanwhile: once."""
    real = getattr(lane, method)

    def interrupted(*args: Any, **named: Any) -> Any:
        answer = real(*args, **named)
        if worth(answer):
            delattr(lane, method)
            raise KeyboardInterrupt
        return answer

    setattr(lane, method, interrupted)


def _sent(lane: Any) -> None:
    after(lane, "send", lambda _: True)


def _read(lane: Any) -> None:
    after(lane, "rows", lambda rows: rows is not None)


def _told(lane: Any) -> None:
    """In the middle of the answers to many."""
    real, told = lane._next, 0

    def ask_next() -> None:
        real()
        for at, one in enumerate(lane._flight):
            lane._flight[at] = one._replace(answer=Told(one.answer))

    class Told:
        def __init__(self, answer: asyncio.Future[Any]) -> None:
            self._answer = answer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._answer, name)

        def set_result(self, rows: Any) -> None:
            nonlocal told
            told += 1
            self._answer.set_result(rows)
            if told == 2:
                raise KeyboardInterrupt

    lane._next = ask_next


@LOOPS
@pytest.mark.parametrize("interrupt", [_sent, _read, _told])
def test_nobody_waits_for_an_answer_that_was_interrupted(
    postgresql: PostgreSQL, new_loop: NewLoop, interrupt: Callable[[Any], None]
) -> None:
    loop = new_loop()
    asked: list[asyncio.Task[int]] = []

    async def connect() -> aio.Locks:
        locks = aio.connect(postgresql.url)
        await (await locks.lock("w").acquire()).release()
        return locks

    async def take(locks: aio.Locks, name: str) -> int:
        async with locks.lock(name, ttl=60).acquire(timeout=5) as lease:
            (inside,) = (await locks.inspect(name)).holders
            assert inside.token == lease.token
            return lease.token

    async def interrupted(locks: aio.Locks) -> None:
        asked.extend(asyncio.create_task(take(locks, f"x{number}")) for number in range(5))
        interrupt(locks._engine.store._wire._shared)  # type: ignore[attr-defined]
        await asyncio.gather(*asked, return_exceptions=True)

    async def go_on(locks: aio.Locks) -> None:
        async with asyncio.timeout(10):
            for name in ("y", "z"):
                assert await take(locks, name)
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(one, (int, KeyboardInterrupt, Unavailable)) for one in told), told
            for number in range(5):
                assert await take(locks, f"x{number}")
        await locks.close()

    locks = loop.run_until_complete(connect())
    with suppress(KeyboardInterrupt):
        loop.run_until_complete(interrupted(locks))
    loop.run_until_complete(go_on(locks))
    loop.close()
