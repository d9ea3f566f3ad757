"""Leases that are renewed by hand, waits that are given up, leaders that stand again."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast import Lease, LeaseLost, Locks, Misuse, NotAcquired, Unavailable, aio
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


@pytest.fixture
def driver() -> Manual:
    return Manual()


@pytest.fixture
def locks(driver: Manual) -> Locks:
    return connect(driver)


# ---- renewed by hand


def test_a_lease_that_does_not_renew_itself_can_be_renewed(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30, renew=False).acquire()
    driver.pass_time(20)
    lease.renew()
    assert lease.remaining() == pytest.approx(30)
    driver.pass_time(29)
    assert lease.held
    assert locks.inspect("x").holders[0].token == lease.token
    driver.pass_time(2)
    assert not lease.held
    assert locks.names() == []


def test_an_extended_lease_ends_when_it_was_said_to(driver: Manual, locks: Locks) -> None:
    """Longer than its ttl it is renewed meanwhile; shorter, it is given back before the store would end it."""
    lease = locks.lock("x", ttl=30, renew=False).acquire()
    lease.extend(100)
    driver.pass_time(99)
    assert lease.held
    assert lease.remaining() == pytest.approx(1)
    driver.pass_time(2)
    assert not lease.held
    assert locks.names() == [], "the store has it no more, either"
    lease = locks.lock("x", ttl=30, renew=False).acquire()
    lease.extend(5)
    driver.pass_time(6)
    assert not lease.held
    assert locks.names() == []


def test_an_extension_wakes_the_renewer_in_time(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30, renew=False).acquire()
    driver.move(1)
    lease.extend(100)
    assert locks._engine.renewer._wake_at <= driver.now() + 10


def test_what_was_lost_is_not_brought_back(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30, renew=False).acquire()
    connect(driver).force_release("x", token=lease.token)
    with pytest.raises(LeaseLost, match="the store no longer has it"):
        lease.extend(60)
    assert lease.lost
    late = locks.lock("x", ttl=30, renew=False).acquire()
    driver.move(31)
    with pytest.raises(LeaseLost):
        late.renew()
    assert locks.names() == []


def test_an_extension_that_nobody_answered_extends_nothing(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30, renew=False).acquire()
    tamper(locks).fail("renew")
    driver.move(10)
    with pytest.raises(Unavailable):
        lease.extend(100)
    assert lease.remaining() == pytest.approx(20)


def test_a_lease_that_renews_itself_has_no_end_to_be_moved(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    with pytest.raises(Misuse, match="renews itself"):
        lease.extend(60)
    driver.move(9)
    lease.renew()
    assert lease.remaining() == pytest.approx(30)
    driver.pass_time(100)
    assert lease.held
    with pytest.raises(Misuse, match="seconds must be at least"):
        lease.extend(0)


# ---- given up


def test_a_wait_is_given_up_when_another_thread_says_so(tmp_path: object) -> None:
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks, locks.lock("x"):
        stop = threading.Event()
        waiting = threading.Event()
        locks.subscribe(lambda _: waiting.set(), ["waiting"])
        outcome: list[BaseException] = []

        def wait() -> None:
            try:
                locks.lock("x").acquire(cancel=stop)
            except NotAcquired as error:
                outcome.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(10)
        began = time.monotonic()
        stop.set()
        thread.join(10)
        assert time.monotonic() - began < 1.5
        assert "gave up waiting for 'x': what was passed as cancel= is set" in str(outcome[0])
        assert locks.inspect("x").waiters == ()


def test_a_wait_that_may_be_given_up_still_gets_the_lock(driver: Manual, locks: Locks) -> None:
    held = connect(driver).lock("x", ttl=600).acquire()

    def meanwhile(seconds: float) -> None:
        driver.move(seconds)
        if driver.now() > 1030 and held.held:
            held.release()

    driver.waiting = meanwhile
    assert locks.lock("x").acquire(cancel=threading.Event()).held
    with pytest.raises(NotAcquired, match="within 5 s"):
        connect(driver).lock("x").acquire(timeout=5, cancel=threading.Event())


# ---- leading again and again


def test_a_leader_that_lost_stands_again(driver: Manual, locks: Locks) -> None:
    election, other = locks.election("boss", address="me"), connect(driver)
    terms: list[int] = []
    lost: list[Lease] = []

    def lead(lease: Lease) -> str:
        terms.append(lease.token)
        if len(terms) < 3:
            other.force_release("boss", token=lease.token)
            driver.pass_time(20)
        lease.check()
        return "done"

    assert election.run(lead, on_lost=lost.append) == "done"
    assert len(terms) == 3
    assert terms == sorted(terms)
    assert [lease.token for lease in lost] == terms[:2]
    assert locks.names() == [], "who is done leads no more"


def test_a_leader_whose_work_fails_leads_no_more(locks: Locks) -> None:
    """Elsewhere it goes on renewing, and nobody else can lead."""

    def lead(lease: Lease) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        locks.election("boss").run(lead)
    assert locks.names() == []


def test_each_round_of_the_loop_is_a_term_and_leaving_it_ends_the_term(driver: Manual, locks: Locks) -> None:
    terms = []
    for lease in locks.election("boss").terms():
        assert lease.held
        terms.append(lease.token)
        if len(terms) == 3:
            break
    assert terms == sorted(set(terms))
    assert not lease.held
    assert locks.names() == []


def test_a_store_that_does_not_answer_is_ridden_out_with_longer_and_longer_pauses(driver: Manual, locks: Locks) -> None:
    tamper(locks).fail("claim", times=8)
    before = driver.now()
    for lease in locks.election("boss", ttl=1).terms():
        assert lease.held
        break
    assert driver.now() - before > 0.5


def test_terms_end_when_told_to(driver: Manual, locks: Locks) -> None:
    stop = threading.Event()

    def meanwhile(seconds: float) -> None:
        driver.move(seconds)
        stop.set()

    with connect(driver).election("boss").lead():
        driver.waiting = meanwhile
        assert list(locks.election("boss").terms(cancel=stop)) == []
    assert locks.election("boss").run(lambda lease: 5, cancel=stop) is None


def test_tasks_lead_again_and_again_too() -> None:
    async def main() -> None:
        async with aio.connect("memory://terms") as locks, aio.connect("memory://terms") as other:
            election = locks.election("boss", ttl=0.3)
            terms: list[int] = []

            async def lead(lease: aio.Lease) -> str:
                terms.append(lease.token)
                if len(terms) == 1:
                    await other.force_release("boss", token=lease.token)
                    await asyncio.sleep(10)  # cancelled by the loss
                return "done"

            assert await election.run(lead) == "done"
            assert len(terms) == 2
            async for lease in election.terms():
                assert lease.held
                await lease.extend(5) if lease._limit else await lease.renew()
                break

    asyncio.run(asyncio.wait_for(main(), 20))
