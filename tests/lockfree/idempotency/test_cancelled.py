"""Whoever is cancelled before the work was done has not taken the key: nobody waits for a run that never was."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.databases.wire import settle
from holdfast.lockfree.idempotency import aio, core

from ...fenced.sql_drivers import DRIVERS
from ...fenced.sql_under_test import OneLoop
from ...fenced.test_mutants_of_refusals import spoil
from ...fenced.test_sql_interrupted import cancelled_at

KINDS = [
    pytest.param("aiosqlite", False),
    pytest.param("psycopg async", False, marks=pytest.mark.server),
    pytest.param("asyncpg", False, marks=pytest.mark.server),
    pytest.param("asyncpg", True, marks=pytest.mark.server),
    pytest.param("aiomysql", True, marks=pytest.mark.server),  # closes a connection that was cancelled in mid-answer
    pytest.param("redis", False, marks=pytest.mark.server),
]


@contextlib.asynccontextmanager
async def opened(kind: str, url: str) -> AsyncIterator[Any]:
    if kind == "redis":
        import redis.asyncio

        async with redis.asyncio.Redis.from_url(url) as client:
            yield client
        return
    connection = await settle(DRIVERS[kind].connect(url))
    try:
        yield connection
    finally:
        with contextlib.suppress(Exception):  # cut off by now
            await settle(DRIVERS[kind].close(connection))


async def cancelled_everywhere(store: Any) -> int:
    keys = aio.Keys(store, create=True, timeout=0.0)
    await keys.create_table()
    for point in range(100):
        key = f"cancelled {time.time_ns()}"

        async def once(name: str = key) -> None:
            async with keys.once(name) as run:
                run.result = run.first

        try:
            if not await cancelled_at(point, once()):
                return point
        except asyncio.CancelledError:
            pass
        async with asyncio.timeout(20):
            await once()  # and not InFlight, for the ttl of a run that nobody is at
    raise AssertionError("it never ends")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "lent"), KINDS)
def test_a_key_is_free_whenever_its_first_run_was_cancelled(
    kind: str, lent: bool, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("redis_url" if kind == "redis" else DRIVERS[kind].server)

    async def work() -> int:
        if lent:
            return await cancelled_everywhere(lambda: opened(kind, url))
        async with opened(kind, url) as store:
            return await cancelled_everywhere(store)

    loop = OneLoop()
    try:
        assert loop(work()) > 0  # an answer that is there already suspends nobody
    finally:
        loop.close()


MUTANTS = {
    "a claim whose answer never came": ("_decided", "self._runner = runner", "pass", "asyncpg", False),
    "a claim that is not withdrawn": ("_withdraw", "if self._runner:", "if False:", "aiosqlite", False),
    "a claim and its connection": (
        "_release_anew",
        "if self._owes_release and self._lent:",
        "if False:",
        "aiomysql",
        True,
    ),
}


@pytest.mark.server
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_in_withdrawing_is_noticed(
    mutant: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, what, instead, kind, lent = MUTANTS[mutant]
    spoil(monkeypatch, core, core.Session, name, what, instead)
    with pytest.raises(Exception, match="somebody is at work"):
        test_a_key_is_free_whenever_its_first_run_was_cancelled(kind, lent, request)
