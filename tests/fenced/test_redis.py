"""Guarded Redis commands on a real server pass the suite."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
import redis.asyncio

import redis
from holdfast import fenced
from holdfast.errors import Misuse, StaleToken
from holdfast.fenced import aio
from holdfast.fenced.mark import mark_of
from holdfast.fenced.redis import PREFIX
from holdfast.testing import guards

from .sql_under_test import OneLoop

pytestmark = pytest.mark.server


def key_of(resource: object) -> str:
    return f"value:{sha256(repr(resource).encode()).hexdigest()}"


class RedisUnderTest:
    most = fenced.MAX_MARK
    transactional = False

    def __init__(self, url: str) -> None:
        self.client: redis.Redis = redis.Redis.from_url(url)

    def read(self, resource: str, token: int) -> int | None:
        value = fenced.Redis(self.client, (resource, token)).get(key_of(resource))
        return None if value is None else int(value)

    def write(self, resource: str, token: int, value: int) -> None:
        fenced.Redis(self.client, (resource, token)).set(key_of(resource), value)

    def seen(self, resource: str) -> int:
        mark: Any = self.client.get(PREFIX + resource)
        return int(mark.split()[0]) if mark else 0

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.client.close()


class AsyncRedisUnderTest(RedisUnderTest):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.loop = OneLoop()
        self.async_client = redis.asyncio.Redis.from_url(url)

    def read(self, resource: str, token: int) -> int | None:
        mark = mark_of((resource, token))
        value = self.loop(aio.Redis(self.async_client, mark).get(key_of(resource)))
        return None if value is None else int(value)

    def write(self, resource: str, token: int, value: int) -> None:
        mark = mark_of((resource, token))
        self.loop(aio.Redis(self.async_client, mark).set(key_of(resource), value))

    def close(self) -> None:
        super().close()
        self.loop(self.async_client.aclose())
        self.loop.close()


@pytest.fixture(scope="module", params=[RedisUnderTest, AsyncRedisUnderTest], ids=["threads", "asyncio"])
def guard(request: pytest.FixtureRequest, redis_url: str) -> Iterator[RedisUnderTest]:
    under_test: RedisUnderTest = request.param(redis_url)
    yield under_test
    under_test.close()


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_guarded_redis(check: guards.Check, guard: RedisUnderTest) -> None:
    check(guard)


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def client(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Any]:
    connected = redis.Redis.from_url(redis_url, decode_responses=request.param)
    connected.script_flush()
    yield connected
    connected.close()


def test_every_command_works_and_is_guarded(client: Any) -> None:
    name = uuid4().hex
    new, old = fenced.Redis(client, (name, 10)), fenced.Redis(client, (name, 9))
    key, table = f"{name}:key", f"{name}:hash"
    assert new.set(key, 5)
    assert not new.set(key, 6, nx=True)
    assert new.set(key, 7, xx=True, ex=100)
    assert 0 < client.pttl(key) <= 100_000
    assert int(new.get(key)) == 7
    assert new.incr(key) == 8
    assert new.incr(key, -3) == 5
    assert new.hset(table, {"a": 1, "b": "two"}) == 2
    assert new.hgetall(table) == client.hgetall(table)
    assert new.hget(table, "b") == client.hget(table, "b")
    assert int(new.execute("STRLEN", key, keys=[key])) == 1
    script = "redis.call('SET', KEYS[1], ARGV[1]) return {#KEYS, #ARGV, tonumber(ARGV[2])}"
    assert new.script(script, [key], ["first", 2]) == [1, 2, 2]
    before = client.get(key), client.hgetall(table)
    for stale in (
        lambda: old.set(key, 0),
        lambda: old.get(key),
        lambda: old.incr(key),
        lambda: old.hset(table, {"a": 0}),
        lambda: old.hget(table, "a"),
        lambda: old.hgetall(table),
        lambda: old.delete(key),
        lambda: old.execute("APPEND", key, "x", keys=[key]),
        lambda: old.script(script, [key], ["stale", 2]),
    ):
        with pytest.raises(StaleToken, match=r"has seen token 10, since 20.* UTC; the token presented is 9"):
            stale()
    assert (client.get(key), client.hgetall(table)) == before
    assert new.delete(key, table, "not there") == 2


def test_one_round_trip_a_command_and_scripts_that_do_not_grow_in_number(client: Any) -> None:
    """Constant Lua: a server that is sent a new text for every name runs out of memory."""
    for number in range(20):
        fenced.Redis(client, (f"{uuid4().hex}", number + 1)).set(f"key {number}", number)
    statistics = client.info("commandstats")
    client.config_resetstat()
    fenced.Redis(client, ("one trip", 1)).set("key", 1)
    after = client.info("commandstats")
    assert after["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_eval" not in after
    assert statistics["cmdstat_evalsha"]["calls"] >= 20
    assert client.info("memory")["number_of_cached_scripts"] == 1


def test_a_damaged_mark_refuses_everybody(client: Any) -> None:
    name = uuid4().hex
    client.set(PREFIX + name, "nonsense")
    with pytest.raises(Misuse, match="not a mark"):
        fenced.Redis(client, (name, 2**62)).set("x", 1)


def test_errors_of_the_command_itself_are_redis_own(client: Any) -> None:
    name = uuid4().hex
    fenced.Redis(client, (name, 1)).hset(name, {"a": 1})
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        fenced.Redis(client, (name, 1)).get(name)
    with pytest.raises(Misuse):
        fenced.Redis(client, (name, 1)).hset(name, {})
    with pytest.raises(Misuse, match="redis-py"):
        fenced.Redis(object(), (name, 1))


def test_asyncio_commands(redis_url: str) -> None:
    async def work() -> None:
        connected = redis.asyncio.Redis.from_url(redis_url)
        name = uuid4().hex
        guard = aio.Redis(connected, (name, 3))
        assert await guard.hset(name, {"a": 1}) == 1
        assert await guard.hget(name, "a") == b"1"
        assert await guard.hgetall(name) == {b"a": b"1"}
        assert await guard.delete(name) == 1
        assert await guard.incr(name, 4) == 4
        assert await guard.execute("GETDEL", name, keys=[name]) == b"4"
        assert await guard.script("return ARGV[1]", [], ["x"]) == b"x"
        with pytest.raises(StaleToken):
            await aio.Redis(connected, (name, 2)).get(name)
        await connected.aclose()

    asyncio.run(work())


@pytest.mark.parametrize("world", [fenced, aio], ids=["threads", "asyncio"])
def test_a_pipeline_is_no_client(world: Any, redis_url: str) -> None:
    """What is queued answers with the pipeline itself, which looked like success: `set` said True to a stale token."""
    client: Any = (redis if world is fenced else redis.asyncio).Redis.from_url(redis_url)
    for transaction in (True, False):
        with pytest.raises(Misuse, match="a client is wanted, not a Pipeline"):
            world.Redis(client.pipeline(transaction=transaction), ("x", 1))
    if world is fenced:
        client.close()


@pytest.mark.parametrize("count", [1999, 2000, 2001, 5000, 20_001])
def test_more_fields_than_lua_hands_over_at_once(client: Any, count: int) -> None:
    name = f"many {time.time_ns()}"
    guard = fenced.Redis(client, (name, 2))
    fields: dict[str, Any] = {f"f{number}": number for number in range(count)}
    assert guard.hset(name, fields) == count
    assert {int(value) for value in guard.hgetall(name).values()} == set(range(count))
    assert guard.delete(name, *(f"{name}:{number}" for number in range(count))) == 1
    with pytest.raises(StaleToken):
        fenced.Redis(client, (name, 1)).hset(name, fields)
    with pytest.raises(StaleToken):
        fenced.Redis(client, (name, 1)).delete(*(f"{name}:{number}" for number in range(count)))
