"""One `with` has one lease: whatever else is done with the lock, and wherever the `with` is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

import holdfast
from holdfast import Lease, Locks, Misuse, aio
from holdfast.testing.conformance.lines import MANY, Tracer
from holdfast.testing.manual import Manual, connect


@pytest.fixture
def driver() -> Manual:
    return Manual()


@pytest.fixture
def locks(driver: Manual) -> Locks:
    return connect(driver)


def test_generators_that_share_a_lock_each_leave_with_their_own_lease(locks: Locks) -> None:
    pool = locks.semaphore("pool", 5)

    def inside() -> Generator[Lease, None, None]:
        with pool as lease:
            yield lease

    first, second = inside(), inside()
    earlier, later = next(first), next(second)
    first.close()
    assert (earlier.held, later.held) == (False, True)
    second.close()
    assert locks.names() == []


def test_async_generators_that_share_a_lock_each_leave_with_their_own_lease() -> None:
    async def main() -> None:
        async with aio.connect("memory://generators") as locks:
            pool = locks.semaphore("pool", 5)

            async def inside() -> AsyncGenerator[aio.Lease, None]:
                async with pool as lease:
                    yield lease

            first, second = inside(), inside()
            earlier, later = await anext(first), await anext(second)
            await first.aclose()
            assert (earlier.held, later.held) == (False, True)
            await second.aclose()
            assert await locks.names() == []

    asyncio.run(main())


def test_a_generator_may_be_closed_in_another_thread_while_others_are_inside(locks: Locks) -> None:
    pool = locks.semaphore("pool", 5)

    def inside() -> Generator[Lease, None, None]:
        with pool as lease:
            yield lease

    with pool as mine:
        generator = inside()
        theirs = next(generator)
        thread = threading.Thread(target=generator.close)
        thread.start()
        thread.join(10)
        assert (mine.held, theirs.held) == (True, False)
    assert locks.names() == []


def test_a_stack_of_contexts_enters_by_hand_and_leaves_in_order(locks: Locks) -> None:
    pool = locks.semaphore("pool", 5)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(pool)
        second = stack.enter_context(pool)
        third = stack.enter_context(pool.acquire())
        both = stack.enter_context(locks.all_of("a", "b"))
        both.check()
        assert len({first.token, second.token, third.token}) == 3
        assert all(lease.held for lease in (first, second, third))
    assert locks.names() == []


def test_who_looks_at_a_lock_or_a_lease_changes_nothing(locks: Locks) -> None:
    lock = locks.lock("x")
    assert hasattr(lock, "__exit__")
    with lock as lease:
        assert hasattr(lock, "__exit__")
        assert hasattr(lease, "__exit__")
        gc.collect()
        assert lease.held
    assert locks.names() == []
    with pytest.raises(Misuse):
        lock.__exit__(None, None, None)  # which nobody has entered


def plain(locks: Any, kept: list[Any]) -> None:
    with kept[0] as lease:
        kept.append(lease)


def again(locks: Any, kept: list[Any]) -> None:
    with kept[0], kept[0]:
        pass


def acquired(locks: Any, kept: list[Any]) -> None:
    with kept[0].acquire() as lease:
        kept.append(lease)


def several(locks: Any, kept: list[Any]) -> None:
    with locks.all_of("x", "y") as leases:
        kept.append(leases)


@pytest.mark.parametrize("what", [plain, again, acquired, several], ids=lambda what: what.__name__)
def test_interrupted_at_any_line_a_lock_is_given_back_though_somebody_still_has_the_lease(
    what: Callable[[Any, list[Any]], None],
) -> None:
    """Somebody has the lock, and the lease in a variable: nothing is dropped, but the `with` is over."""
    driver = Manual()
    locks = connect(driver)
    lock = locks.lock("x", ttl=600, reentrant=what is again)
    kept: list[Any] = [lock]
    what(locks, kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that were made, and not begun
        warnings.simplefilter("ignore", ResourceWarning)  # a lease that was interrupted on its way out of acquire()
        for at in range(MANY):
            tracer = Tracer(at)
            struck = tracer.run(lambda: what(locks, kept))
            driver.renew()  # what is done in the background
            assert locks.names() == [], f"after an interruption at {tracer.where}"
            with lock:  # and nobody thinks that it is lost, or entered already
                assert locks._engine.mine.remembered() == ((("x", id(driver)),) if what is again else ())
            if not struck:
                break
    assert 20 < at < MANY - 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # coroutines that were made, and not begun
def test_a_lock_may_be_entered_anew_after_its_release_was_interrupted_at_any_line(driver: Manual, locks: Locks) -> None:
    lock = locks.lock("x", ttl=600, reentrant=True)
    for at in range(MANY):
        lease = lock.acquire()
        struck = Tracer(at).run(lambda lease=lease: lease.release() and None)  # type: ignore[misc]
        if lease.held:
            lease.release()
        driver.renew()
        assert not lease.held  # which somebody has: it is over, and no reason to refuse the next
        lock.acquire().release()
        if not struck:
            break
    assert 10 < at < MANY - 1


def test_a_lease_that_is_let_go_with_its_scope_wakes_who_waits_for_its_end() -> None:
    with holdfast.connect("memory://scope") as locks:
        lease = locks.lock("x", ttl=600).acquire()
        waiting = threading.Thread(target=lease.lost.wait)
        waiting.start()
        lease._abandon(1)
        waiting.join(10)
        assert not waiting.is_alive()
        assert not lease.held


def test_an_inner_scope_that_was_left_and_then_interrupted_ends_nothing_of_the_outer_one(locks: Locks) -> None:
    lock = locks.lock("x", reentrant=True)
    with lock as lease:
        inner = lock.acquire()
        assert inner is lease
        depth = lease._entries
        inner.release()
        lease._abandon(depth)  # interrupted after it was left, and before the scope knew
        assert lease.held
    assert locks.names() == []


def test_the_other_kind_of_with_is_refused_in_a_sentence_and_whoever_only_looks_finds_nothing() -> None:
    asyncio.run(_mixed_up())


async def _mixed_up() -> None:
    here = holdfast.connect("memory://mixed")
    async with aio.connect("memory://mixed") as there:
        inside = await there.lock("inside").acquire()
        asking = there.lock("x").acquire()
        for one in (there, there.lock("x"), there.all_of("a", "b"), inside, asking, there.election("e").lead()):
            with pytest.raises(TypeError, match=r"write `async with`, or connect by holdfast\.connect"), one:  # type: ignore[union-attr]
                pass
            assert not hasattr(one, "__enter__")
            assert not hasattr(type(one), "__enter__")
            assert not isinstance(one, contextlib.AbstractContextManager)
        asking.close()
        held = here.lock("held").acquire()
        for other in (here, here.lock("x"), here.all_of("a", "b"), held, here.rwlock("r").read()):
            with pytest.raises(TypeError, match=r"write `with`, or connect by holdfast\.aio\.connect"):
                async with other:  # type: ignore[union-attr]
                    pass
            assert not hasattr(other, "__aenter__")
            assert not hasattr(type(other), "__aenter__")
            assert not isinstance(other, contextlib.AbstractAsyncContextManager)
        held.release()
        await inside.release()
        assert here.names() == []
    here.close()
