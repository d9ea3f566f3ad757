"""Connections of a driver's own are lent out in the order in which they were asked for, and none is lost on the way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import Driver, boot_time, finish
from holdfast.drivers.threads import ThreadBell, Threads
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
    assert hand.connection is None  # leave to open one
    hand.connection = Line()
    return pool, hand


async def take(pool: Pool[Line], hand: Hand, within: float) -> Any:
    if not pool.take(hand):
        await pool.wait(hand, boot_time() + within, busy)
    return hand.connection


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_connection_is_handed_to_who_waits_and_no_newcomer_is_faster() -> None:
    async def main() -> None:
        pool, first = pool_of_one(Asyncio())
        line = first.connection
        second = asyncio.create_task(take(pool, Hand(), SOON))
        await asyncio.sleep(0)
        pool.put_back(first)
        with pytest.raises(Unavailable, match="busy"):  # in the same turn of the loop, before the second has heard
            await take(pool, Hand(), 0)
        assert await second is line

    asyncio.run(main())


def test_what_lies_there_is_for_who_waits() -> None:
    pool: Pool[Line] = Pool(1, Threads())
    pool._line.append(Hand())  # in the moment between putting back and handing over
    assert not pool.take(Hand())


def test_who_is_cancelled_just_then_passes_it_on() -> None:
    async def main() -> None:
        pool, first = pool_of_one(Asyncio())
        line, hand = first.connection, Hand()
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
    line = first.connection

    async def forgotten() -> None:
        asyncio.get_running_loop().create_task(take(pool, Hand(), SOON))
        await asyncio.sleep(0)
        pool._line.append(pool._line[0])  # as if its task had never been told that its loop ends

    asyncio.run(forgotten())
    pool.put_back(first)
    assert pool.idle() == [line]
    assert not pool._line


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
        until(lambda number=number: len(pool._line) == number + 1)  # type: ignore[misc]
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
    assert hand.connection is NOTHING
    pool.put_back(hand)
    pool.put_back(taken)
    assert len(pool._lying) == 1
    assert not pool._line


def test_who_waits_is_not_forgotten_when_a_newcomer_was_faster() -> None:
    """It looked before anybody waited, and takes what lies there in the moment in which that is handed over."""

    class Snatched(list[Any]):
        def __getitem__(self, at: Any) -> Any:
            self.clear()
            raise IndexError

    pool, taken = pool_of_one(Threads())
    line, waiting = taken.connection, Hand()
    pool._lying = Snatched([None])
    waits = pool.wait(waiting, boot_time() + SOON, busy)
    thread = threading.Thread(target=lambda: finish(waits))
    thread.start()
    until(lambda: bool(pool._line) and not pool._lying)
    pool._lying = []
    pool.put_back(taken)
    thread.join(SOON)
    assert waiting.connection is line, "it waits still"


def test_what_is_put_back_twice_is_there_once() -> None:
    pool, taken = pool_of_one(Threads())
    for _ in range(2):
        pool.put_back(taken)
    assert len(pool._lying) == 1


def test_who_comes_for_what_was_given_back_in_its_name_gets_nothing() -> None:
    """Its loop was closed under it; collected, it goes through its `finally` all the same."""
    pool, first = pool_of_one(Asyncio())
    line, hand = first.connection, Hand()
    loop = asyncio.new_event_loop()
    waits = take(pool, hand, SOON)
    task = loop.create_task(waits)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    pool.put_back(first)
    assert pool.idle() == [line]
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    waits.close()
    pool.put_back(hand)
    assert pool._lying == [line], "two could talk there at once"


# ---- interrupted anywhere


class Interrupted(BaseException):
    pass


class Signal:
    """Comes to this thread after the call of that number: after a call is when the interpreter looks for signals."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._thread = threading.current_thread()
        self.expected = False

    @property
    def came(self) -> bool:
        return self._left <= 0

    def after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            answer = call(*args)
            if self.expected and threading.current_thread() is self._thread:
                self._left -= 1
                if self._left == 0:
                    raise Interrupted
            return answer

        return called

    def pool(self) -> tuple[Pool[Line], Hand]:
        """All that it calls may be the last call before the signal."""

        def signalled(kind: type, *names: str) -> Any:
            return type(kind.__name__, (kind,), {name: self.after(getattr(kind, name)) for name in names})

        pool, taken = pool_of_one(Threads())
        pool._lying = signalled(list, "pop", "append", "insert", "remove", "clear")(pool._lying)
        pool._line = signalled(deque, "popleft", "append", "remove")()
        bell = signalled(ThreadBell, "ring")
        pool._driver = signalled(Threads)()
        pool._driver.now = self.after(boot_time)  # type: ignore[method-assign]
        pool._driver.bell = self.after(bell)  # type: ignore[method-assign]
        return pool, taken


def interrupted(signal: Signal, pool: Pool[Line]) -> None:
    """A conversation, as a wire has it."""
    hand = Hand()
    signal.expected = True
    try:
        try:
            try:
                finish(take(pool, hand, SOON))
                hand.connection = hand.connection or Line()
            finally:
                pool.put_back(hand)
        finally:
            pool.put_back(hand)
    except Interrupted:
        pass
    finally:
        signal.expected = False


def test_interrupted_after_any_call_no_connection_is_used_up() -> None:
    for number in range(1, 4):
        signal = Signal(number)
        pool, taken = signal.pool()
        pool.put_back(taken)
        interrupted(signal, pool)
        assert len(pool._lying) == 1, f"used up by an interruption after call {number}"


def test_interrupted_after_any_call_of_a_wait_no_connection_is_used_up() -> None:
    for number in itertools.count(1):
        signal, over = Signal(number), threading.Event()
        pool, taken = signal.pool()

        def serve(pool: Pool[Line] = pool, taken: Hand = taken, over: threading.Event = over) -> None:
            until(lambda: pool._line or over.is_set())
            pool.put_back(taken)

        other = threading.Thread(target=serve)
        other.start()
        interrupted(signal, pool)
        over.set()
        other.join(SOON)
        assert len(pool._lying) == 1, f"used up by an interruption after call {number}"
        assert not pool._line
        if not signal.came:
            break
    assert number > 4


@pytest.mark.parametrize("what", ["take over", "close"])
def test_interrupted_while_they_are_taken_from_there_none_is_lost(what: str) -> None:
    signal, hand = Signal(1), Hand()
    pool, taken = signal.pool()
    taken.connection.close = signal.after(taken.connection.close)
    pool.put_back(taken)
    signal.expected = True
    with contextlib.suppress(Interrupted):
        pool.close_idle() if what == "close" else pool.take_over(hand)
    assert len(pool._lying) == 1
