"""What each kind of lock asks for, and what several of them do together."""

from __future__ import annotations

import gc
import threading
from typing import Any
from weakref import ref

import pytest

import holdfast
from holdfast import Locks, Misuse, NotAcquired, Unavailable, recipes
from holdfast.asking import Ask
from holdfast.rule import EVERYBODY
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


def test_every_lock_is_units_of_a_capacity() -> None:
    assert recipes.lock_ask("x", 30, True, False, True) == Ask("x", 30.0)
    assert recipes.semaphore_ask("x", 4, 30, True, True)[:4] == ("x", 30.0, 1, 4)
    read, write = recipes.rwlock_asks("x", 30, True, True)
    assert (read.units, read.capacity, write.units, write.capacity) == (1, EVERYBODY, EVERYBODY, EVERYBODY)
    assert recipes.election_ask("x", "10.0.0.7", 30).note == "10.0.0.7"
    assert [ask.name for ask in recipes.all_of_asks(["b", "a", "b"], 30, True, True)] == ["a", "b"]


@pytest.mark.parametrize(
    "wrong", [{"ttl": True}, {"fair": 1}, {"renew": 1}, {"reentrant": 0}, {"name": ["job"]}, {"ttl": [1]}, {"fair": []}]
)
def test_what_is_wrong_is_refused_also_when_something_equal_was_right_a_moment_ago(
    locks: Locks, wrong: dict[str, Any]
) -> None:
    """What was found right is remembered; but 1 is True, and a list is no key of any dict."""
    locks.lock("job", ttl=1)
    locks.lock("job", ttl=1.0, fair=True, renew=True, reentrant=False)
    with pytest.raises(Misuse, match="must be"):
        locks.lock(**{"name": "job", "ttl": 1.0, **wrong})


class Shop:
    def __init__(self, locks: Locks) -> None:
        self.lease = locks.lock("shop").acquire()
        self.sell = locks.lock(key=self.name_of)(print)

    def name_of(self, article: str) -> str:
        return article


@pytest.mark.filterwarnings("ignore:the lease of 'shop' was dropped:ResourceWarning")
def test_what_the_key_of_a_decorator_belongs_to_is_let_go_and_its_lease_with_it(locks: Locks) -> None:
    """What was found right is remembered, but not whose it was: a lease that nobody has would be renewed for ever."""
    shop = ref(Shop(locks))
    gc.collect()
    assert shop() is None


def test_a_job_that_may_not_be_free_before_at_least_is_granted_so_long_from_the_start() -> None:
    """A crash right after the grant must not free it sooner."""
    assert recipes.once_ask("x", 600, 3600).ttl == 600
    assert recipes.once_ask("x", 0, 3600).ttl == recipes.DEFAULT_TTL
    assert recipes.once_ask("x", 0, 5).ttl == 5


def test_a_job_that_was_released_keeps_its_name_for_what_is_left(driver: Manual, locks: Locks) -> None:
    job = locks.once("job", at_least=100, at_most=200)
    with job.acquire():
        driver.pass_time(30)
    assert locks.inspect("job").holders[0].left == pytest.approx(70)
    driver.pass_time(70.1)
    assert locks.names() == []


def test_a_job_that_took_longer_than_at_least_is_free_at_once(driver: Manual, locks: Locks) -> None:
    with locks.once("job", at_least=100, at_most=2000).acquire():
        driver.pass_time(150)
    assert locks.names() == []


