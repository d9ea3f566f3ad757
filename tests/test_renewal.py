"""The renewer, with the clock in hand and a store that fails on command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import holdfast
import holdfast.aio
from holdfast import LeaseLost, Locks, Unavailable, events
from holdfast.asking import Ask
from holdfast.claim import Grant, Verdict
from holdfast.drivers.base import finish
from holdfast.events import Event
from holdfast.renewal import Renewer
from holdfast.sync import Lease
from holdfast.testing.conformance import Tampered, tamper
from holdfast.testing.manual import Manual, ManualBell, connect


@pytest.fixture
def hand(locks: Locks) -> Tampered:
    return tamper(locks)


@pytest.fixture
def told(locks: Locks) -> list[Event]:
    seen: list[Event] = []
    locks.subscribe(seen.append, [events.RENEWED, events.IN_DANGER, events.LOST])
    return seen


def test_a_lease_is_renewed_at_a_third_of_its_ttl(driver: Manual, locks: Locks, told: list[Event]) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    driver.pass_time(9.9)
    assert told == []
    driver.pass_time(0.2)
    assert [(event.kind, event.token) for event in told] == [(events.RENEWED, lease.token)]
    assert told[0].seconds == pytest.approx(20)
    driver.pass_time(3600)
    assert lease.held


def test_all_that_is_due_is_renewed_in_one_conversation(driver: Manual, locks: Locks, hand: Tampered) -> None:
    leases = []
    for number in range(50):
        leases.append(locks.lock(f"x{number}", ttl=30).acquire())
        driver.move(0.01)
    driver.pass_time(29)
    assert hand.calls.count("renew") == 2
    assert all(lease.held for lease in leases)


def test_a_renewal_counts_from_before_it_was_sent(driver: Manual, locks: Locks, hand: Tampered) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(10)
    hand.after = lambda method: driver.move(7) if method == "renew" else None
    driver.renew()
    assert lease.remaining() == 30 - 7


def test_a_renewal_that_fails_is_tried_again_soon_and_told_once(
    driver: Manual, locks: Locks, hand: Tampered, told: list[Event]
) -> None:
    """Elsewhere: an exception ended the renewer and nobody was told; or the lock was never renewed again."""
    lease = locks.lock("x", ttl=30).acquire()
    hand.fail("renew", times=5)
    driver.pass_time(10.5)
    assert lease.in_danger
    assert lease.held
    driver.pass_time(9)
    assert [event.kind for event in told] == [events.IN_DANGER, events.RENEWED]
    assert hand.calls.count("renew") == 6
    assert not lease.in_danger
    driver.pass_time(300)
    assert lease.held


def test_an_unanswered_renewal_extends_nothing(driver: Manual, locks: Locks, hand: Tampered, told: list[Event]) -> None:
    """Unknown never extends: the store did renew, but we could not know."""
    lease = locks.lock("x", ttl=30).acquire()
    hand.fail("renew", times=10**6, reply_only=True)
    driver.pass_time(29.9)
    assert lease.held
    driver.pass_time(0.2)
    assert not lease.held
    assert [event.kind for event in told] == [events.IN_DANGER, events.LOST]


def test_a_lost_lease_is_never_brought_back_by_a_late_yes(
    driver: Manual, locks: Locks, hand: Tampered, told: list[Event]
) -> None:
    """Elsewhere: extend took an expired lock again; a holder that had been told of the loss held it none the less."""
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(10)
    hand.after = lambda method: driver.move(25) if method == "renew" else None  # the yes comes 35 s after the grant
    driver.renew()
    assert not lease.held
    assert [event.kind for event in told] == [events.LOST]
    assert "release" in hand.calls, "what the late yes keeps alive is given back"
    hand.heal()
    assert locks.names() == []
    calls = len(hand.calls)
    driver.pass_time(100)
    assert hand.calls[calls:] == []


def test_one_lease_that_cannot_be_renewed_does_not_take_the_others_along(
    driver: Manual, locks: Locks, hand: Tampered
) -> None:
    leases = {name: locks.lock(name, ttl=30).acquire() for name in ("good", "bad", "fine")}
    whole = hand.renew

    async def renew(grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        if any(grant.claim.name == "bad" for grant in grants):
            raise ValueError("something about this one")
        return await whole(grants, within)

    hand.renew = renew  # type: ignore[method-assign]  # fails on command
    driver.pass_time(100)
    assert {name: lease.held for name, lease in leases.items()} == {"good": True, "bad": False, "fine": True}


def test_what_is_unknown_of_one_lease_touches_no_other(
    driver: Manual, locks: Locks, hand: Tampered, told: list[Event]
) -> None:
    """One node, connection or row in trouble makes its own leases unknown: not lost, and nobody else's business."""
    leases = {name: locks.lock(name, ttl=30).acquire() for name in ("good", "hung", "fine")}
    whole = hand.renew
    hung = True

    async def renew(grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        answers = await whole(grants, within)
        silent = Unavailable("that node does not answer")
        return [
            silent if hung and grant.claim.name == "hung" else answer
            for grant, answer in zip(grants, answers, strict=True)
        ]

    hand.renew = renew  # type: ignore[method-assign]  # one of its nodes hangs
    driver.pass_time(15)
    assert [lease.in_danger for lease in leases.values()] == [False, True, False]
    assert all(lease.held for lease in leases.values())
    hung = False
    driver.pass_time(10)
    assert not leases["hung"].in_danger
    hung = True
    driver.pass_time(100)
    assert {name: lease.held for name, lease in leases.items()} == {"good": True, "hung": False, "fine": True}
    assert [event.name for event in told if event.kind == events.LOST] == ["hung"]
    assert {event.name for event in told if event.kind == events.IN_DANGER} == {"hung"}  # nor is anybody alarmed


def test_a_store_that_answers_too_few_is_treated_as_trouble_and_not_as_the_end_of_renewal(
    driver: Manual, locks: Locks, hand: Tampered
) -> None:
    leases = [locks.lock(name, ttl=30).acquire() for name in "ab"]
    whole = hand.renew

    async def renew(grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        return (await whole(grants, within))[:1]

    hand.renew = renew  # type: ignore[method-assign]  # answers wrongly
    driver.pass_time(100)
    assert all(lease.held for lease in leases)


def test_an_evicted_lease_is_told_at_its_next_renewal(driver: Manual, locks: Locks, told: list[Event]) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    lost: list[Any] = []
    lease.on_lost(lost.append)
    connect(driver).force_release("x", token=lease.token)
    driver.pass_time(10.1)
    assert [event.kind for event in told] == [events.LOST]
    assert "evicted" in told[0].detail
    assert lost == [lease]


def test_what_the_store_itself_reports_as_lost_is_told_at_once_and_of_that_holder_only(
    driver: Manual, locks: Locks, hand: Tampered, told: list[Event]
) -> None:
    """A store whose locks live with a connection knows of its end before any renewal does."""
    lease, other = locks.lock("x", ttl=30).acquire(), locks.lock("y", ttl=30).acquire()
    lost: list[Any] = []
    lease.on_lost(lost.append)
    renewer = locks._engine.renewer
    renewer.taken_away(lease._grant.claim.holder, "its connection has ended")
    assert lost == [lease]
    assert [(event.kind, event.name, event.token) for event in told] == [(events.LOST, "x", lease.token)]
    assert "its connection has ended" in told[0].detail
    with pytest.raises(LeaseLost, match="its connection has ended"):
        lease.check()
    renewer.taken_away(lease._grant.claim.holder, "again")
    renewer.taken_away("nobody", "never heard of")
    assert lost == [lease]
    assert len(told) == 1
    assert "renew" not in hand.calls
    driver.pass_time(100)
    assert other.held


def test_a_loss_reported_after_the_release_is_nobodys(driver: Manual, locks: Locks, told: list[Event]) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    holder = lease._grant.claim.holder
    lease.release()
    locks._engine.renewer.taken_away(holder, "its connection has ended")
    assert told == []
    assert not lease.lost


def test_a_store_that_can_tell_of_losses_is_given_the_renewers_ear(driver: Manual, locks: Locks) -> None:
    class Telling:
        def tell_losses_to(self, listener: Callable[[str, str], None]) -> None:
            self.listener = listener

    store, engine = Telling(), locks._engine
    renewer = Renewer(store, driver, engine.hook, engine.mutex, engine.leaving)  # type: ignore[arg-type]  # all it needs here
    assert store.listener == renewer.taken_away


def test_a_slow_answer_to_a_claim_does_not_make_its_first_renewal_late(
    driver: Manual, locks: Locks, hand: Tampered
) -> None:
    """Its turn comes by when it was sent, although leases that were sent later were filed before it."""
    quick: list[Lease] = []

    def slow(method: str) -> None:
        if method == "claim" and not quick:
            quick.append(None)  # type: ignore[arg-type]  # a mark: the inner claim passes
            driver.move(25)
            quick[0] = locks.lock("quick", ttl=30).acquire()
            driver.move(2)

    hand.after = slow
    late = locks.lock("late", ttl=30).acquire()
    assert late.remaining() == 3
    driver.renew()
    assert late.remaining() == 30
    driver.pass_time(100)
    assert late.held
    assert quick[0].held


def test_a_conversation_ends_in_time_to_tell_whoever_runs_out_meanwhile(
    driver: Manual, locks: Locks, hand: Tampered
) -> None:
    """A store that does not answer is waited for so long as nobody's time runs out."""
    allowed: list[float] = []
    whole = hand.renew

    async def renew(grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        allowed.append(within)
        driver.move(within)
        raise Unavailable("no answer")

    hand.renew = renew  # type: ignore[method-assign]  # takes all the time that it is given
    lease = locks.lock("x", ttl=30).acquire()
    told_at: list[float] = []
    lease.on_lost(lambda _: told_at.append(driver.now()))
    start = driver.now()
    driver.pass_time(40)
    assert whole is not renew
    assert max(allowed) <= 10
    assert told_at[0] - start <= 30 + 30 / 12 + 0.1


def test_who_had_little_time_because_another_runs_out_is_not_told_of_as_a_danger(
    driver: Manual, locks: Locks, hand: Tampered, told: list[Event]
) -> None:
    whole = hand.renew
    allowed: list[float] = []

    async def renew(grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        allowed.append(within)
        answers = await whole(grants, within)
        late = Unavailable("no answer in time")
        quick = within > 30 / 6
        return [
            answer if quick and grant.claim.name == "fine" else late
            for grant, answer in zip(grants, answers, strict=True)
        ]

    hand.renew = renew  # type: ignore[method-assign]  # takes a sixth of the ttl, and of one it knows nothing
    leases = {"fine": locks.lock("fine", ttl=30).acquire()}
    driver.pass_time(1)
    leases["hung"] = locks.lock("hung", ttl=30).acquire()  # it runs out just after the other is renewed a third time
    driver.pass_time(300)
    assert min(allowed) == 30 / 12
    assert {name: lease.held for name, lease in leases.items()} == {"fine": True, "hung": False}
    assert [event.name for event in told if event.kind == events.IN_DANGER] == ["hung"]


def test_short_and_long_leases_do_not_hold_each_other_up(driver: Manual, locks: Locks) -> None:
    leases = [locks.lock(f"x{ttl}", ttl=ttl).acquire() for ttl in (0.3, 3, 30, 300)]
    driver.pass_time(1000)
    assert all(lease.held for lease in leases)


def test_an_at_most_ends_the_lease_here_and_in_the_store(driver: Manual, locks: Locks) -> None:
    """The last renewal reached beyond it; the store is told that it is over."""
    held = finish(locks._engine.acquire(Ask("job", ttl=30.0, at_most=45.0), 0, Lease))
    driver.pass_time(44.9)
    assert held.held
    assert locks.names() == ["job"]
    driver.pass_time(0.2)
    assert not held.held
    assert locks.names() == []


def test_a_released_lease_is_forgotten_by_the_renewer(driver: Manual, locks: Locks, hand: Tampered) -> None:
    """Elsewhere: renewal outlived unlock."""
    for number in range(40):
        locks.lock("x", ttl=10 + number).acquire().release()
    lease = locks.lock("x", ttl=10, renew=False).acquire()
    lease.release()
    assert locks._engine.renewer.leases() == []
    assert len(locks._engine.renewer._by_ttl) <= 17
    driver.pass_time(100)
    assert "renew" not in hand.calls


def test_a_lease_taken_while_the_renewer_goes_home_is_renewed_all_the_same(driver: Manual, locks: Locks) -> None:
    """It decides to go and says so in one step: nobody is left to a renewer that is already out of the door."""
    engine = locks._engine
    taken: list[Lease] = []

    class Watched:
        """A mutex after whose release, when the renewer has just decided to go, somebody comes in."""

        def __init__(self) -> None:
            self.inner = threading.Lock()
            self.since_idle = 0

        def __enter__(self) -> None:
            self.inner.acquire()

        def __exit__(self, *_: object) -> None:
            self.inner.release()
            self.since_idle += driver.now() >= 1000 + 60
            if self.since_idle == 2:  # the first was the last round
                taken.append(locks.lock("x", ttl=30).acquire())

    engine.mutex = Watched()  # type: ignore[assignment]  # only its use as a context manager counts here
    engine.renewer = Renewer(engine.store, driver, engine.hook, engine.mutex, engine.leaving)
    bell = ManualBell(driver)
    engine.renewer._bell = bell
    finish(engine.renewer._run(bell))
    assert taken
    assert engine.renewer._bell is not None, "a renewer runs again"
    assert engine.renewer._bell is not bell
    assert driver.spawned == ["holdfast-renewer"]


def test_a_mistake_of_ours_does_not_end_renewal(
    driver: Manual, locks: Locks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renewer = locks._engine.renewer
    lease = locks.lock("x", ttl=30).acquire()
    rounds = 0

    async def fails() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            renewer._closed = True
        raise AssertionError("a mistake")

    monkeypatch.setattr(renewer, "_round", fails)
    renewer._bell = bell = ManualBell(driver)
    finish(renewer._run(bell))
    assert rounds == 3
    assert lease.held
    assert caplog.text.count("a round of renewals failed") == 3


def test_a_suspended_machine_finds_its_leases_over(driver: Manual, locks: Locks) -> None:
    """The clock counts suspend: on waking, the lease is over at once, before anything was renewed."""
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(3600)
    assert not lease.held
    driver.renew()
    assert lease.lost
    assert locks.names() == []


def test_a_callback_that_takes_its_time_costs_no_other_lease_its_life() -> None:
    """In threads: it closes a connection, say, in the very trouble that lost the lock."""
    with holdfast.connect("memory://slow callback") as locks:
        lost, other = locks.lock("lost", ttl=0.6).acquire(), locks.lock("other", ttl=0.6).acquire()
        called, renewed, enough = threading.Event(), threading.Semaphore(0), threading.Event()

        def slow(_: Lease) -> None:
            called.set()
            enough.wait(20)

        lost.on_lost(slow)
        locks.subscribe(lambda event: renewed.release(), [events.RENEWED])
        locks.force_release("lost", token=lost.token)
        assert called.wait(10)
        for _ in range(3):
            assert renewed.acquire(timeout=10)
        assert other.held
        enough.set()


def test_a_loop_that_was_closed_does_not_take_renewal_with_it() -> None:
    """Not cancelled, just closed: the renewer sleeps there for ever. Whoever comes from another loop gets a new one."""
    locks = holdfast.aio.connect("memory://a-loop-that-was-closed")
    closed = asyncio.new_event_loop()
    first = closed.run_until_complete(locks.lock("first", ttl=0.3).acquire())
    closed.close()

    async def second() -> None:
        renewed = asyncio.Event()
        locks.subscribe(lambda event: renewed.set(), [events.RENEWED])
        lease = await locks.lock("second", ttl=1.5).acquire()  # due after the first, for which somebody is to wake
        async with asyncio.timeout(10):
            await renewed.wait()
        assert lease.held
        await lease.release()
        await locks.close()

    asyncio.run(second())
    assert not first.held
