"""The in-process store, where it promises more than the suite asks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.claim import Place
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores import memory
from holdfast.stores.memory import MemoryStore
from holdfast.testing.conformance import claim
from holdfast.testing.manual import Manual, ManualBell


def test_two_who_connect_at_the_same_moment_share_one_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or both would be alone inside."""
    made: list[MemoryStore] = []
    found = memory._Space

    def slowly() -> Any:
        if threading.current_thread() is not second:
            second.start()
            second.join(0.2)  # it gets past us, unless it is made to wait
        return found()

    def connect() -> None:
        made.append(MemoryStore(Threads(), "same moment"))

    second = threading.Thread(target=connect)
    monkeypatch.setattr(memory, "_Space", slowly)
    connect()
    second.join(10)
    assert len(made) == 2
    assert made[0]._space is made[1]._space


def test_threads_and_tasks_share_a_space() -> None:
    async def main() -> None:
        async with aio.connect("memory://both worlds") as tasks:
            with holdfast.connect("memory://both worlds") as threads:
                held = threads.lock("x").acquire()
                waiting = asyncio.create_task(tasks.lock("x").acquire(timeout=20)._coroutine)
                async with asyncio.timeout(10):
                    while not threads.inspect("x").waiters:  # noqa: ASYNC110 - the other side is a thread
                        await asyncio.sleep(0.001)
                await asyncio.to_thread(held.release)
                lease = await waiting
                assert lease.token > held.token
                assert threads.lock("x").try_acquire() is None
                await lease.release()

    asyncio.run(main())


def test_an_unfair_waiter_is_rung_when_there_is_room_for_it_though_not_for_the_head() -> None:
    driver = Manual()
    store = MemoryStore(driver, "unfair")
    first, second = claim("x", capacity=3), claim("x", capacity=3)
    for each in (first, second):
        finish(store.claim(each))
    big, pushy = claim("x", units=3, capacity=3), claim("x", units=2, capacity=3, fair=False)
    assert isinstance(finish(store.claim(big)), Place)
    place = finish(store.claim(pushy))
    assert isinstance(place, Place)
    finish(store.release(first))
    before = driver.now()
    finish(store.wait(place, 10))
    assert driver.now() == before, "it did not have to wait"
    assert finish(store.claim(pushy)).token > 0  # type: ignore[union-attr]  # a Place has no token: that would fail


def test_a_waiter_whose_loop_is_gone_is_passed_over_at_once() -> None:
    """Dead waiters are found by their bell, long before their ttl."""
    with holdfast.connect("memory://gone loop") as locks:
        held = locks.lock("x").acquire()
        loop = asyncio.new_event_loop()
        tasks = loop.run_until_complete(_connected("memory://gone loop"))
        store = tasks._engine.store
        dead = claim("x", 600.0)
        assert isinstance(loop.run_until_complete(store.claim(dead)), Place)
        loop.close()
        entered = threading.Event()

        def wait() -> None:
            with locks.lock("x", ttl=600):
                entered.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        deadline = threading.Event()
        while len(locks.inspect("x").waiters) < 2:
            deadline.wait(0.001)
        held.release()
        assert entered.wait(5)
        waiter.join(5)


async def _connected(url: str) -> aio.Locks:
    return aio.connect(url)


def test_a_grant_that_was_replaced_is_not_renewed_in_its_successors_name() -> None:
    driver = Manual()
    store = MemoryStore(driver, "replaced")
    mine = claim("x", 30.0)
    first = finish(store.claim(mine))
    driver.move(31)
    second = finish(store.claim(mine))
    assert not isinstance(first, Place)
    assert not isinstance(second, Place)
    assert finish(store.renew([first, second], 1)) == [None, second]


def test_only_so_many_evictions_are_remembered() -> None:
    store = MemoryStore(Manual(), "evictions")
    for number in range(memory._KEPT_EVICTIONS + 10):
        grant = finish(store.claim(claim(f"x{number}")))
        assert not isinstance(grant, Place)
        finish(store.evict(f"x{number}", grant.token, "admin"))
    assert len(store._space.evictions) == memory._KEPT_EVICTIONS
    assert not store._space.books


def test_nothing_is_kept_of_a_name_that_is_not_in_use() -> None:
    store = MemoryStore(Manual(), "kept")
    for number in range(100):
        mine = claim(f"x{number}")
        finish(store.claim(mine))
        finish(store.release(mine))
    assert not store._space.books
    assert not store._space.watchers


def test_the_next_in_line_is_rung_once_and_after_the_state_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rung before, it would look, see nothing, and sleep again."""
    store = MemoryStore(Manual(), "rung")
    mine, next_one, third = claim("x"), claim("x"), claim("x")
    for each in (mine, next_one, third):
        finish(store.claim(each))
    seen: list[tuple[str, int]] = []

    def ring(bell: ManualBell) -> bool:
        book = store._space.books["x"]
        whose = next(entry.claim.holder for entry in book.line.values() if entry.bell is bell)
        seen.append((whose, len(book.inside)))
        return True

    monkeypatch.setattr(ManualBell, "ring", ring)
    finish(store.release(mine))
    assert seen == [(next_one.holder, 0)]


def test_a_place_whose_owner_does_not_come_back_ends() -> None:
    driver = Manual()
    store = MemoryStore(driver, "ends")
    inside, dead, living = claim("x", 60.0), claim("x", 5.0), claim("x", 60.0)
    for each in (inside, dead, living):
        finish(store.claim(each))
    driver.move(6)
    finish(store.release(inside))
    assert not isinstance(finish(store.claim(living)), Place)
