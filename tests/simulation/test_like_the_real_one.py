"""The simulated driver against real threads: the same script gives the same answers, whatever runs it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from holdfast.asking import Ask
from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.base import Driver, finish
from holdfast.drivers.simulated import Process
from holdfast.drivers.threads import Threads
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.lease import Lease
from holdfast.stores.memory import MemoryStore

Script = Callable[[Driver, str, list[str]], Coroutine[Any, Any, None]]
_spaces = itertools.count()
TTL = 0.6


def engine_on(driver: Driver, space: str) -> Engine:
    return Engine(MemoryStore(driver, space), driver)


async def holder(driver: Driver, space: str, said: list[str]) -> None:
    """Holds for a while, past its ttl, so that it is renewed."""
    engine = engine_on(driver, space)
    lease = await engine.acquire(Ask("lock", TTL), None, Lease)
    said.append("holder in")
    await driver.sleep(1.0)
    lease.check()
    said.append(f"holder out, it was there: {await engine.release(lease)}")
    said.append(f"again: {await engine.release(lease)}")


async def waiter(driver: Driver, space: str, said: list[str]) -> None:
    engine = engine_on(driver, space)
    await driver.sleep(0.3)
    lease = await engine.acquire(Ask("lock", TTL, renew=False), None, Lease)
    said.append("waiter in")
    await driver.sleep(TTL + 0.1)
    said.append(f"waiter still holds: {lease.held}")
    said.append(f"waiter out, it was there: {await engine.release(lease)}")


async def impatient(driver: Driver, space: str, said: list[str]) -> None:
    engine = engine_on(driver, space)
    await driver.sleep(0.5)
    for timeout in (0.0, 0.2):
        try:
            await engine.acquire(Ask("lock", TTL), timeout, Lease)
        except HoldfastError as error:
            said.append(f"impatient: {type(error).__name__}")


async def misfit(driver: Driver, space: str, said: list[str]) -> None:
    engine = engine_on(driver, space)
    await driver.sleep(0.85)
    try:
        await engine.acquire(Ask("lock", TTL, capacity=3), None, Lease)
    except HoldfastError as error:
        said.append(f"misfit: {type(error).__name__}")


async def plain(driver: Driver, space: str, said: list[str]) -> None:
    """Straight to the store: entering, queueing, repeating, renewing, expiring, leaving."""
    store = MemoryStore(driver, space)
    one, two = (Claim("other", nonce, nonce, 0.3, units=2, capacity=3) for nonce in ("one", "two"))
    first = await store.claim(one)
    assert isinstance(first, Grant)
    again = await store.claim(one)
    assert isinstance(again, Grant)
    said.append(f"repeated: same token {again.token == first.token}")
    said.append(f"no room: {isinstance(await store.claim(two), Place)}")
    said.append(f"fewer units: {isinstance(await store.claim(one._replace(units=1)), Grant)}")
    second = await store.claim(two)
    said.append(f"now there is: {isinstance(second, Grant) and second.token > first.token}")
    said.append(f"renewed: {[bool(answer) for answer in await store.renew([first], 1.0)]}")
    await driver.sleep(0.4)
    said.append(f"expired: {[bool(answer) for answer in await store.renew([first], 1.0)]}")
    said.append(f"left: {await store.release(two)}, names: {'other' in await store.names()}")


ROLES: tuple[Script, ...] = (holder, waiter, impatient, misfit, plain)


def simulated(seed: int) -> list[list[str]]:
    space = f"like-{next(_spaces)}"
    said: list[list[str]] = [[] for _ in ROLES]
    with World(seed) as world:
        process = Process(world, "p")
        tasks = [
            process.spawn(partial(role, process.driver, space, lines), role.__name__)
            for role, lines in zip(ROLES, said, strict=True)
        ]
        world.run(*tasks)
    return said


def really() -> list[list[str]]:
    space = f"like-{next(_spaces)}"
    said: list[list[str]] = [[] for _ in ROLES]
    threads = [
        threading.Thread(target=finish, args=[role(Threads(), space, lines)])
        for role, lines in zip(ROLES, said, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


@pytest.fixture(scope="module")
def with_threads() -> list[list[str]]:
    started = time.monotonic()
    said = really()
    assert time.monotonic() - started > 1.0, "this one takes its time"
    return said


@pytest.mark.parametrize("seed", range(20))
def test_the_same_script_gives_the_same_answers(seed: int, with_threads: list[list[str]]) -> None:
    assert simulated(seed) == with_threads
