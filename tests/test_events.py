"""What is told, and that a subscriber breaks nothing."""

from __future__ import annotations

import logging

import pytest

from holdfast import Locks, Misuse, NotAcquired, Unavailable, events
from holdfast.events import Event, Hook
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


def test_a_life_is_told_in_order(driver: Manual, locks: Locks) -> None:
    told: list[Event] = []
    locks.subscribe(told.append)
    lease = locks.lock("x", ttl=30).acquire()
    driver.pass_time(15)
    lease.release()
    assert [(event.kind, event.name, event.token, event.owner) for event in told] == [
        (kind, "x", lease.token, lease.owner) for kind in (events.ACQUIRED, events.RENEWED, events.RELEASED)
    ]
    assert told[0].seconds == 0
    assert told[2].seconds == pytest.approx(15)


def test_who_waits_in_vain_is_told_how_long(driver: Manual, locks: Locks) -> None:
    told: list[Event] = []
    other = connect(driver)
    other.subscribe(told.append)
    locks.lock("x", ttl=600).acquire()
    with pytest.raises(NotAcquired):
        other.lock("x").acquire(timeout=5)
    assert [event.kind for event in told] == [events.WAITING, events.NOT_ACQUIRED]
    assert told[1].seconds == pytest.approx(5)


def test_trouble_is_told(driver: Manual, locks: Locks) -> None:
    told: list[Event] = []
    locks.subscribe(told.append, events.ALARMING)
    hand = tamper(locks)
    lease = locks.lock("x", ttl=30).acquire()
    hand.fail("renew", times=10**6)
    driver.pass_time(31)
    held = locks.lock("y").acquire()
    hand.fail("release", times=10**6)
    with pytest.raises(Unavailable):
        held.release()
    assert [event.kind for event in told] == [events.IN_DANGER, events.LOST], "the release goes on in the background"
    driver.pass_time(31)
    assert [event.kind for event in told] == [events.IN_DANGER, events.LOST, events.RELEASE_FAILED]
    assert told[0].seconds == pytest.approx(20, abs=0.1)
    assert "as the test wants it" in told[0].detail
    assert told[1].token == lease.token


def test_a_subscriber_that_raises_breaks_nothing_and_is_reported(
    locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def raises(event: Event) -> None:
        raise ZeroDivisionError("the subscriber's own")

    locks.subscribe(raises)
    locks.subscribe(lambda event: told.append(event.kind))
    with locks.lock("x"):
        pass
    assert told == [events.ACQUIRED, events.RELEASED]
    assert "a subscriber to 'acquired' failed" in caplog.text


def test_a_subscription_ends_and_ends_only_itself() -> None:
    hook = Hook()
    first: list[Event] = []
    second: list[Event] = []
    end_first = hook.subscribe(first.append, [events.LOST])
    hook.subscribe(second.append, [events.LOST])
    hook.emit(events.LOST, "x")
    end_first()
    end_first()
    hook.emit(events.LOST, "x")
    hook.emit(events.ACQUIRED, "x")
    assert (len(first), len(second)) == (1, 2)


def test_kinds_that_nobody_listens_to_cost_nothing() -> None:
    hook = Hook()
    end = hook.subscribe(print, [events.LOST])
    assert set(hook.by_kind) == {events.LOST}
    end()
    assert not hook.by_kind


def test_an_unknown_kind_is_refused_and_a_word_is_not_taken_for_its_letters() -> None:
    hook = Hook()
    for kinds in (["exploded"], "lost", [events.LOST, ""]):
        with pytest.raises(Misuse, match="no such kind"):
            hook.subscribe(print, kinds)
    assert not hook.by_kind


def test_a_subscriber_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(Misuse, match="something to call"):
        Hook().subscribe("not a function")  # type: ignore[arg-type]


def test_every_alarming_kind_is_a_kind() -> None:
    assert set(events.ALARMING) <= set(events.KINDS)
    assert len(set(events.KINDS)) == len(events.KINDS)


def test_a_log_that_fails_takes_no_lock_away_and_hides_no_loss(
    driver: Manual, locks: Locks, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: logging.LogRecord) -> bool:
        raise ZeroDivisionError("redis://:secret@host")

    told: list[str] = []
    logger = logging.getLogger("holdfast")
    logger.addFilter(fails)
    try:
        locks.subscribe(lambda event: fails(logging.makeLogRecord({})), [events.ACQUIRED, events.RENEWED])
        hand = tamper(locks)
        lease = locks.lock("x", ttl=30).acquire()
        lease.on_lost(lambda lost: told.append(lost.name))
        driver.pass_time(15)
        assert lease.held
        hand.fail("renew", times=10**6)
        driver.pass_time(31)
        assert told == ["x"]
    finally:
        logger.removeFilter(fails)
    said = capsys.readouterr().err
    assert "a subscriber to 'acquired' failed (ZeroDivisionError), and could not be logged (ZeroDivisionError)" in said
    assert "secret" not in said
