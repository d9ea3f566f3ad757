"""Loops of asyncio that are left by `break`: Python ends their generators in tasks of its own, beside the next statement."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.lockfree import journal, partition

pytestmark = pytest.mark.server


async def asyncpg(url: str) -> Any:
    import asyncpg

    return await asyncpg.connect(url)


async def psycopg(url: str) -> Any:
    import psycopg

    return await psycopg.AsyncConnection.connect(url, autocommit=True)


Connect = Callable[[str], Coroutine[Any, Any, Any]]


def run(url: str, connect: Connect, work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """What a task raises that nobody waits for is heard as well."""
    unheard: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        connection = await connect(url)
        try:
            await work(connection)
        finally:
            await connection.close()

    asyncio.run(main())
    assert unheard == []


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("connect", [asyncpg, psycopg])
def test_a_loop_over_messages_that_is_left_gives_back_what_it_had(
    postgresql: str, connect: Connect, closed: bool
) -> None:
    async def work(connection: Any) -> None:
        queue = partition.aio.Queue(connection, f"left {time.time_ns()}", ttl=600)
        await queue.create_table()
        for number in range(5):
            await queue.put("k", number)
        for done in range(3):
            if closed:
                async with contextlib.aclosing(queue.consume(timeout=5)) as messages:
                    async for message in messages:
                        assert message.data == 0
                        break
            else:
                async for message in queue.consume(timeout=5):
                    assert message.data == 0, done
                    break
            assert await queue.waiting() == 5  # the connection is free for the next statement
        batch = await queue.take(timeout=5)
        assert batch is not None
        assert [message.data for message in batch.messages] == [0, 1, 2, 3, 4]

    run(postgresql, connect, work)


@pytest.mark.parametrize("connect", [asyncpg, psycopg])
def test_a_subscription_that_is_left_is_in_nobodys_way(postgresql: str, connect: Connect) -> None:
    async def work(connection: Any) -> None:
        events = journal.aio.Journal(connection)
        await events.create_table()
        stream = f"left {time.time_ns()}"
        for number in range(5):
            await events.append(stream, number, expected=number)
            async for event in events.subscribe(prefix=stream, timeout=5):
                assert event.version == 1
                break
            assert await events.version(stream) == number + 1

    run(postgresql, connect, work)
