"""A driver of one's own: over its streams, the connection that tasks share speaks to real servers of every kind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import Driver
from holdfast.errors import Misuse
from holdfast.stores import redis as plain
from holdfast.stores import redlock
from holdfast.stores.base import Store
from holdfast.stores.redis.stream_pipe import StreamPipe
from holdfast.testing import servers

pytestmark = pytest.mark.server


class Own:
    """One that is nobody's we know: all that it has, it has from asyncio."""

    def __init__(self) -> None:
        self._asyncio = Asyncio()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._asyncio, name)


def somebody(name: str) -> Claim:
    return Claim(name, new_holder(), "somebody", 30.0)


def run(url: str, open_store: Callable[[str, Driver], Store]) -> None:
    async def main() -> None:
        store = open_store(url, Own())
        async with asyncio.timeout(60):
            for number in range(8):  # in a cluster, on several nodes
                await come_and_go(store, f"x{number}")
            await all_at_once(store)
            await store.close()

    asyncio.run(main())


async def come_and_go(store: Store, name: str) -> None:
    first, second = somebody(name), somebody(name)
    grant = await store.claim(first)
    assert isinstance(grant, Grant)
    assert list(await store.renew([grant], 5.0)) == [grant]
    place = await store.claim(second)
    assert isinstance(place, Place)
    waiting = asyncio.create_task(entered(store, second, place))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    assert await store.release(first)
    later = await waiting
    assert time.monotonic() - started < 10  # and not when the first would have run out
    assert later.token > grant.token
    assert len((await store.inspect(name)).holders) == 1
    assert await store.release(second)


async def all_at_once(store: Store) -> None:
    """That a server owes many answers is no sign that it has died: once, with the 65th, everybody's connection was given up."""
    claims = [somebody(f"y{number}") for number in range(300)]
    granted = await asyncio.gather(*(store.claim(claim) for claim in claims))
    assert {type(one) for one in granted} == {Grant}
    assert all(await asyncio.gather(*(store.release(claim) for claim in claims)))


async def entered(store: Store, claim: Claim, place: Grant | Place) -> Grant:
    while isinstance(place, Place):
        await store.wait(place, 20.0)
        place = await store.claim(claim)
    return place


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StreamPipe]]:
    pipes: list[StreamPipe] = []
    begin = StreamPipe.__init__

    def noted(self: StreamPipe, *given: Any) -> None:
        pipes.append(self)
        begin(self, *given)

    monkeypatch.setattr(StreamPipe, "__init__", noted)
    yield pipes
    assert pipes, "it went another way"
    assert not any(pipe.is_alive() for pipe in pipes), "it was closed"


def test_one_server(opened: list[StreamPipe]) -> None:
    with servers.start("redis") as redis:
        run(redis.url, plain.open_store)


def test_the_master_that_sentinels_name(opened: list[StreamPipe]) -> None:
    with servers.cluster("redis-sentinel", 3) as group:
        run(group.url, plain.open_store)


def test_a_cluster(opened: list[StreamPipe]) -> None:
    with servers.cluster("redis-cluster", 3) as group:
        run(group.url, plain.open_store)


def test_a_redlock(opened: list[StreamPipe]) -> None:
    nodes = [servers.start("redis", "--appendonly", "no") for _ in range(3)]
    try:
        run("redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes), redlock.open_store)
    finally:
        for node in nodes:
            node.stop()


def test_a_unix_socket_is_refused() -> None:
    async def main() -> None:
        store = plain.open_store("unix:///nowhere/redis.sock", Own())
        with pytest.raises(Misuse, match="Unix sockets"):
            await store.claim(somebody("x"))

    asyncio.run(main())
