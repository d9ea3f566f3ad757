"""Redis: releases whose answers nobody waits for, when the answer is not the usual one, or does not come."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Locks, aio, events
from holdfast.events import Event
from holdfast.testing.network import Network
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
SOON = 10.0


@pytest.fixture
def url(redis: Redis) -> str:
    return redis.url


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def owed(locks: Locks) -> int:
    return len(locks._engine.leaving._posted)


def test_its_answer_is_read_by_who_uses_the_connection_next(url: str) -> None:
    with holdfast.connect(url) as locks:
        with locks.lock("warm"):
            pass
        for number in range(50):
            with locks.lock(f"x{number}", ttl=60, confirm=False) as lease:
                assert locks.inspect(lease.name).holders[0].token == lease.token
            assert owed(locks) == 1
            with locks.lock("x", ttl=60, confirm=False) as lease:
                assert lease.token > 10**15, "the answer to our own question, and not to the one before"
        locks.inspect("x0")
        assert owed(locks) == 0
        assert locks.names() == []


def test_one_that_nobody_reads_is_asked_for(url: str) -> None:
    with holdfast.connect(url) as locks:
        with locks.lock("warm"):
            pass
        with locks.lock("x", ttl=60, confirm=False):
            pass
        until(lambda: owed(locks) == 0)
        assert locks.names() == []


def test_one_whose_script_is_not_known_any_more_is_repeated(url: str, redis: Redis) -> None:
    with holdfast.connect(url) as locks:
        with locks.lock("warm"):
            pass
        lease = locks.lock("x", ttl=60, confirm=False).acquire()
        redis.execute("SCRIPT", "FLUSH")
        assert lease.release() is True
        with locks.lock("y"):
            pass
        until(lambda: locks.names() == [])


def test_one_whose_connection_breaks_is_repeated(url: str) -> None:
    with Network(url) as network, holdfast.connect(network.url) as locks, holdfast.connect(url) as looker:
        with locks.lock("warm"):
            pass
        lease = locks.lock("x", ttl=60, confirm=False).acquire()
        network.cut()
        assert lease.release() is True
        network.heal()
        until(lambda: looker.names() == [])


def test_who_comes_back_over_another_connection_is_not_refused_by_his_own_release(redis: Redis) -> None:
    """It is stuck on the way, on its own connection: that is nobody's reason to be told "held by" himself."""
    told: list[Event] = []
    with Proxy((redis.host, redis.port)) as proxy, holdfast.connect(f"redis://127.0.0.1:{proxy.port}") as locks:
        locks.subscribe(told.append, [events.LOST])
        with locks.lock("warm"):
            pass
        lease = locks.lock("x", ttl=60, confirm=False).acquire()
        wire = locks._engine.store._wire  # type: ignore[attr-defined]
        proxy.to_server.hold(chunks=1)
        assert lease.release() is True
        assert owed(locks) == 1
        stuck, wire._idle = wire._idle, []  # somebody else has that connection just now
        again = locks.lock("x").try_acquire()
        assert again is not None
        assert again.token > lease.token
        proxy.to_server.flow()
        wire._idle += stuck
        for number in range(3):
            with locks.lock(f"y{number}"):
                pass
        again.check()
        assert again.release() is True
        assert told == []


def test_who_was_evicted_is_told_by_an_event(url: str) -> None:
    told: list[Event] = []
    with holdfast.connect(url) as locks, holdfast.connect(url) as other:
        locks.subscribe(told.append, [events.LOST])
        with locks.lock("warm"):
            pass
        with locks.lock("x", ttl=60, confirm=False) as lease:
            assert other.force_release("x", token=lease.token)
            with locks.lock("warm"):
                pass
        locks.inspect("x")
        assert [(event.name, event.token) for event in told] == [("x", lease.token)]


def test_a_forked_child_repeats_nothing_of_its_parent(url: str) -> None:
    with holdfast.connect(url) as locks:
        with locks.lock("warm"):
            pass
        with locks.lock("x", ttl=60, confirm=False):
            pass
        if (child := os.fork()) == 0:
            os._exit(owed(locks))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert locks.names() == []


def test_in_asyncio_too_it_is_repeated_when_the_connection_breaks(url: str) -> None:
    async def main(network: Network) -> None:
        async with aio.connect(network.url) as locks, aio.connect(url) as looker:
            async with locks.lock("warm"):
                pass
            lease = await locks.lock("x", ttl=60, confirm=False).acquire()
            network.cut()
            assert await lease.release() is True
            network.heal()
            end = time.monotonic() + SOON
            while await looker.names():
                assert time.monotonic() < end
                await asyncio.sleep(0.01)

    with Network(url) as network:
        asyncio.run(main(network))
