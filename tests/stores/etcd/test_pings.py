"""A peer that says something for as long as it is listened to, and never an answer: the deadline ends that, in both worlds.

The clock is the test's: it goes on a little with everything that is read. So it is no question of how quick a machine is.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.drivers.aio import Asyncio
from holdfast.drivers.threads import Threads
from holdfast.errors import Unavailable
from holdfast.stores.etcd.url import parse
from holdfast.stores.etcd.wire import Wire

SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
PING = b"\0\0\x08\x06\0\0\0\0\0" + b"p" * 8
STEP = 0.25  # seconds, for every ping
FAR_TOO_MANY = 1000


class Pinging:
    """A stream on which there is always one more ping."""

    def __init__(self, driver: Any) -> None:
        self.pings = 0
        self._driver = driver
        self._said = SETTINGS

    async def send(self, data: bytes, deadline: float) -> None: ...

    async def receive(self, deadline: float) -> bytes:
        self.pings += 1
        assert self.pings < FAR_TOO_MANY, "it would have listened for ever"
        self._driver.time += STEP
        said, self._said = self._said, PING
        return said

    def is_stale(self) -> bool:
        return False

    def hang_up(self) -> None: ...

    def close(self) -> None: ...

    def give_up(self) -> None: ...

    def disown(self) -> None: ...


class Pinged:
    """A driver all of whose connections lead there, and whose clock goes by what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[Pinging] = []
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def connect(self, *_: object) -> Pinging:
        self.streams.append(Pinging(self))
        return self.streams[-1]


class InThreads(Pinged, Threads):
    pass


class InAsyncio(Pinged, Asyncio):
    pass


async def told_nothing(driver: Any) -> None:
    wire = Wire(parse("etcd://a:2379"), driver)
    with pytest.raises(Unavailable, match="a:2379 did not answer within 1 s"):
        await wire.ask(b"/etcdserverpb.KV/Range", b"", driver.now() + 1)
    assert [stream.pings for stream in driver.streams] == [4]
    wire.close()


def test_pings_without_an_end_end_with_the_deadline_in_threads() -> None:
    driver = InThreads()
    driver.run(told_nothing(driver))


def test_pings_without_an_end_end_with_the_deadline_in_asyncio() -> None:
    asyncio.run(told_nothing(InAsyncio()))
