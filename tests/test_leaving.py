"""Releases that go on in the background, and the end of a connection: with the clock in hand."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Locks, Misuse, NotAcquired, Unavailable, aio, events
from holdfast.claim import Claim
from holdfast.drivers.base import finish
from holdfast.events import Event
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


def until(condition: Callable[[], object], within: float = 20.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.005)


# ---- releases


def test_whoever_is_not_awaited_any_more_leaves_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop was closed, and its coroutine is thrown away, perhaps while another loop runs."""

    async def main() -> None:
        async with aio.connect("memory://thrown-away") as locks:
            store, leave = locks._engine.store, locks._engine.store.release
            lease = await locks.lock("x").acquire()
            waiting = locks.lock("x").acquire(timeout=60)
            waiting.send(None)
            assert (await locks.inspect("x")).waiters
            waiting.close()  # RuntimeError, if it waits for anything
            await until_true(lambda: not _holders_of(store, "x", waiting=True))
            hung = asyncio.Event()

            async def hangs(claim: Claim, within: float = 3.0) -> bool:
                await hung.wait()
                return True

            monkeypatch.setattr(store, "release", hangs)
            leaving = lease.release()
            leaving.send(None)
            monkeypatch.setattr(store, "release", leave)
            leaving.close()
            await until_true(lambda: not _holders_of(store, "x"))

    async def until_true(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - it is in the store
                await asyncio.sleep(0.005)

    def _holders_of(store: Any, name: str, waiting: bool = False) -> object:
        found = finish(store.inspect(name))
        return found.waiters if waiting else found.holders

    asyncio.run(main())


def test_a_release_that_was_not_answered_is_repeated_until_the_lease_ends_and_only_then_told(
    driver: Manual, locks: Locks
) -> None:
    told: list[Event] = []
    locks.subscribe(told.append, [events.RELEASE_FAILED])
    hand = tamper(locks)
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(5)
    hand.fail("release", times=10**6)
    with pytest.raises(Unavailable):
        lease.release()
    driver.pass_time(24)
    tries = hand.calls.count("release")
    assert 24 / 0.5 <= tries <= 24 / 0.2, "often enough, and not without pause"
    assert told == []
    driver.pass_time(2)
    assert [(event.name, event.token) for event in told] == [("x", lease.token)]
    assert "ends by itself" in told[0].detail
    tries = hand.calls.count("release")
    driver.pass_time(100)
    assert hand.calls.count("release") == tries, "and nothing is left of it"


def test_a_release_that_succeeds_in_the_background_is_told_by_the_lease(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    lease = locks.lock("x", ttl=30).acquire()
    hand.fail("release", times=4)
    with pytest.raises(Unavailable):
        lease.release()
    assert "releasing" in repr(lease)
    driver.pass_time(1)
    assert "released" in repr(lease)
    assert locks.names() == []


class TimeLimit(Exception):
    """Raised by a signal handler, as Celery and RQ do it."""


@pytest.mark.parametrize("trouble", [Unavailable, KeyboardInterrupt, TimeLimit])
def test_a_claim_that_was_never_answered_is_looked_for_again_after_its_withdrawal(
    driver: Manual, locks: Locks, trouble: type[BaseException]
) -> None:
    """It may still be on its way: the request was sent, and the connection broke, or somebody was interrupted. It lands after
    the release."""
    hand = tamper(locks)
    claimed: list[Any] = []
    whole = hand.claim

    async def lost(claim: Any, within: float = 3.0) -> Any:
        claimed.append(claim)
        raise trouble("the connection broke")

    hand.claim = lost  # type: ignore[method-assign]  # holds the request back
    with pytest.raises(trouble):
        locks.lock("x", ttl=30).acquire(timeout=0)
    hand.claim = whole  # type: ignore[method-assign]
    driver.renew()  # released in the background, and not there
    finish(hand.store.claim(claimed[-1]))
    assert locks.names() == ["x"]
    driver.pass_time(5)
    assert locks.names() == []


def test_a_claim_that_lands_after_the_release_of_what_its_repetition_had_got_is_found(
    driver: Manual, locks: Locks
) -> None:
    hand = tamper(locks)
    claimed: list[Any] = []
    whole = hand.claim

    async def first_is_late(claim: Any, within: float = 3.0) -> Any:
        claimed.append(claim)
        if len(claimed) == 1:
            raise Unavailable("the connection broke")
        return await whole(claim, within)

    hand.claim = first_is_late  # type: ignore[method-assign]
    locks.lock("x", ttl=30).acquire(timeout=5).release()
    driver.renew()
    finish(hand.store.claim(claimed[0]))
    assert locks.names() == ["x"]
    driver.pass_time(5)
    assert locks.names() == []


@pytest.mark.parametrize("ending", ["by itself", "closed"])
@pytest.mark.parametrize("granted", [True, False], ids=["released", "withdrawn"])
def test_what_has_left_is_not_told_as_a_failed_release_since_nobody_answers_when_it_is_looked_for_again(
    driver: Manual, locks: Locks, granted: bool, ending: str
) -> None:
    told: list[Event] = []
    locks.subscribe(told.append, [events.RELEASE_FAILED])
    hand = tamper(locks)
    hand.fail("claim", times=1 if granted else 2)
    if granted:
        locks.lock("x", ttl=30).acquire(timeout=5).release()
    else:
        with pytest.raises(Unavailable):
            locks.lock("x", ttl=30).acquire(timeout=0)
        driver.pass_time(0.1)
    asked = hand.calls.count("release")
    assert asked
    hand.fail("release", times=10**6)
    if ending == "closed":
        locks.close()
    driver.pass_time(40)
    assert hand.calls.count("release") > asked
    assert told == []


def test_a_try_whose_first_claim_was_lost_and_whose_second_was_refused_leaves_nothing(
    driver: Manual, locks: Locks
) -> None:
    others = connect(driver)
    held = others.lock("x", ttl=600).acquire()
    hand = tamper(locks)
    claimed: list[Any] = []
    whole = hand.claim

    async def first_is_late(claim: Any, within: float = 3.0) -> Any:
        claimed.append(claim)
        if len(claimed) == 1:
            raise Unavailable("the connection broke")
        return await whole(claim, within)

    hand.claim = first_is_late  # type: ignore[method-assign]
    assert locks.lock("x", ttl=30).try_acquire() is None
    driver.renew()
    held.release()
    finish(hand.store.claim(claimed[0]))  # only now it arrives, and there is room
    assert others.names() == ["x"]
    driver.pass_time(5)
    assert others.names() == []


def test_a_claim_that_was_refused_is_not_looked_for_again(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    held = locks.lock("x").acquire()
    for _ in range(2):
        with pytest.raises(Misuse):
            locks.semaphore("x", 3).acquire(timeout=0)
        with pytest.raises(NotAcquired):
            locks.lock("x").acquire(timeout=1)
    hand.calls.clear()
    driver.pass_time(5)
    assert "release" not in hand.calls
    assert held.held


@pytest.mark.parametrize(("first", "taken_back"), [("", False), ("claim", True), ("release", True)])
def test_a_store_that_refuses_the_login_is_not_asked_again_and_keeps_nobody_waiting(
    driver: Manual, locks: Locks, first: str, taken_back: bool
) -> None:
    """Unless something was not answered before: that may have arrived."""
    told: list[Event] = []
    locks.subscribe(told.append, [events.RELEASE_FAILED])
    hand = tamper(locks)
    asked: list[str] = []

    def refuse(what: str) -> Callable[..., Any]:
        async def refused(claim: Any, within: float = 3.0) -> Any:
            asked.append(what)
            raise Unavailable("no answer") if what == first and asked.count(what) == 1 else Misuse("wrong password")

        return refused

    hand.claim, hand.release = refuse("claim"), refuse("release")  # type: ignore[method-assign]
    with pytest.raises(Misuse, match="wrong password"):
        locks.lock("x").acquire(timeout=5)
    asked.clear()
    before = driver.now()
    locks.close()
    assert ("release" in asked, bool(told), driver.now() - before > 1) == (taken_back,) * 3


def test_what_comes_while_the_last_worker_goes_home_is_not_left_to_nobody(driver: Manual, locks: Locks) -> None:
    leaving = locks._engine.leaving
    claims = [Claim(name, name, "host/1/me", 30.0) for name in ("first", "second")]

    class Watched:
        """A mutex after whose release, when the worker has just decided to go, somebody comes with the next release."""

        def __init__(self) -> None:
            self.inner = threading.Lock()

        def __enter__(self) -> None:
            self.inner.acquire()

        def __exit__(self, *_: object) -> None:
            self.inner.release()
            self.idle += self.at_work and not leaving._owed and not leaving._under_way
            if self.idle == 3 and claims:  # after the end of the last release, and a look that found nothing
                leaving.later(claims.pop(), driver.now() + 30)

        at_work = False
        idle = 0

    leaving._mutex = watched = Watched()  # type: ignore[assignment]  # only its use as a context manager counts here
    leaving.later(claims.pop(), driver.now() + 30)
    watched.at_work = True
    finish(leaving._work(*leaving._workers))
    assert driver.spawned.count("holdfast-leaving") == 2 or not leaving._owed


def test_releases_go_on_although_the_loop_that_they_went_on_in_is_gone(driver: Manual, locks: Locks) -> None:
    leaving = locks._engine.leaving
    leaving.later(Claim("x", "1", "host/1/me", 30.0), driver.now() + 30)
    driver.move(60)
    leaving.later(Claim("x", "2", "host/1/me", 30.0), driver.now() + 30)
    assert driver.spawned.count("holdfast-leaving") == 2


def test_a_release_that_a_loop_has_left_undone_goes_on_in_the_next() -> None:
    """Whoever was at it has ended with its loop: else the next one would wait for the end of its own ttl."""
    locks = aio.connect("memory://left-undone")
    hand = tamper(locks)

    async def first() -> None:
        lease = await locks.lock("x", ttl=600).acquire()
        hand.fail("release", times=10**6)
        with pytest.raises(Unavailable):
            await lease.release()

    async def second() -> None:
        hand.heal()
        others = aio.connect("memory://left-undone")
        async with asyncio.timeout(20), others, locks.lock("y"), others.lock("x", ttl=600):
            pass
        await locks.close()

    asyncio.run(first())
    asyncio.run(second())


def test_a_release_goes_on_though_the_loop_that_is_at_another_stands_still() -> None:
    """It sleeps until that one is tried again, and nothing that is said there wakes it."""
    locks = aio.connect("memory://stands-still")
    hand = tamper(locks)

    async def first() -> None:
        lease = await locks.lock("x", ttl=600).acquire()
        hand.fail("release", times=10**6)
        with pytest.raises(Unavailable):
            await lease.release()
        leaving = locks._engine.leaving
        async with asyncio.timeout(20):
            while not leaving._idle:  # noqa: ASYNC110 - nobody says so
                await asyncio.sleep(0.001)

    async def second() -> None:
        hand.heal()
        locks._engine.leaving.later(Claim("z", "nobody", "host/1/me", 600.0), locks._engine.driver.now() + 600)
        others = aio.connect("memory://stands-still")
        async with asyncio.timeout(20), others, others.lock("x", ttl=600):
            pass
        await locks.close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(first())
    asyncio.run(second())
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # asyncio's word for what its loop was left with
def test_a_lease_that_was_dropped_after_the_end_of_its_loop_is_released_in_the_next() -> None:
    locks = aio.connect("memory://dropped-late")
    kept: list[Any] = []

    async def first() -> None:
        kept.append(await locks.lock("x", ttl=600).acquire())

    async def second() -> None:
        async with asyncio.timeout(20):
            async with locks.lock("y", ttl=600), locks.lock("x", ttl=600):
                pass
        await locks.close()

    asyncio.run(first())
    kept.clear()
    asyncio.run(second())


def test_a_claim_in_line_that_was_not_answered_is_looked_for_though_its_place_was_given_up(
    driver: Manual, locks: Locks
) -> None:
    """Its place was there and is gone; but what it asked last may still be on its way, and lands after the release."""
    others = connect(driver)
    held = others.lock("x", ttl=600).acquire()
    hand = tamper(locks)
    claimed: list[Any] = []
    whole = hand.claim

    async def second_is_lost(claim: Any, within: float = 3.0) -> Any:
        claimed.append(claim)
        if len(claimed) == 1:
            return await whole(claim, within)
        driver.move(within)
        raise Unavailable("the server has fallen silent")

    hand.claim = second_is_lost  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        locks.lock("x", ttl=30).acquire(timeout=1)
    driver.renew()
    assert others.inspect("x").waiters == ()
    finish(hand.store.claim(claimed[-1]))
    assert len(others.inspect("x").waiters) == 1
    driver.pass_time(5)
    assert others.inspect("x").waiters == ()
    held.release()


def test_a_timeout_bounds_the_call_whatever_the_store_does(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    allowed: list[float] = []

    async def silent(claim: Any, within: float = 3.0) -> Any:
        allowed.append(within)
        driver.move(within)
        raise Unavailable("no answer")

    for name in ("claim", "release"):
        setattr(hand, name, silent)
    for timeout, most in ((0, 1), (0.5, 1.5), (2, 3), (60, 6)):
        before = driver.now()
        with pytest.raises(Unavailable):
            locks.lock("x", ttl=30).acquire(timeout=timeout)
        assert driver.now() - before <= min(most, timeout + 1) + 1.01, f"timeout={timeout}"
        assert driver.now() - before <= timeout + 1.01
    assert max(allowed) <= 3


def test_a_timeout_bounds_the_call_of_whoever_is_interrupted_on_a_slow_store(driver: Manual, locks: Locks) -> None:
    """A second to find out began anew with the interruption: `timeout=0` took 1.7 s."""
    hand = tamper(locks)

    async def interrupted(claim: Any, within: float = 3.0) -> Any:
        driver.move(within * 0.9)
        raise KeyboardInterrupt

    async def silent(claim: Any, within: float = 3.0) -> Any:
        driver.move(within)
        raise Unavailable("no answer")

    hand.claim, hand.release = interrupted, silent  # type: ignore[method-assign]
    for timeout in (0, 0.5, 1.5):
        before = driver.now()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x", ttl=30).acquire(timeout=timeout)
        assert driver.now() - before <= timeout + 1.01, f"timeout={timeout}"


def test_a_timeout_bounds_the_call_of_whoever_is_refused_by_a_slow_store(driver: Manual, locks: Locks) -> None:
    """Who is in the way is found out in what is left of the second, not in half a second more."""
    held = connect(driver).lock("x", ttl=600).acquire()
    hand = tamper(locks)
    claim = locks._engine.store.claim

    async def slow(asked: Any, within: float = 3.0) -> Any:
        driver.move(within * 0.9)
        return await claim(asked, within)

    async def silent(name: Any, within: float = 3.0) -> Any:
        driver.move(within)
        raise Unavailable("no answer")

    hand.claim, hand.inspect = slow, silent  # type: ignore[method-assign,assignment]
    before = driver.now()
    with pytest.raises(NotAcquired):
        locks.lock("x", ttl=30).acquire(timeout=0)
    assert driver.now() - before <= 1.01
    assert held.held


def test_a_waiter_whose_store_falls_silent_gives_up_in_time(driver: Manual, locks: Locks) -> None:
    held = connect(driver).lock("x", ttl=600).acquire()
    hand = tamper(locks)

    async def silent(claim: Any, within: float = 3.0) -> Any:
        driver.move(within)
        raise Unavailable("no answer")

    def after(method: str) -> None:
        if method == "wait":
            hand.claim = silent  # type: ignore[method-assign]

    hand.after = after
    hand.release = silent  # type: ignore[method-assign]
    before = driver.now()
    with pytest.raises((Unavailable, NotAcquired)):
        locks.lock("x", ttl=30).acquire(timeout=1.5)
    assert driver.now() - before <= 1.5 + 1.01
    assert held.held


def test_a_try_in_the_background_takes_a_second_at_most_and_no_longer_than_the_claim_lives(
    driver: Manual, locks: Locks
) -> None:
    hand = tamper(locks)
    lease = locks.lock("x", ttl=6).acquire()
    tries: list[tuple[float, float]] = []

    async def silent(claim: Any, within: float = 3.0) -> Any:
        tries.append((driver.now(), within))
        driver.move(within)
        raise Unavailable("no answer")

    hand.release = silent  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        lease.release()
    by_hand = len(tries)
    driver.pass_time(10)
    in_the_background = tries[by_hand:]
    assert len(in_the_background) > 2
    assert all(within <= max(min(1.0, lease._deadline - at), 0.05) + 1e-9 for at, within in in_the_background)


# ---- the end of a connection


def test_closing_has_one_deadline_and_says_what_it_left(driver: Manual, locks: Locks) -> None:
    told: list[Event] = []
    locks.subscribe(told.append, [events.RELEASE_FAILED])
    hand = tamper(locks)
    leases = [locks.lock(f"x{number}", ttl=30).acquire() for number in range(100)]

    async def silent(claim: Any, within: float = 3.0) -> bool:
        driver.move(within)
        raise Unavailable("no answer")

    hand.release = silent  # type: ignore[method-assign]
    before = driver.now()
    locks.close(timeout=5)
    assert driver.now() - before <= 5.1
    assert sorted(event.name for event in told) == sorted(lease.name for lease in leases)
    assert "free in 2" in told[0].detail
    assert not any(lease.held for lease in leases)


@pytest.mark.parametrize("timeout", [5.0, 1.0, 0.1, 0.0])
def test_the_last_words_of_a_store_are_a_part_of_closing(driver: Manual, locks: Locks, timeout: float) -> None:
    """Here it broke: they came to it, 0.7 s on etcd. And what ends all at once is not left out for lack of time."""
    hand = tamper(locks)
    leases = [locks.lock(f"x{number}", ttl=30).acquire() for number in range(100)]
    given: list[float] = []

    async def silent(claim: Any, within: float = 3.0) -> bool:
        driver.move(within)
        raise Unavailable("no answer")

    async def says_goodbye(within: float = 3.0) -> None:
        given.append(within)
        driver.move(within)

    hand.release = silent  # type: ignore[method-assign]
    hand.close = says_goodbye  # type: ignore[method-assign]
    before = driver.now()
    locks.close(timeout=timeout)
    assert driver.now() - before <= timeout + 1e-6
    assert given == [pytest.approx(min(0.7, timeout / 5))]
    assert not any(lease.held for lease in leases)


def test_closing_does_not_ask_for_what_has_ended_by_itself_meanwhile(driver: Manual, locks: Locks) -> None:
    told: list[Event] = []
    locks.subscribe(told.append, [events.RELEASE_FAILED])
    hand = tamper(locks)
    leases = [locks.lock(f"x{number}", ttl=3).acquire() for number in range(100)]

    async def silent(claim: Any, within: float = 3.0) -> bool:
        driver.move(within)
        raise Unavailable("no answer")

    hand.release = silent  # type: ignore[method-assign]
    before = driver.now()
    locks.close(timeout=60)
    assert driver.now() - before <= 4
    assert len(told) == len(leases)


def test_closing_asks_everybody_although_some_do_not_answer(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    leases = [locks.lock(f"x{number}", ttl=30).acquire() for number in range(20)]
    whole = hand.store.release

    async def partly(claim: Any, within: float = 3.0) -> bool:
        if claim.name in ("x0", "x1", "x2"):
            driver.move(within)
            raise Unavailable("that node hangs")
        return await whole(claim, within)

    hand.release = partly  # type: ignore[method-assign]
    locks.close()
    assert sorted(connect(driver).names()) == ["x0", "x1", "x2"]
    assert len(leases) == 20


def test_closing_looks_for_latecomers_at_once_and_waits_for_none(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    hand.fail("claim", times=2)
    with pytest.raises(Unavailable):
        locks.lock("x", ttl=30).acquire(timeout=0)
    driver.pass_time(0.4)  # looked for twice; the next time would be in a second
    before, asked = driver.now(), hand.calls.count("release")
    locks.close()
    assert driver.now() - before < 0.1
    assert hand.calls.count("release") == asked + 1


def test_what_was_closed_answers_no_questions(driver: Manual, locks: Locks) -> None:
    locks.close()
    asked: list[Callable[[], object]] = [
        lambda: locks.inspect("x"),
        lambda: locks.names(),
        lambda: locks.force_release("x", token=1),
        lambda: locks.wait_graph(),
        lambda: locks.election("x").leader(),
        lambda: next(locks.election("x").watch()),
        lambda: locks.lock("x").acquire(),
    ]
    for ask in asked:
        with pytest.raises(Misuse, match="was closed"):
            ask()
    for wrong in (-1, float("nan"), "5"):
        with pytest.raises(Misuse):
            connect(driver).close(wrong)  # type: ignore[arg-type]


def test_closing_waits_for_who_is_just_leaving(driver: Manual) -> None:
    with holdfast.connect("memory://just leaving") as other:
        closing = holdfast.connect("memory://just leaving")
        hand = tamper(closing)
        entered, go_on = threading.Event(), threading.Event()

        def slow(method: str) -> None:
            if method == "release" and not entered.is_set():
                entered.set()
                assert go_on.wait(10)

        lease = closing.lock("x").acquire()
        hand.before = slow
        leaver = threading.Thread(target=lease.release)
        leaver.start()
        assert entered.wait(10)
        closer = threading.Thread(target=closing.close)
        closer.start()
        until(lambda: closing._engine.closed)
        go_on.set()
        leaver.join(10)
        closer.join(10)
        assert other.names() == []


def test_of_a_claim_that_nobody_answered_it_is_not_said_that_it_is_held() -> None:
    """Nothing was granted, and nothing may have been sent. (Where the server was never there, nothing is said at all.)"""
    told: list[str] = []
    locks = holdfast.connect("redis://127.0.0.1:1")
    vars(vars(locks._engine.store)["_wire"])["reached"] = True  # as if it had been there before
    locks.subscribe(lambda event: told.append(event.detail), [events.RELEASE_FAILED])
    with pytest.raises(Unavailable, match="cannot connect to Redis"):
        locks.lock("x").acquire(timeout=0)
    locks.close(timeout=0.1)
    (detail,) = told
    assert "if the claim has arrived at all, it is free in" in detail
