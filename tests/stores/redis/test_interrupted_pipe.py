"""A signal handler raises in the middle of what many tasks share: no answer is given to the one before, or behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from holdfast import Unavailable, aio
from holdfast.stores.redis.bounds import Bounds
from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with servers.start("redis", "--appendonly", "no") as started:
        yield started


class Interrupts:
    """Does what it stands for, and raises then, as a handler does whose signal has come meanwhile: once."""

    def __init__(self, real: Any, method: str, worth: Callable[[Any], bool] = lambda _: True) -> None:
        self._real, self._method, self._worth, self._raised = real, method, worth, False

    def __getattr__(self, name: str) -> Any:
        if name != self._method or self._raised:
            return getattr(self._real, name)

        def interrupted(*args: Any) -> Any:
            answer = getattr(self._real, name)(*args)
            if not self._worth(answer):
                return answer
            self._raised = True
            raise KeyboardInterrupt

        return interrupted

    def has_data(self) -> bool:
        return not self._raised  # so that every answer is read in the long way, until then


def _written(pipe: Any) -> None:
    pipe._transport = Interrupts(pipe._transport, "write")


def _read(pipe: Any) -> None:
    pipe._reader = Interrupts(pipe._reader, "gets", lambda answer: answer is not False)
    pipe._bounds = Bounds(pipe._reader)
    pipe._bounds.between = False


@LOOPS
@pytest.mark.parametrize("tasks", [1, 5])
@pytest.mark.parametrize("interrupt", [_written, _read])
def test_no_answer_is_given_to_another(
    redis: Redis, new_loop: NewLoop, tasks: int, interrupt: Callable[[Any], None]
) -> None:
    loop = new_loop()
    asked: list[asyncio.Task[int]] = []

    async def connect() -> aio.Locks:
        locks = aio.connect(f"{redis.url}?timeout=60")  # who waits for that waits too long
        await (await locks.lock("w").acquire()).release()
        return locks

    async def take(locks: aio.Locks, name: str) -> int:
        async with locks.lock(name, ttl=60).acquire(timeout=5) as lease:
            (inside,) = (await locks.inspect(name)).holders
            assert inside.token == lease.token
            return lease.token

    async def interrupted(locks: aio.Locks) -> None:
        asked.extend(asyncio.create_task(take(locks, f"x{number}")) for number in range(tasks))
        interrupt(locks._engine.store._wire._shared)  # type: ignore[attr-defined]
        await asyncio.gather(*asked, return_exceptions=True)

    async def after(locks: aio.Locks) -> None:
        async with asyncio.timeout(10):  # some of those go on, and nobody is left to wait for ever
            for name in ("y", "z"):  # at once: whose answers those would be that are one too many, or too few
                assert await take(locks, name) > 10**12
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(one, (int, KeyboardInterrupt, Unavailable)) for one in told), told
            for name in (f"x{number}" for number in range(tasks)):
                assert await take(locks, name) > 10**12
        await locks.close()

    locks = loop.run_until_complete(connect())
    with suppress(KeyboardInterrupt):  # uvloop takes what is raised while it reads for a broken connection
        loop.run_until_complete(interrupted(locks))
    loop.run_until_complete(after(locks))
    loop.close()
