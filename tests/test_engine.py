"""The waiting loop, with the clock in hand."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import holdfast
from holdfast import Lease, LeaseLost, Locks, Misuse, NotAcquired, Unavailable, events
from holdfast.claim import MAX_TOKEN, Claim, Place
from holdfast.drivers.base import finish
from holdfast.lease import RELEASED
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


def test_a_deadline_is_carried_and_not_restarted_on_each_wake(driver: Manual, locks: Locks) -> None:
    """Elsewhere (kazoo's Lock): the timeout began anew at every wake."""
    other = connect(driver)
    held = locks.lock("x", ttl=600).acquire()
    assert held.held
    before = driver.now()
    with pytest.raises(NotAcquired):
        other.lock("x", ttl=3).acquire(timeout=10)
    assert driver.now() - before == pytest.approx(10)


def test_waiting_asks_again_within_a_third_of_the_ttl_of_its_place(driver: Manual, locks: Locks) -> None:
    other = connect(driver)
    hand = tamper(other)
    locks.lock("x", ttl=600).acquire()
    slept: list[float] = []

    def meanwhile(seconds: float) -> None:
        slept.append(seconds)
        driver.move(seconds)

    driver.waiting = meanwhile
    with pytest.raises(NotAcquired):
        other.lock("x", ttl=6).acquire(timeout=10)
    assert max(slept) <= 2
    assert hand.calls.count("claim") >= 5


def test_after_waiting_it_is_asked_again_and_never_assumed(driver: Manual, locks: Locks) -> None:
    """A bell is not a grant: somebody else may have been quicker."""
    other, third = connect(driver), connect(driver)
    first = locks.lock("x", ttl=600).acquire()
    stolen: list[Lease] = []

    def meanwhile(seconds: float) -> None:
        if not stolen:
            first.release()
            stolen.append(third.lock("x", ttl=600, fair=False).acquire(timeout=0))
        driver.move(seconds)

    driver.waiting = meanwhile
    with pytest.raises(NotAcquired):
        other.lock("x").acquire(timeout=5)
    assert stolen[0].held


def test_a_server_that_restarts_is_ridden_out_by_who_has_a_place(driver: Manual, locks: Locks) -> None:
    other = connect(driver)
    hand = tamper(other)
    first = locks.lock("x", ttl=600).acquire()
    down_until = driver.now() + 12

    def down(method: str) -> None:
        if 1003 < driver.now() < down_until:
            raise Unavailable("down")

    hand.before = down

    def meanwhile(seconds: float) -> None:
        driver.move(seconds)
        if driver.now() > down_until and first.held:
            first.release()

    driver.waiting = meanwhile
    lease = other.lock("x", ttl=30).acquire(timeout=None)
    assert lease.token > first.token
    assert "wait" in hand.calls


def test_a_server_that_stays_down_is_reported_after_a_ttl(driver: Manual, locks: Locks) -> None:
    other = connect(driver)
    hand = tamper(other)
    locks.lock("x", ttl=600).acquire()

    def down(method: str) -> None:
        if driver.now() > 1003:
            raise Unavailable("down")

    hand.before = down
    before = driver.now()
    with pytest.raises(Unavailable):
        other.lock("x", ttl=20).acquire(timeout=None)
    assert 20 <= driver.now() - before <= 45


def test_a_bell_that_cannot_be_listened_to_is_no_reason_to_hammer_the_store(driver: Manual, locks: Locks) -> None:
    other = connect(driver)
    hand = tamper(other)
    locks.lock("x", ttl=600).acquire()

    def deaf(method: str) -> None:
        if method == "wait":
            raise Unavailable("no bell today")

    hand.before = deaf
    with pytest.raises((NotAcquired, Unavailable)):
        other.lock("x", ttl=20).acquire(timeout=10)
    assert hand.calls.count("claim") <= 10 / 0.02 + 2


def test_a_deadline_counts_from_before_the_claim_was_sent(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    hand.after = lambda method: driver.move(10) if method == "claim" else None
    lease = locks.lock("x", ttl=30).acquire()
    assert lease.remaining() == 20


def test_an_answer_that_took_longer_than_the_grant_lives_is_no_grant(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    hand.before = hand.after = lambda method: driver.move(20) if method == "claim" else None
    for timeout in (0, 5):
        with pytest.raises(NotAcquired):
            locks.lock("x", ttl=30).acquire(timeout=timeout)
        hand.heal()
        driver.renew()  # the time to find out was over too, so the rest is done in the background
        assert locks.names() == [], "and what the store still had of it was given back"
        hand.before = hand.after = lambda method: driver.move(20) if method == "claim" else None


def test_the_tokens_of_a_store_never_wrap(driver: Manual, locks: Locks) -> None:
    driver.wall = MAX_TOKEN - 1
    assert locks.lock("x").acquire().token == MAX_TOKEN - 1
    assert locks.lock("y").acquire().token == MAX_TOKEN
    with pytest.raises(Unavailable, match="used up"):
        locks.lock("z").acquire()
    assert locks.names() == ["x", "y"]


def test_a_lease_that_could_not_be_renewed_for_want_of_a_thread_is_not_handed_out(
    driver: Manual, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "spawn", no_more)
        for reentrant in (False, True):
            with pytest.raises(RuntimeError, match="can't start"):
                locks.lock("x", reentrant=reentrant).acquire()
        assert locks.names() == []
    lease = locks.lock("x", reentrant=True).acquire(timeout=0)
    assert driver.spawned == ["holdfast-renewer"], "and the next lease starts the renewer after all"
    driver.pass_time(100)
    assert lease.held


def test_what_is_acquired_while_the_connection_closes_is_refused_and_taken_back(driver: Manual, locks: Locks) -> None:
    other = connect(driver)
    first = locks.lock("x", ttl=600).acquire()

    def meanwhile(seconds: float) -> None:
        first.release()
        driver.move(seconds)
        other._engine.renewer.close()

    driver.waiting = meanwhile
    with pytest.raises(Misuse, match="this connection was closed"):
        other.lock("x").acquire(timeout=60)
    assert locks.names() == []


def test_an_interrupted_close_still_releases_everything(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    for name in "abc":
        locks.lock(name).acquire()

    def interrupt(method: str) -> None:
        if hand.calls.count("release") == 1:
            raise KeyboardInterrupt

    hand.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        locks.close()
    assert connect(driver).names() == []


def test_a_release_interrupted_twice_may_be_repeated(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    lease = locks.lock("x").acquire()
    hand.before = lambda method: (_ for _ in ()).throw(
        KeyboardInterrupt if hand.calls.count("release") == 1 else Unavailable("x")
    )
    with pytest.raises(KeyboardInterrupt):
        lease.release()
    assert locks._engine.store is hand
    hand.heal()
    assert lease.release() is True
    assert locks.names() == []


def test_a_body_that_outlived_its_ttl_is_told_although_the_renewer_was_starved(driver: Manual, locks: Locks) -> None:
    """A busy C call holds the interpreter; nobody renewed, and nobody marked the lease as lost."""
    seen: list[Any] = []
    locks.subscribe(lambda event: seen.append(event.kind), [events.LOST, events.RELEASED])
    lost: list[Any] = []
    with pytest.raises(LeaseLost, match="ran out"), locks.lock("x", ttl=30) as lease:
        lease.on_lost(lost.append)
        driver.move(31)
    assert lost == [lease]
    assert seen == [events.LOST]
    with pytest.raises(LeaseLost), locks.all_of("a", "b", ttl=30):
        driver.move(31)
    assert locks.names() == []


def test_a_late_release_of_a_lease_that_ran_out_says_so_and_leaves_the_successor_alone(
    driver: Manual, locks: Locks
) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(31)
    successor = connect(driver).lock("x").acquire(timeout=0)
    assert lease.release() is False
    assert successor.held
    assert len(locks.inspect("x").holders) == 1


def test_a_downgrade_that_came_too_late_is_a_loss_and_leaves_no_ghost(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    lease = locks.rwlock("x", ttl=30).write().acquire()
    lost: list[Any] = []
    lease.on_lost(lost.append)
    hand.before = lambda method: driver.move(31) if method == "claim" else None
    with pytest.raises(LeaseLost):
        lease.downgrade()
    assert not lease.held
    assert lost == [lease]
    assert locks.names() == []
    hand.heal()
    driver.pass_time(100)
    assert locks.names() == []


def test_a_downgrade_that_was_not_answered_is_asked_again_and_then_told_as_unknown(
    driver: Manual, locks: Locks
) -> None:
    hand = tamper(locks)
    lease = locks.rwlock("x", ttl=30).write().acquire()
    hand.fail("claim", reply_only=True)
    lease.downgrade()
    assert [one.units for one in locks.inspect("x").holders] == [1]
    lease.release()
    lease = locks.rwlock("x", ttl=30).write().acquire()
    hand.fail("claim", times=2, reply_only=True)
    with pytest.raises(Unavailable, match="do not write, and downgrade\\(\\) again"):
        lease.downgrade()
    lease.downgrade()
    assert lease.held
    assert lease.release() is True
    assert locks._engine.mine.remembered() == ()


def test_a_downgrade_is_not_undone_by_a_renewal_that_was_under_way(driver: Manual, locks: Locks) -> None:
    lease = locks.rwlock("x", ttl=30).write().acquire()
    hand = tamper(locks)
    hand.after = lambda method: lease.downgrade() if method == "renew" else None
    driver.move(11)
    driver.renew()
    hand.heal()
    assert [one.units for one in locks.inspect("x").holders] == [1]
    with pytest.raises(Misuse, match="only a writer can downgrade"):
        lease.downgrade()
    driver.pass_time(100)
    assert lease.held
    assert lease.release() is True
    assert locks._engine.renewer.leases() == []


def test_a_lease_is_not_re_entered_while_another_thread_releases_it(driver: Manual, locks: Locks) -> None:
    """Between looking and entering again nobody gets in between."""
    lease = locks.lock("x", reentrant=True).acquire()
    engine = locks._engine
    released: list[bool] = []

    class Watched:
        """A mutex that lets somebody in the moment before it is taken."""

        def __init__(self) -> None:
            self.inner = threading.Lock()
            self.first = True

        def __enter__(self) -> None:
            if self.first:
                self.first = False
                engine.mutex = engine.renewer._mutex = engine.mine._mutex = self.inner
                released.append(lease.release())
            self.inner.acquire()

        def __exit__(self, *_: object) -> None:
            self.inner.release()

    engine.mine._mutex = Watched()  # type: ignore[assignment]  # only its use as a context manager counts here
    again = locks.lock("x", reentrant=True).acquire(timeout=0)
    assert released == [True]
    assert again.held
    assert again.token > lease.token
    assert lease._state is RELEASED


def test_an_owner_cannot_play_tricks_with_a_terminal(driver: Manual, locks: Locks) -> None:
    driver.whoami = lambda: "worker\x1b[2J\n" + "x" * 1000  # type: ignore[method-assign]  # a thread's name is anything
    lease = locks.lock("x").acquire()
    assert lease.owner.isprintable()
    assert len(lease.owner) == 255
    assert "worker?[2J?xxx" in lease.owner


def test_a_store_that_needs_another_driver_is_found_out_at_once() -> None:
    class Suspends:
        def __await__(self) -> Any:
            yield

    async def suspend() -> None:
        await Suspends()

    with pytest.raises(RuntimeError, match="opened for another driver"):
        finish(suspend())


def test_the_first_in_line_is_asked_to_look_again_when_a_time_runs_out(driver: Manual, locks: Locks) -> None:
    store = locks._engine.store
    finish(store.claim(Claim("x", "1", "h/1/dead", 5.0)))
    place = finish(store.claim(Claim("x", "2", "h/1/me", 60.0)))
    assert isinstance(place, Place)
    assert place.wake_in == 5.0


@pytest.mark.parametrize("kind", [events.WAITING, events.ACQUIRED])
def test_a_subscriber_may_close_the_connection_and_does_not_wait_for_itself(
    driver: Manual, locks: Locks, kind: str
) -> None:
    closing = connect(driver)
    closing.subscribe(lambda _: closing.close(), [kind])
    held = locks.lock("x").acquire() if kind == events.WAITING else None
    before = driver.now()
    with pytest.raises(Misuse, match="was closed"):  # and nobody is let in by a connection that has given all back
        closing.lock("x").acquire()
    assert driver.now() == before
    assert [one.token for one in locks.inspect("x").holders] == ([held.token] if held else [])
    assert locks.inspect("x").waiters == ()


def test_a_call_of_oneself_under_a_lock_that_is_not_reentrant_is_told_and_not_waited_for(locks: Locks) -> None:
    @locks.lock("x")
    def recursive(depth: int) -> int:
        return depth and recursive(depth - 1)

    assert recursive(0) == 0
    with pytest.raises(Misuse, match=r"you hold 'x' already, since 0.0 s \(token \d+\).*reentrant=True"):
        recursive(1)
    assert locks.names() == []


def test_what_was_released_is_released_again_without_a_mutex(locks: Locks) -> None:
    """When the interpreter ends, a thread that was stopped may have it: a finalizer that releases must not wait for it."""
    lease = locks.lock("x").acquire()
    assert lease.release()

    class Taken:
        def __enter__(self) -> None:
            raise AssertionError("nobody gives it back")

        def __exit__(self, *_: object) -> None: ...

    locks._engine.mutex = Taken()  # type: ignore[assignment]
    assert not lease.release()


def test_closing_waits_for_the_renewer_to_end() -> None:
    """Stopped by the end of the interpreter, it would keep its mutex for ever."""
    locks = holdfast.connect("memory://closing")
    with locks.lock("x", ttl=0.3) as lease:
        renewing, go_on = threading.Event(), threading.Event()
        ask = locks._engine.store.renew

        async def renew(*args: Any) -> Any:
            renewing.set()
            go_on.wait(20)
            return await ask(*args)

        locks._engine.store.renew = renew  # type: ignore[method-assign,assignment]
        assert lease.held
        assert renewing.wait(20)
        threading.Timer(0.2, go_on.set).start()
        locks.close(timeout=20)
        assert locks._engine.renewer._bell is None


def test_who_would_wait_for_itself_is_refused_at_once(driver: Manual, locks: Locks) -> None:
    both = locks.rwlock("x")
    with both.write() as writing:
        for again, what in ((both.write(), "write again"), (both.read(), "read")):
            with pytest.raises(Misuse, match=f"a writer that asks to {what} would wait for itself"):
                again.acquire()
        writing.downgrade()
        with both.read() as reading:
            assert reading is writing
        with pytest.raises(Misuse, match="a reader that asks to write"):
            both.write().acquire()
    with both.write():
        pass
    election = locks.election("y")
    with election.lead():
        with pytest.raises(Misuse, match="'y' is led from here already"):
            election.lead().acquire()
        driver.myself = object()
        with pytest.raises(NotAcquired):
            election.lead(timeout=1).acquire()
        driver.myself = driver
    with election.lead():
        pass


def test_a_claim_that_was_not_answered_is_not_made_again_once_the_connection_is_closed(
    driver: Manual, locks: Locks
) -> None:
    """Whatever would be granted then, nobody could give back: and whoever asked is told now, not after another round."""
    hand = tamper(locks)

    def closed_meanwhile(method: str) -> None:
        if method == "claim":
            locks._engine.closed = True
            raise Unavailable("no answer")

    hand.before = closed_meanwhile
    with pytest.raises(Misuse, match="was closed"):
        locks.lock("x").acquire()
    assert hand.calls.count("claim") == 1
    assert "release" in hand.calls  # the first one may have arrived
