"""Optimistic updates on stores of one value a key: Redis, etcd, ZooKeeper; in threads and in asyncio."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Conflict, Misuse
from holdfast.databases.wire import settle
from holdfast.drivers.base import finish
from holdfast.lockfree import optimistic
from holdfast.lockfree.optimistic import Retry, aio

pytestmark = pytest.mark.server
QUICK = Retry(attempts=4, first=0.0001, longest=0.001)
_numbers = itertools.count()
KINDS = {"redis": "redis_url", "etcd": "etcd_url", "zookeeper": "zookeeper_hosts"}


class Counters:
    """A number a key, whatever a store makes of it."""

    def __init__(self, kind: str, url: str, asynchronous: bool) -> None:
        self.kind = kind
        self._runner = asyncio.Runner() if asynchronous else None
        self.client: Any = self.run(self._connect(url, asynchronous))
        surface = aio if asynchronous else optimistic
        self.store: Any = {"redis": surface.Redis, "etcd": surface.Etcd, "zookeeper": surface.ZooKeeper}[kind](
            self.client
        )

    async def _connect(self, url: str, asynchronous: bool) -> Any:
        if self.kind == "redis":
            import redis.asyncio

            return (redis.asyncio.Redis if asynchronous else redis.Redis).from_url(url)
        if self.kind == "etcd":
            import httpx

            return (httpx.AsyncClient if asynchronous else httpx.Client)(base_url=url, trust_env=False, timeout=30)
        from kazoo.client import KazooClient

        client = KazooClient(url, timeout=30)
        client.start(30)
        return client

    def run(self, coroutine: Any) -> Any:
        return self._runner.run(coroutine) if self._runner else finish(coroutine)

    def key(self) -> str:
        return f"{'/' if self.kind == 'zookeeper' else ''}counter-{next(_numbers)}"

    def number(self, value: Any) -> int | None:
        if self.kind == "redis":
            return int(value["n"]) if "n" in value else None
        return None if value is None else int(value)

    def answer(self, number: int | None) -> Any:
        if number is None:
            return None
        return {"n": number} if self.kind == "redis" else b"%d" % number

    async def add(self, key: str, amount: int = 1) -> int | None:
        return self.number(await settle(self.store.update(key, lambda v: self.answer((self.number(v) or 0) + amount))))

    async def get(self, key: str) -> int | None:
        return self.number(await settle(self.store.update(key, lambda value: None)))

    def close(self) -> None:
        async def close() -> None:
            if self.kind == "zookeeper":
                self.client.stop()
            await settle((getattr(self.client, "aclose", None) or self.client.close)())

        self.run(close())
        if self._runner:
            self._runner.close()


@pytest.fixture(scope="module", params=[(kind, asynchronous) for kind in KINDS for asynchronous in (False, True)])
def counters(request: pytest.FixtureRequest) -> Iterator[Counters]:
    kind, asynchronous = request.param
    made = Counters(kind, request.getfixturevalue(KINDS[kind]), asynchronous)
    yield made
    made.close()


def test_a_value_is_made_and_changed(counters: Counters) -> None:
    key = counters.key()

    async def work() -> list[int | None]:
        return [await counters.get(key), await counters.add(key), await counters.add(key, 5), await counters.get(key)]

    assert counters.run(work()) == [None, 1, 6, 6]


def test_what_others_write_meanwhile_is_not_lost(counters: Counters) -> None:
    key = counters.key()
    calls = 0

    async def change(value: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= 2:
            await counters.add(key, 100)
        return counters.answer((counters.number(value) or 0) + 1)

    async def work() -> int | None:
        await settle(counters.store.update(key, change, retry=QUICK))
        return await counters.get(key)

    assert counters.run(work()) == 201
    assert calls == 3


def test_a_conflict_that_outlives_the_attempts(counters: Counters) -> None:
    key = counters.key()

    async def change(value: Any) -> Any:
        await counters.add(key)
        return counters.answer(-1)

    async def work() -> None:
        await settle(counters.store.update(key, change, retry=QUICK))

    with pytest.raises(Conflict) as caught:
        counters.run(work())
    assert len(set(caught.value.seen)) == 4
    assert counters.run(counters.get(key)) == 4


def test_what_is_expected_to_be_absent_is_made_and_never_overwritten(counters: Counters) -> None:
    async def work() -> None:
        key = counters.key()
        made = await settle(counters.store.update(key, lambda value: counters.answer(1), expected=optimistic.ABSENT))
        assert counters.number(made) == 1
        with pytest.raises(Conflict, match="there already"):
            await settle(counters.store.update(key, lambda value: counters.answer(2), expected=optimistic.ABSENT))
        assert await counters.get(key) == 1
        if counters.kind == "redis":  # one that somebody else made, and that has no version
            other = counters.key()
            await settle(counters.client.hset(other, "n", 7))
            with pytest.raises(Conflict, match="there already"):
                await settle(counters.store.update(other, lambda value: {"n": 2}, expected=optimistic.ABSENT))

    counters.run(work())


def test_several_keys_change_together_or_not_at_all(counters: Counters) -> None:
    one, two = counters.key(), counters.key()
    clash = False

    async def transfer(values: list[Any]) -> list[Any]:
        if clash:
            await counters.add(two)
        first, second = (counters.number(value) or 0 for value in values)
        return [counters.answer(first - 10), counters.answer(second + 10)]

    async def work() -> tuple[int | None, int | None]:
        await settle(counters.store.update_all([one, two], transfer, retry=QUICK))
        return await counters.get(one), await counters.get(two)

    counters.run(counters.add(one, 100))
    assert counters.run(work()) == (90, 10)
    clash = True
    with pytest.raises(Conflict):
        counters.run(work())
    assert (counters.run(counters.get(one)), counters.run(counters.get(two))) == (90, 14)


def test_a_key_that_was_only_read_is_checked_too(counters: Counters) -> None:
    source, target = counters.key(), counters.key()
    counters.run(counters.add(source, 7))

    async def change(values: list[Any]) -> list[Any]:
        await counters.add(source)
        return [None, counters.answer(counters.number(values[0]))]

    async def work() -> None:
        await settle(counters.store.update_all([source, target], change, retry=QUICK))

    with pytest.raises(Conflict):
        counters.run(work())
    assert counters.run(counters.get(target)) is None


def test_bad_input_is_refused(counters: Counters) -> None:
    key = counters.key()

    def update(*args: Any, **options: Any) -> None:
        async def work() -> None:
            await settle(counters.store.update(*args, **options))

        counters.run(work())

    for bad in ("", 7, None):
        with pytest.raises(Misuse):
            update(bad, lambda value: counters.answer(1))
    for bad_answer in (7, ["n"], {"version": 3} if counters.kind == "redis" else {}, {1: 2}):
        with pytest.raises(Misuse):
            update(key, lambda value, answer=bad_answer: answer)
    with pytest.raises(Misuse):
        update(key, lambda value: counters.answer(1), expected=-1)
    counters.run(counters.add(key))
    with pytest.raises(Conflict):
        update(key, lambda value: counters.answer(1), expected=10**15)
    assert counters.run(counters.get(key)) == 1


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    import redis

    with redis.Redis.from_url(redis_url) as client:
        yield client


def test_redis_fields_come_and_go(client: Any) -> None:
    rows = optimistic.Redis(client)
    after = rows.update("row", lambda row: {"a": "1", "b": b"\xff\x00", "c": 2.5})
    assert after == {"a": "1", "b": b"\xff\x00", "c": 2.5}
    seen: dict[str, Any] = {}
    rows.update("row", lambda row: seen.update(row) or {"a": None})
    assert {name: seen[name] for name in "abc"} == {"a": b"1", "b": b"\xff\x00", "c": b"2.5"}
    assert client.hkeys("row") == [b"b", b"c", b"version", b"version_by"]


def test_redis_a_key_made_anew_is_not_taken_for_the_old_one(client: Any) -> None:
    rows = optimistic.Redis(client)
    rows.update("again", lambda row: {"n": 1})

    def change(row: dict[str, Any]) -> dict[str, Any]:
        client.delete("again")
        rows.update("again", lambda row: {"n": 50})
        return {"n": 2}

    with pytest.raises(Conflict):
        rows.update("again", change, retry=optimistic.ONCE)
    assert client.hget("again", "n") == b"50"


def test_redis_a_script_that_is_sent_twice_writes_once(client: Any) -> None:
    """As redis-py does by itself when an answer is lost."""

    class Stammering:
        evalsha = client.evalsha

        def execute_command(self, *words: Any, **options: Any) -> Any:
            first = client.execute_command(*words, **options)
            second = client.execute_command(*words, **options)
            return second if "version_by" not in str(first) else first

    rows = optimistic.Redis(Stammering())
    for _ in range(3):
        rows.update("stammer", lambda row: {"n": int(row.get("n", 0)) + 1}, retry=optimistic.ONCE)
    assert client.hget("stammer", "n") == b"3"


@pytest.mark.parametrize("version", ["-4", "abc", "", "1.5", "99999999999999999999"])
def test_redis_a_version_that_is_none_is_told(client: Any, version: str) -> None:
    client.hset("damaged", "version", version)
    with pytest.raises(Misuse, match="version of damaged"):
        optimistic.Redis(client).update("damaged", lambda row: {"n": 1})
    assert not client.hexists("damaged", "n")


def test_redis_something_else_than_a_hash_is_told(client: Any) -> None:
    client.set("text", "x")
    with pytest.raises(Misuse, match="no hash"):
        optimistic.Redis(client).update("text", lambda row: {"n": 1})


def test_redis_answers_as_text_are_understood(redis_url: str) -> None:
    import redis

    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        rows = optimistic.Redis(client)
        rows.update("decoded", lambda row: {"n": 1})
        assert rows.update("decoded", lambda row: {"n": int(row["n"]) + 1})["n"] == 2
