"""A peer that says something for as long as it is listened to, and never an answer: the deadline ends that, in both worlds.

The clock is the test's: it goes on a little with everything that is read. So it is no question of how quick a machine is.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import Unavailable
from holdfast.stores.etcd.url import parse
from holdfast.stores.etcd.wire import Wire

from .hands import Scripted, in_world

SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
PING = b"\0\0\x08\x06\0\0\0\0\0" + b"p" * 8
STEP = 0.25  # seconds, for every ping
FAR_TOO_MANY = 1000


class Pinging(Scripted):
    """A stream on which there is always one more ping."""

    def __init__(self, driver: Any) -> None:
        self.pings = 0
        self._driver = driver
        self._said = SETTINGS

    async def receive(self, deadline: float) -> bytes:
        self.pings += 1
        assert self.pings < FAR_TOO_MANY, "it would have listened for ever"
        self._driver.time += STEP
        said, self._said = self._said, PING
        return said


async def told_nothing(driver: Any) -> None:
    driver.time, driver.now = 0.0, lambda: driver.time
    wire = Wire(parse("etcd://a:2379"), driver)
    with pytest.raises(Unavailable, match="a:2379 did not answer within 1 s"):
        await wire.ask(b"/etcdserverpb.KV/Range", b"", driver.now() + 1)
    assert [stream.pings for stream in driver.streams] == [4]
    wire.close()


@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_pings_without_an_end_end_with_the_deadline(world: str) -> None:
    in_world(world, Pinging, told_nothing)
