"""`confirm=False` on a store that is far away: a worker releases, and whoever left has gone on. With the clock in hand."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

import holdfast
from holdfast import LeaseLost, Locks, Unavailable, aio, events
from holdfast.claim import Claim, Traits
from holdfast.events import Event
from holdfast.leaving import _MOST
from holdfast.testing.conformance.tampering import Tampered
from holdfast.testing.manual import Manual, ManualBell

SOON = 20.0


class Far(Tampered):
    """Nothing is further away than this store says that it is."""

    @property
    def traits(self) -> Traits:
        return self.store.traits._replace(scope="network")


def far(locks: Any) -> Far:
    engine = locks._engine
    hand = Far(engine.store, engine.driver)
    engine.store = engine.renewer._store = engine.leaving._store = hand
    return hand


@pytest.fixture
def hand(locks: Locks) -> Far:
    return far(locks)


def releases(hand: Far) -> int:
    return hand.calls.count("release")


def heard(locks: Locks, *kinds: str) -> list[Event]:
    told: list[Event] = []
    locks.subscribe(told.append, list(kinds))
    return told


def test_whoever_leaves_goes_on_and_a_worker_sends_the_release(driver: Manual, locks: Locks, hand: Far) -> None:
    lease = locks.lock("x", confirm=False).acquire()
    assert lease.release() is True
    assert not lease.held
    assert releases(hand) == 0
    assert "holdfast-leaving" in driver.spawned
    driver.renew()
    assert releases(hand) == 1
    assert locks.names() == []


def test_a_store_that_is_near_is_asked_at_once(locks: Locks) -> None:
    locks.lock("x", confirm=False).acquire().release()
    assert locks.names() == []


def test_the_end_of_a_body_is_looked_at_here(driver: Manual, locks: Locks, hand: Far) -> None:
    with pytest.raises(LeaseLost), locks.lock("x", ttl=30, renew=False, confirm=False):
        driver.move(31)


def test_one_that_is_not_answered_is_repeated_until_its_end_and_then_told(
    driver: Manual, locks: Locks, hand: Far
) -> None:
    told = heard(locks, events.RELEASE_FAILED, events.LOST)
    lease = locks.lock("x", ttl=30, confirm=False).acquire()
    hand.fail("release", times=10**6)
    assert lease.release() is True
    driver.pass_time(29)
    assert releases(hand) > 50
    assert told == []
    driver.pass_time(2)
    assert [(event.kind, event.name, event.token) for event in told] == [(events.RELEASE_FAILED, "x", lease.token)]


def test_what_only_the_store_knew_is_an_event(driver: Manual, locks: Locks, hand: Far) -> None:
    told = heard(locks, events.LOST)
    lease = locks.lock("x", confirm=False).acquire()
    assert locks.force_release("x", token=lease.token)
    assert lease.release() is True
    driver.renew()
    assert [(event.name, event.token) for event in told] == [("x", lease.token)]


def test_one_that_arrived_and_is_repeated_is_no_loss(driver: Manual, locks: Locks, hand: Far) -> None:
    told = heard(locks, events.LOST)
    hand.fail("release", times=1, reply_only=True)
    locks.lock("x", confirm=False).acquire().release()
    driver.pass_time(1)
    assert releases(hand) == 2
    assert told == []


def test_one_whose_claim_may_land_late_is_waited_for(driver: Manual, locks: Locks, hand: Far) -> None:
    """It is looked for again after the release, and by somebody else: who would tell them apart?"""
    told = heard(locks, events.LOST)
    hand.fail("claim", times=1, reply_only=True)
    locks.lock("x", confirm=False).acquire().release()
    assert releases(hand) == 1
    driver.pass_time(10)
    assert told == []


def test_there_are_so_many_at_once_and_then_whoever_leaves_waits(driver: Manual, locks: Locks, hand: Far) -> None:
    leases = [locks.lock(f"x{number}", confirm=False).acquire() for number in range(_MOST + 3)]
    for lease in leases:
        lease.release()
    assert releases(hand) == 3
    driver.renew()
    assert locks.names() == []


def test_whoever_wants_it_again_waits_for_the_release_and_not_in_line(driver: Manual, locks: Locks, hand: Far) -> None:
    locks.lock("x", confirm=False).acquire().release()

    def meanwhile(seconds: float) -> None:
        driver.waiting = driver.move
        driver.renew()

    driver.waiting = meanwhile
    lease = locks.lock("x").try_acquire()
    assert lease is not None
    assert hand.calls == ["claim", "release", "claim"]


def test_a_lease_counts_from_when_its_turn_had_come(driver: Manual, locks: Locks, hand: Far) -> None:
    locks.lock("x", confirm=False).acquire().release()

    def meanwhile(seconds: float) -> None:
        driver.waiting = driver.move
        driver.move(0.3)
        driver.renew()

    driver.waiting = meanwhile
    with locks.lock("x", ttl=30) as lease:
        assert lease.remaining() == 30


def test_whoever_waits_for_a_release_is_told_when_it_is_done(driver: Manual, locks: Locks, hand: Far) -> None:
    leaving = locks._engine.leaving
    locks.lock("x", confirm=False).acquire().release()
    bell = ManualBell(driver)
    leaving.going["x"].bells.append(bell)
    driver.renew()
    assert bell.rung


def test_whoever_wants_it_again_waits_for_a_silent_store_no_longer_than_for_any_other_answer(
    driver: Manual, locks: Locks, hand: Far
) -> None:
    locks.lock("x", confirm=False).acquire().release()
    hand.fail("release", times=10**6)
    before = driver.now()
    assert locks.lock("x").try_acquire() is None
    assert driver.now() - before <= 1


@pytest.mark.parametrize("confirm", [False, True])
def test_whoever_is_refused_behind_his_own_release_says_it_again(
    driver: Manual, locks: Locks, hand: Far, confirm: bool
) -> None:
    """Here it broke: "held by" himself, though he had left: nobody knew yet whether the release had arrived."""
    told = heard(locks, events.LOST)
    lease = locks.lock("x", ttl=60, confirm=confirm).acquire()
    hand.fail("release", times=3 if confirm else 1)
    with contextlib.suppress(Unavailable):
        lease.release()
    driver.renew()
    assert locks.names() == ["x"]
    again = locks.lock("x").try_acquire()
    assert again is not None
    driver.pass_time(5)
    again.check()
    assert told == [], "what was said twice is no loss"


def test_what_is_said_again_before_it_was_tried_is_no_loss(driver: Manual, locks: Locks, hand: Far) -> None:
    told = heard(locks, events.LOST)
    locks.lock("x", ttl=60, confirm=False).acquire().release()
    assert locks.lock("x").try_acquire() is not None, "no worker has come to it so far"
    driver.pass_time(5)
    assert told == []


def test_whoever_was_interrupted_while_leaving_has_left_and_hears_of_no_loss(
    driver: Manual, locks: Locks, hand: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = heard(locks, events.LOST)
    lease = locks.lock("x", confirm=False).acquire()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver, "spawn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lease.release()
    assert locks.names() == []
    driver.pass_time(5)
    assert told == []
    assert not locks._engine.leaving.going


def test_without_a_thread_to_be_had_whoever_leaves_waits(
    driver: Manual, locks: Locks, hand: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = heard(locks, events.LOST)
    lease = locks.lock("x", confirm=False).acquire()

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "spawn", no_thread)
        assert lease.release() is True
    assert locks.names() == []
    driver.pass_time(5)
    assert told == []


def test_closing_waits_for_those_that_nobody_waited_for(driver: Manual, locks: Locks, hand: Far) -> None:
    told = heard(locks, events.RELEASE_FAILED)
    locks.lock("x", ttl=60, confirm=False).acquire().release()
    locks.close()
    assert releases(hand) == 1
    assert told == []


def test_closing_waits_no_longer_than_it_was_told(driver: Manual, locks: Locks, hand: Far) -> None:
    told = heard(locks, events.RELEASE_FAILED)
    locks.lock("x", ttl=60, confirm=False).acquire().release()
    hand.fail("release", times=10**6)
    before = driver.now()
    locks.close(timeout=2)
    assert driver.now() - before <= 2.1
    assert [event.name for event in told] == ["x"]


def test_a_child_sends_nothing_of_its_parent(driver: Manual, locks: Locks, hand: Far) -> None:
    locks.lock("x", confirm=False).acquire().release()
    locks._engine.forked()
    driver.pass_time(5)
    assert releases(hand) == 0


# ---- in real threads


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-leaving"]


def test_one_thread_sends_them_all_and_goes_home_at_the_end() -> None:
    before = set(workers())
    with holdfast.connect("memory://unconfirmed-threads") as locks:
        far(locks)
        seen = set()
        for number in range(50):
            with locks.lock(f"x{number}", confirm=False):
                pass
            end = time.monotonic() + SOON
            while locks.names():
                assert time.monotonic() < end
                time.sleep(0.001)
            seen |= set(workers()) - before
        assert len(seen) <= 4, "to start a thread takes longer than most releases"
    end = time.monotonic() + SOON
    while set(workers()) & seen:
        assert time.monotonic() < end, "a thread has stayed"
        time.sleep(0.005)


def test_a_release_that_hangs_keeps_nobody_else_waiting() -> None:
    hangs, go_on = threading.Event(), threading.Event()
    with holdfast.connect("memory://unconfirmed-hangs") as locks:
        hand = far(locks)
        leave = hand.store.release

        async def release(claim: Any, within: float = 3.0) -> bool:
            if claim.name == "hangs":
                hangs.set()
                go_on.wait(10 * SOON)
                raise Unavailable("it did")
            return await leave(claim, within)

        hand.store.release = release  # type: ignore[method-assign]
        locks.lock("hangs", ttl=5, confirm=False).acquire().release()
        assert hangs.wait(SOON)
        locks.lock("y", ttl=60, confirm=False).acquire().release()
        end = time.monotonic() + SOON / 2
        while "y" in locks.names() and time.monotonic() < end:
            time.sleep(0.005)
        left = locks.names()
        hand.store.release = leave  # type: ignore[method-assign]
        go_on.set()
    assert left == ["hangs"]


def test_one_that_a_loop_left_in_the_middle_goes_on_in_the_next_and_is_no_loss() -> None:
    """It arrived, and its worker ended with the loop before it knew: to find nothing when it is repeated tells nothing."""
    locks = aio.connect("memory://interrupted")
    hand = far(locks)
    told: list[Event] = []
    locks.subscribe(told.append, [events.LOST])
    whole = hand.release

    async def first() -> None:
        arrived = asyncio.Event()

        async def unanswered(claim: Claim, within: float = 3.0) -> bool:
            await whole(claim, within)
            arrived.set()
            await asyncio.Event().wait()
            return True

        hand.release = unanswered  # type: ignore[method-assign]
        async with locks.lock("x", ttl=600, confirm=False):
            pass
        async with asyncio.timeout(20):
            await arrived.wait()

    async def second() -> None:
        hand.release = whole  # type: ignore[method-assign]
        async with asyncio.timeout(20):
            async with locks.lock("x", ttl=600):
                assert "x" not in locks._engine.leaving.going, "it waited, and nobody was at it"
        await locks.close()

    asyncio.run(first())
    asyncio.run(second())
    assert told == []
