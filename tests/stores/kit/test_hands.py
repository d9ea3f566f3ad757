"""Connections of a driver's own are lent out in the order in which they were asked for, and none is lost on the way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import Driver, boot_time, finish
from holdfast.drivers.threads import Threads
from holdfast.errors import Unavailable
from holdfast.stores.kit.hands import NOTHING, Hand, Pool

SOON = 20.0


class Line:
    def __init__(self) -> None:
        self.open = True

    def close(self) -> None:
        self.open = False


def busy(waited: float) -> Exception:
    return Unavailable("busy")


def pool_of_one(driver: Driver) -> tuple[Pool[Line], Hand]:
    """And a hand that has it."""
    pool: Pool[Line] = Pool(1, driver)
    hand = Hand()
    assert pool.take(hand)
    assert hand.line is None  # leave to open one
    hand.line = Line()
    return pool, hand


async def take(pool: Pool[Line], hand: Hand, within: float) -> Any:
    if not pool.take(hand):
        await pool.wait(hand, boot_time() + within, busy)
    return hand.line


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_connection_is_handed_to_who_waits_and_no_newcomer_is_faster() -> None:
    async def main() -> None:
        pool, first = pool_of_one(Asyncio())
        line = first.line
        second = asyncio.create_task(take(pool, Hand(), SOON))
        await asyncio.sleep(0)
        pool.put_back(first)
        with pytest.raises(Unavailable, match="busy"):  # in the same turn of the loop, before the second has heard
            await take(pool, Hand(), 0)
        assert await second is line

    asyncio.run(main())


def test_who_is_cancelled_just_then_passes_it_on() -> None:
    async def main() -> None:
        pool, first = pool_of_one(Asyncio())
        line, hand = first.line, Hand()
        second = asyncio.create_task(take(pool, hand, SOON))
        await asyncio.sleep(0)
        third = asyncio.create_task(take(pool, Hand(), SOON))
        await asyncio.sleep(0)
        pool.put_back(first)  # to the second, which is cancelled before it hears of that
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        pool.put_back(hand)
        assert await third is line

    asyncio.run(main())


def test_who_waited_in_a_loop_that_is_gone_gets_nothing() -> None:
    pool, first = pool_of_one(Asyncio())
    line = first.line

    async def forgotten() -> None:
        asyncio.get_running_loop().create_task(take(pool, Hand(), SOON))
        await asyncio.sleep(0)
        pool._line_up.append(pool._line_up[0])  # as if its task had never been told that its loop ends

    asyncio.run(forgotten())
    pool.put_back(first)
    assert pool.idle() == [line]
    assert not pool._line_up


def test_connections_are_handed_over_in_the_order_of_asking() -> None:
    pool, taken = pool_of_one(Threads())
    order: list[int] = []

    def work(number: int) -> None:
        hand = Hand()
        finish(take(pool, hand, SOON))
        order.append(number)
        pool.put_back(hand)

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        until(lambda number=number: len(pool._line_up) == number + 1)  # type: ignore[misc]
    assert not pool.take(Hand())
    pool.put_back(taken)
    for thread in threads:
        thread.join(SOON)
    assert order == list(range(5))
    assert len(pool._lying) == 1


def test_whoever_gives_up_waiting_leaves_none_behind() -> None:
    pool, taken = pool_of_one(Threads())
    hand = Hand()
    with pytest.raises(Unavailable):
        finish(take(pool, hand, 0.05))
    assert hand.line is NOTHING
    pool.put_back(taken)
    assert len(pool._lying) == 1
    assert not pool._line_up


def test_who_waits_is_not_forgotten_when_a_newcomer_was_faster() -> None:
    """It looked before anybody waited, and takes what lies there in the moment in which that is handed over."""

    class Snatched(list[Any]):
        def pop(self, at: Any = -1) -> Any:
            self.clear()
            raise IndexError

    pool, taken = pool_of_one(Threads())
    line, waiting = taken.line, Hand()
    pool._lying = Snatched([None])
    waits = pool.wait(waiting, boot_time() + SOON, busy)
    thread = threading.Thread(target=lambda: finish(waits))
    thread.start()
    until(lambda: bool(pool._line_up) and not pool._lying)
    pool._lying = []
    pool.put_back(taken)
    thread.join(SOON)
    assert waiting.line is line, "it waits still"


def test_what_is_put_back_twice_is_there_once() -> None:
    pool, taken = pool_of_one(Threads())
    for _ in range(2):
        pool.put_back(taken)
    assert len(pool._lying) == 1
