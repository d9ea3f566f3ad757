"""What a lease says of itself."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading

import pytest

import holdfast
from holdfast import LeaseLost, Locks, NotAcquired, StaleToken, Unavailable, aio
from holdfast.sync import Loss
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual


def test_a_lease_knows_its_name_its_token_its_owner_and_its_time(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    assert (lease.name, lease.ttl, lease.held, lease.in_danger) == ("x", 30.0, True, False)
    assert lease.token == locks.inspect("x").holders[0].token
    assert lease.owner == locks.inspect("x").holders[0].owner
    driver.move(12)
    assert lease.remaining() == 18
    assert repr(lease) == f"<Lease 'x' token={lease.token} held, 18.0 s left>"
    lease.release()
    assert repr(lease) == f"<Lease 'x' token={lease.token} released, 0.0 s left>"


def test_it_is_in_danger_when_a_renewal_is_overdue(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(19)
    assert not lease.in_danger
    driver.move(2)
    assert lease.in_danger
    assert lease.held


def test_it_is_over_at_its_deadline_to_the_moment_whoever_runs_or_not(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(29.999)
    lease.check()
    driver.move(0.001)
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert (lost.value.name, lost.value.token) == ("x", lease.token)
    assert "do not write" in str(lost.value)
    assert lease.lost
    assert "lost" in repr(lease)
    with pytest.raises(LeaseLost), lease:
        pytest.fail("entered")


def test_a_loss_that_was_before_the_callback_is_told_at_once(driver: Manual, locks: Locks) -> None:
    lease = locks.lock("x", ttl=30).acquire()
    driver.move(31)
    seen: list[object] = []
    lease.on_lost(seen.append)
    assert seen == [lease]


def test_waiting_for_the_loss_of_what_is_over_ends_at_once(driver: Manual, locks: Locks) -> None:
    """Nobody would tell."""
    released = locks.lock("x").acquire()
    released.release()
    assert released.lost.wait(10) is False
    failed = locks.lock("y").acquire()
    hand = tamper(locks)
    hand.fail("release", times=2)
    with pytest.raises(Unavailable):
        failed.release()
    assert failed.lost.wait(10) is False
    ran_out = locks.lock("z", ttl=30).acquire()
    driver.move(31)
    assert ran_out.lost.wait(10) is True


def wait_for_loss(lease: holdfast.Lease, start: threading.Barrier, seen: list[tuple[Loss, bool]]) -> None:
    start.wait(10)
    loss = lease.lost
    seen.append((loss, loss.wait(10)))


def test_a_release_wakes_all_who_wait_for_a_loss() -> None:
    with holdfast.connect("memory://loss") as locks:
        for _ in range(50):
            lease = locks.lock("x").acquire()
            start = threading.Barrier(5)
            seen: list[tuple[Loss, bool]] = []
            threads = [threading.Thread(target=wait_for_loss, args=(lease, start, seen)) for _ in range(4)]
            for thread in threads:
                thread.start()
            start.wait(10)
            lease.release()
            for thread in threads:
                thread.join(5)
            assert len({id(loss) for loss, _ in seen}) == 1
            assert [lost for _, lost in seen] == [False] * 4


def test_an_error_crosses_processes_whole() -> None:
    for error in (
        NotAcquired("could not", "x", holdfast.Snapshot("x")),
        LeaseLost("lost", "x", 5),
        StaleToken("stale", "r", 7, 5),
        Unavailable("down"),
        holdfast.Unsupported("no"),
        holdfast.Misuse("wrong"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
        assert isinstance(error, holdfast.HoldfastError)
    assert issubclass(NotAcquired, TimeoutError)
    assert issubclass(Unavailable, ConnectionError)
    assert issubclass(holdfast.Misuse, ValueError)


def test_a_task_that_enters_what_is_just_being_lost_is_left_without_a_stray_cancellation() -> None:
    """A task that cancels itself is hit at its next await, which may be far beyond the body."""

    async def main() -> None:
        async with aio.connect("memory://stray") as locks:
            lease = await locks.lock("x", ttl=0.05, renew=False).acquire()
            checked = lease.check
            lease.check = lambda: None  # type: ignore[method-assign]  # it ran out a moment after it was checked
            assert await lease.lost.wait(5)
            with pytest.raises(LeaseLost):
                async with lease:
                    pass
            task = asyncio.current_task()
            assert task is not None
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert task.cancelling() == 0
            with pytest.raises(LeaseLost):
                checked()

    asyncio.run(main())


def test_a_body_that_swallows_its_cancellation_is_told_of_the_loss_all_the_same() -> None:
    async def main() -> None:
        async with aio.connect("memory://swallow") as locks:
            with pytest.raises(LeaseLost):
                async with locks.lock("x", ttl=0.05, renew=False):
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(10)
            async with asyncio.timeout(1):
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_timeout_around_a_body_that_lost_its_lock_stays_a_timeout() -> None:
    async def main() -> None:
        async with aio.connect("memory://timeout") as locks:
            with pytest.raises((TimeoutError, LeaseLost)) as both:
                async with asyncio.timeout(0.05):
                    async with locks.lock("x", ttl=0.05, renew=False):
                        await asyncio.sleep(10)
            assert not isinstance(both.value, asyncio.CancelledError)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    asyncio.run(main())