def test_a_job_that_was_interrupted_at_its_release_keeps_its_name_too(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    lease = locks.once("job", at_least=100, at_most=200).acquire()
    hand.interrupt(0, after=True)
    with pytest.raises(BaseException, match="claim"):
        lease.release()
    assert locks.names() == ["job"]


def test_several_locks_share_one_deadline(driver: Manual, locks: Locks) -> None:
    other = connect(driver)
    held = [other.lock(name, ttl=600).acquire() for name in "abc"]

    def meanwhile(seconds: float) -> None:
        driver.move(min(seconds, 1.0))
        if driver.now() > 1008 and held[0].held:
            held[0].release()

    driver.waiting = meanwhile
    with pytest.raises(NotAcquired, match="'b'"):
        locks.all_of("a", "b", "c", ttl=600).acquire(timeout=10)
    assert driver.now() - 1000 == pytest.approx(10, abs=1.1)
    assert locks.names() == ["b", "c"]


def test_the_first_of_several_is_checked_again_when_the_last_was_waited_for(driver: Manual, locks: Locks) -> None:
    """Lost meanwhile, all are given back: half of several locks is none."""
    other = connect(driver)
    blocker = other.lock("b", ttl=600).acquire()

    def meanwhile(seconds: float) -> None:
        token = locks.inspect("a").holders[0].token
        other.force_release("a", token=token)
        blocker.release()
        driver.pass_time(20)

    driver.waiting = meanwhile
    with pytest.raises(holdfast.LeaseLost, match="'a'"):
        locks.all_of("a", "b").acquire(timeout=60)
    assert locks.names() == []


def test_a_store_that_fails_at_the_release_of_several_fails_for_one_only(driver: Manual, locks: Locks) -> None:
    hand = tamper(locks)
    with locks.all_of("a", "b", "c"):
        hand.fail("release", times=2)
    assert locks.names() == ["c"]
    with pytest.raises(Unavailable):
        leases = locks.all_of("a", "b").acquire()
        hand.fail("release", times=2)
        leases.release()
    assert locks.names() == ["b", "c"]
    driver.pass_time(1)
    assert locks.names() == [], "the releases that failed went on in the background"


def test_a_bundle_is_found_by_name(locks: Locks) -> None:
    with locks.all_of("b", "a") as leases:
        assert [lease.name for lease in leases] == ["a", "b"]
        assert leases["b"].name == "b"
        assert list(leases.tokens) == ["a", "b"]
        leases.check()
        with pytest.raises(KeyError):
            leases["c"]


def test_leaving_in_another_thread_than_entered_is_fine_alone_and_refused_among_others() -> None:
    with holdfast.connect("memory://entered") as locks:
        pool = locks.semaphore("pool", 5)

        def run(call: Any) -> list[BaseException]:
            errors: list[BaseException] = []

            def guarded() -> None:
                try:
                    call()
                except BaseException as error:
                    errors.append(error)

            thread = threading.Thread(target=guarded)
            thread.start()
            thread.join(10)
            return errors

        pool.__enter__()
        assert run(lambda: pool.__exit__(None, None, None)) == []
        assert locks.names() == []
        pool.__enter__()
        assert run(pool.__enter__) == []
        (refused,) = run(lambda: pool.__exit__(None, None, None))
        assert isinstance(refused, Misuse)
        assert "in another thread" in str(refused)


def test_a_decorator_runs_every_call_under_the_lock(locks: Locks) -> None:
    seen: list[tuple[list[str], int]] = []

    @locks.lock("x")
    def work(number: int, *, lease: Any = None) -> int:
        seen.append((list(locks.names()), lease.token))
        return number * 2

    assert [work(1), work(2)] == [2, 4]
    assert [names for names, _ in seen] == [["x"], ["x"]]
    assert seen[0][1] < seen[1][1]
    assert locks.names() == []
    assert work.__name__ == "work"


def test_a_decorator_that_skips_returns_nothing_and_one_that_does_not_raises(driver: Manual, locks: Locks) -> None:
    other = connect(driver)
    with other.lock("x"):
        assert locks.lock("x", timeout=0, otherwise="skip")(lambda: "ran")() is None
        with pytest.raises(NotAcquired):
            locks.lock("x", timeout=0)(lambda: "ran")()
    assert locks.lock("x", timeout=0, otherwise="skip")(lambda: "ran")() == "ran"


def test_resigning_tells_whether_one_led(driver: Manual, locks: Locks) -> None:
    election = locks.election("boss", address="me")
    assert election.resign() is False
    with election.lead() as lease:
        assert election.leader() == ("me", lease.token, lease.owner, 0.0)
        assert election.resign() is True
    assert election.leader() is None
    assert election.resign() is False


def test_what_is_lost_is_not_re_entered_as_long_as_the_outer_body_runs(driver: Manual, locks: Locks) -> None:
    lock = locks.lock("x", ttl=30, reentrant=True)
    outer, inner = lock.acquire(), lock.acquire()
    assert outer is inner
    driver.move(31)
    for _ in range(2):
        with pytest.raises(holdfast.LeaseLost):
            lock.acquire(timeout=0)
        assert outer.release() is False
    assert lock.acquire(timeout=0).token > outer.token


def test_a_reader_that_reads_again_does_not_wait_for_itself(driver: Manual, locks: Locks) -> None:
    """Behind a waiting writer it would."""
    other = connect(driver)
    first = locks.rwlock("x", ttl=600).read().acquire()
    store: Any = other._engine.store
    from holdfast.drivers.base import finish
    from holdfast.testing.conformance import claim

    finish(store.claim(claim("x", 600.0, units=EVERYBODY, capacity=EVERYBODY)))
    again = locks.rwlock("x").read().acquire(timeout=0)
    assert again.token == first.token
    again.release()
    assert first.held
    first.release()
    assert locks.inspect("x").holders == ()


def test_who_watches_a_connection_that_is_closed_is_told_that_and_not_of_the_store(locks: Locks) -> None:
    hand = tamper(locks)

    def closes(method: str) -> None:
        if method == "watch":
            locks.close()
            raise Unavailable("the connection to the store has ended")

    hand.before = closes
    watching = iter(locks.election("x").watch())
    assert next(watching) is None
    with pytest.raises(Misuse, match="closed"):
        next(watching)
