"""Lending, with the clock in hand: what the suite of all stores cannot hold still."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest

import holdfast
from holdfast import LeaseLost, Locks, Misuse, NotAcquired, Unavailable, Unsupported, events
from holdfast.claim import ROUND, Claim
from holdfast.events import Event
from holdfast.lending import MOST_THREADS
from holdfast.staying import Kept, Stay, Waiter
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual


def stay_of(lease: holdfast.sync.Lease) -> Stay:
    stay: Stay = lease._stay
    return stay


def test_what_is_over_is_not_lent_though_nobody_has_noticed_yet(driver: Manual, locks: Locks) -> None:
    lock = locks.lock("x", ttl=30, keep=100)
    first = lock.acquire()
    stay = stay_of(first)  # as its keeper would refer to it
    first.release()
    driver.move(29)
    second = lock.acquire()
    assert second.token == first.token
    assert second.remaining() == pytest.approx(1)
    second.release()
    driver.move(1)
    assert stay._state == "held"
    third = lock.acquire(timeout=5)
    assert third.token > first.token
    assert third.held


def test_what_happens_to_the_grant_happens_to_who_is_inside(driver: Manual, locks: Locks) -> None:
    lock = locks.lock("x", ttl=30, keep=100)
    lease = lock.acquire()
    hand = tamper(locks)
    driver.pass_time(25)
    assert lease.remaining() > 15
    hand.fail("renew", times=100)
    driver.pass_time(12)
    assert lease.in_danger
    lost: list[object] = []
    lease.on_lost(lost.append)
    driver.pass_time(30)
    assert lost == [lease]
    with pytest.raises(LeaseLost, match="lost the lock 'x'"):
        lease.check()


def test_a_renewal_by_hand_renews_the_grant(driver: Manual, locks: Locks) -> None:
    lock = locks.lock("x", ttl=30, keep=100)
    lease = lock.acquire()
    stay = stay_of(lease)
    driver.move(9)
    lease.renew()
    assert lease.remaining() == stay.remaining() == pytest.approx(30)
    with pytest.raises(Misuse, match="renew=False"):
        lease.extend(5)


def test_who_waits_elsewhere_waits_no_longer_than_keep_for_those_who_wait_here(driver: Manual, locks: Locks) -> None:
    lock = locks.lock("x", ttl=30, keep=2)
    lease = lock.acquire()
    stay = stay_of(lease)
    kept = stay.kept
    assert kept is not None
    here = Waiter(driver.bell())
    kept.line.append(ref(here))
    kept.wanted = driver.now()
    driver.move(1.9)
    assert not kept.is_over(stay, driver.now())
    driver.move(0.1)
    assert kept.is_over(stay, driver.now())


def test_who_writes_elsewhere_waits_no_longer_than_keep_for_readers_who_come_here(driver: Manual, locks: Locks) -> None:
    lock = locks.rwlock("x", ttl=30, keep=2).read()
    lease = lock.acquire()
    stay = stay_of(lease)
    kept = stay.kept
    assert kept is not None
    here = Waiter(driver.bell())
    kept.line.append(ref(here))
    kept.wanted = driver.now()
    driver.move(1.9)
    assert kept.may_lend(stay, driver.now())
    driver.move(0.1)
    assert not kept.may_lend(stay, driver.now())
    assert lease.held


def test_a_reader_who_only_tries_is_not_refused_since_others_here_ask(driver: Manual, locks: Locks) -> None:
    lock = locks.rwlock("x", ttl=30, keep=60).read()
    lease = lock.acquire()
    kept = stay_of(lease).kept
    assert kept is not None
    here = Waiter(driver.bell())
    kept.line.append(ref(here))
    with locks._engine.mutex:
        locks._engine.mine._leases.clear()  # as if it were another thread's
    other = lock.try_acquire()
    assert other is not None
    assert other.token > lease.token, "one of its own"


def test_a_newcomer_does_not_overtake_the_line(driver: Manual, locks: Locks) -> None:
    lock = locks.lock("x", keep=60)
    lease = lock.acquire()
    stay = stay_of(lease)
    assert stay.kept is not None
    waiter = Waiter(driver.bell())
    stay.kept.line.append(ref(waiter))
    lease.release()
    assert waiter.bell.rung  # type: ignore[attr-defined]
    assert lock.try_acquire() is None, "it has its turn, though it has not woken up yet"
    del waiter  # whatever became of it, it is in nobody's way
    assert lock.acquire(timeout=0).token == lease.token


def test_without_a_keeper_the_grant_goes_with_who_was_inside(driver: Manual, locks: Locks) -> None:
    """The clock stands still here, and so does the background: nobody else refers to the grant."""
    lease = locks.lock("x", ttl=30, keep=100).acquire()
    lease.release()
    gc.collect()
    driver.renew()
    assert locks.names() == []


def test_whoever_knows_of_it_last_gives_it_back_when_everything_is_closed(driver: Manual, locks: Locks) -> None:
    """A keeper that went home at once took the grant with it, before close() had seen it."""
    lease = locks.lock("x", ttl=30, keep=100).acquire()
    stay = stay_of(lease)
    kept, lending = stay.kept, locks._engine.lending
    assert kept is not None
    locks._engine.closed = True
    assert lending._next_look(kept, stay), "somebody is inside, who will give it back"
    assert lending.give_back(lease) is stay
    assert stay._state == "releasing"
    locks._engine.closed = False
    other = locks.lock("y", ttl=30, keep=100).acquire()
    stay = stay_of(other)
    other.release()
    kept = stay.kept
    assert kept is not None
    locks._engine.closed = True
    assert lending._next_look(kept, stay) == 0.0, "the keeper gives it up, and does not just go"


def test_what_is_over_is_given_up_in_the_time_of_who_asks(driver: Manual, locks: Locks) -> None:
    """Half of the second that a call may outlast its timeout is for that, and the other half for asking."""
    lock = locks.lock("x", ttl=30, keep=100)
    lease = lock.acquire()
    stay = stay_of(lease)  # as its keeper would refer to it
    lease._failed()
    with locks._engine.mutex:
        stay.inside = ()  # dropped, and nobody has noticed yet
    hand = tamper(locks)
    asked: list[float] = []

    async def silent(claim: Claim, within: float = ROUND) -> Any:
        asked.append(within)
        driver.move(within)
        raise Unavailable("nobody answers, as the test wants it")

    hand.release = hand.claim = silent  # type: ignore[method-assign]
    before = driver.now()
    with pytest.raises(Unavailable):
        lock.acquire(timeout=0)
    assert asked == pytest.approx([0.5, 0.5])
    assert driver.now() - before <= 1
    assert stay._state != "held"
    del hand.release, hand.claim
    driver.pass_time(5)
    assert locks.names() == []


def test_who_writes_asks_in_what_is_left_of_its_time(driver: Manual, locks: Locks) -> None:
    """To give up what its own readers have left does not come on top of it."""
    lock = locks.rwlock("x", ttl=30, keep=100)
    lease = lock.read().acquire()
    stay = stay_of(lease)  # as its keeper would refer to it
    lease.release()
    hand = tamper(locks)
    asked: list[float] = []

    async def silent(claim: Claim, within: float = ROUND) -> Any:
        asked.append(within)
        driver.move(within)
        raise Unavailable("nobody answers, as the test wants it")

    hand.release = hand.claim = silent  # type: ignore[method-assign]
    before = driver.now()
    with pytest.raises(Unavailable):
        lock.write().acquire(timeout=0)
    assert asked == pytest.approx([0.5, 0.5])
    assert driver.now() - before <= 1
    assert stay._state != "held"
    del hand.release, hand.claim
    driver.pass_time(5)


def test_names_beyond_those_that_are_kept_are_not_compared_with_all_of_them(driver: Manual, locks: Locks) -> None:
    """Here it broke: each of 3,000 looked at 1,024 others, and a healthy server seemed not to answer."""
    leases = [locks.lock(f"kept{n}", keep=60).acquire() for n in range(MOST_THREADS)]
    lending, looks = locks._engine.lending, 0
    tidy = lending._tidy

    def counted(kept: Kept) -> None:
        nonlocal looks
        looks += 1
        tidy(kept)

    lending._tidy = counted  # type: ignore[method-assign]
    for number in range(100):
        locks.lock(f"beyond{number}", keep=60).acquire().release()
    assert looks == MOST_THREADS
    leases.pop().release()
    gc.collect()  # nobody keeps it here: its keeper does not run
    driver.move(1)
    assert locks.lock("another", keep=60).acquire()._stay is not None, "one that nobody has makes room"


def test_each_section_is_told_of_and_the_grant_is_not() -> None:
    told: list[Event] = []
    with holdfast.connect("memory://told") as locks:
        locks.subscribe(told.append, [events.ACQUIRED, events.RELEASED, events.LOST, events.DROPPED])
        lock = locks.lock("x", keep=60)
        for _ in range(3):
            with lock as lease:
                pass
    assert [event.kind for event in told] == [events.ACQUIRED, events.RELEASED] * 3
    assert {event.token for event in told} == {lease.token}


def test_a_subscriber_that_closes_everything_is_believed() -> None:
    locks = holdfast.connect("memory://closing")
    lock = locks.lock("x", keep=60)
    with lock:
        pass
    locks.subscribe(lambda _: locks.close(), [events.ACQUIRED])
    with pytest.raises(Misuse, match="closed"):
        lock.acquire()


def test_who_holds_it_is_told_and_does_not_wait_for_itself() -> None:
    with holdfast.connect("memory://itself") as locks:
        lock = locks.lock("x", keep=60)
        with lock:
            with pytest.raises(Misuse, match="wait for yourself"):
                lock.acquire()
            with pytest.raises(Misuse, match="wait for yourself"):
                locks.lock("x").acquire()
            with pytest.raises(NotAcquired):
                lock.acquire(timeout=0.01)
        with lock:
            pass


def test_more_names_than_can_be_looked_after_are_not_kept() -> None:
    with holdfast.connect("memory://many") as locks:
        for number in range(MOST_THREADS + 5):
            with locks.lock(f"x{number}", keep=60):
                pass
        assert len(locks.names()) == MOST_THREADS
        with locks.lock(f"x{MOST_THREADS + 1}", keep=60, timeout=1):
            assert len(locks.names()) == MOST_THREADS + 1


def test_a_function_is_decorated_with_what_is_kept() -> None:
    with holdfast.connect("memory://decorated") as locks:

        @locks.lock("tenant:{tenant}", keep=60)
        def work(lease: holdfast.Lease, tenant: int) -> int:
            return lease.token

        assert work(7) == work(7) != work(8)
        assert locks.names() == ["tenant:7", "tenant:8"]


@pytest.mark.parametrize("keep", [-1, float("nan"), "1", None, 10**9])
def test_nonsense_is_refused(locks: Locks, keep: object) -> None:
    with pytest.raises(Misuse, match="keep"):
        locks.lock("x", keep=keep)  # type: ignore[call-overload]


def test_what_does_not_go_together_is_refused(locks: Locks) -> None:
    with pytest.raises(Misuse, match="renew=False"):
        locks.lock("x", keep=1, renew=False)
    with pytest.raises(Misuse, match=r"takes no `keep=`; that is for lock\(\), rwlock\(\)"):
        locks.semaphore("x", 3, keep=1)  # type: ignore[call-overload]


def test_a_store_that_cannot_tell_who_waits_says_so(locks: Locks) -> None:
    class Deaf:
        traits = locks.traits

    locks._engine.store = Deaf()  # type: ignore[assignment]
    with pytest.raises(Unsupported, match="leave keep= out"):
        locks.lock("x", keep=1)
