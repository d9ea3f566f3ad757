"""`connect(url, also=…)`: old code with another library's lock, and new code with ours, exclude each other while both run."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast import aio

from .rivals import NAME, Format, Rival

pytestmark = pytest.mark.server
DEADLINE = float(os.environ.get("HOLDFAST_PATIENCE", "60"))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.02)


def test_while_we_are_inside_old_code_is_not_and_the_other_way_round(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks:
        with locks.lock(NAME):
            assert not rival.take()
        assert rival.take()
        assert locks.lock(NAME).try_acquire() is None
        rival.give_back()
        with locks.lock(NAME, timeout=DEADLINE):
            assert not rival.take()


def test_the_same_in_asyncio(form: Format, rival: Rival, url: str) -> None:
    async def main() -> None:
        async with aio.connect(url, also=form.also) as locks:
            async with locks.lock(NAME):
                assert not await asyncio.to_thread(rival.take)
            assert await asyncio.to_thread(rival.take)
            assert await locks.lock(NAME).try_acquire() is None
            waiting = asyncio.create_task(locks.lock(NAME).acquire(timeout=DEADLINE))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await asyncio.to_thread(rival.give_back)
            lease = await waiting
            assert not await asyncio.to_thread(rival.take)
            await lease.release()

    asyncio.run(main())


def test_who_waits_comes_in_when_old_code_leaves(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks:
        assert rival.take()
        got: list[holdfast.Lease] = []
        thread = threading.Thread(target=lambda: got.append(locks.lock(NAME).acquire(timeout=DEADLINE)))
        thread.start()
        until(lambda: bool(locks.inspect(NAME).holders))
        assert not got
        rival.give_back()
        thread.join(DEADLINE)
        assert not rival.take()
        got[0].release()


def test_who_does_not_wait_leaves_nothing_behind(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks, holdfast.connect(url) as without:
        assert rival.take()
        with pytest.raises(holdfast.NotAcquired, match="held by somebody who uses"):
            locks.lock(NAME).acquire(timeout=0)
        with without.lock(NAME, timeout=0):  # the new store has nothing of it
            pass
        rival.give_back()
        assert rival.take()  # nor has the old one
        rival.give_back()


def test_who_gave_up_waiting_leaves_nothing_behind(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks, holdfast.connect(url) as without:
        assert rival.take()
        started = time.monotonic()
        with pytest.raises(holdfast.NotAcquired, match="held by somebody who uses"):
            locks.lock(NAME).acquire(timeout=0.5)
        assert time.monotonic() - started < DEADLINE
        with without.lock(NAME, timeout=5):
            pass
        rival.give_back()
        assert rival.take()
        rival.give_back()


def test_a_lease_is_lost_with_the_old_lock(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks:
        lease = locks.lock(NAME, ttl=3).acquire()
        rival.rob()
        assert lease.lost.wait(DEADLINE)
        with pytest.raises(holdfast.LeaseLost):
            lease.check()


def test_both_are_renewed(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks:
        renewed = threading.Semaphore(0)
        locks.subscribe(lambda event: renewed.release(), ["renewed"])
        with locks.lock(NAME, ttl=3) as lease:
            for _ in range(4):  # at a third of the ttl each: without them it would be over
                assert renewed.acquire(timeout=DEADLINE)
            lease.check()
            assert not rival.take()


def test_what_was_lost_in_the_new_store_is_let_go_in_the_old_one(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks:
        lease = locks.lock(NAME, ttl=2).acquire()
        assert locks.force_release(NAME, token=lease.token)
        assert lease.lost.wait(DEADLINE)
        until(rival.take)
        rival.give_back()


def test_what_is_left_to_end_ends_in_the_old_one_too(form: Format, rival: Rival, url: str) -> None:
    """A node or a connection would live on: nobody gives back a lease that is over."""
    with holdfast.connect(url, also=form.also) as locks:
        lease = locks.lock(NAME, ttl=2, renew=False).acquire()
        until(rival.take)
        assert not lease.held
        rival.give_back()


def test_tokens_are_those_of_the_new_store(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks, holdfast.connect(url) as without:
        with without.lock(NAME) as first:
            pass
        with locks.lock(NAME) as second:
            assert [one.token for one in without.inspect(NAME).holders] == [second.token]
        with without.lock(NAME) as third:
            assert first.token < second.token < third.token


def test_a_connection_that_is_closed_gives_both_back(form: Format, rival: Rival, url: str) -> None:
    locks = holdfast.connect(url, also=form.also)
    lease = locks.lock(NAME).acquire()
    locks.close()
    assert not lease.held
    assert rival.take()
    rival.give_back()


def test_only_one_of_many_is_inside(form: Format, url: str) -> None:
    """Old and new code, several of each, count up what would lose counts if two were inside."""
    inside, most, turns = 0, 0, 0
    mutex = threading.Lock()

    def count(step: int) -> None:
        nonlocal inside, most, turns
        with mutex:
            inside += step
            most = max(most, inside)
            turns += step > 0

    def old() -> None:
        one = form.rival()
        for _ in range(3):
            until(one.take)
            count(+1)
            time.sleep(0.002)
            count(-1)
            one.give_back()
        one.close()

    def new() -> None:
        with holdfast.connect(url, also=form.also) as locks:
            for _ in range(3):
                with locks.lock(NAME, timeout=DEADLINE):
                    count(+1)
                    time.sleep(0.002)
                    count(-1)

    threads = [threading.Thread(target=one) for one in (old, new, old, new)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert (most, turns) == (1, 12)
