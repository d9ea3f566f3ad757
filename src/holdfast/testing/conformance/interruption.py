"""Interrupted anywhere, nothing is left behind. Elsewhere: a cancelled acquire leaked the key, a cancelled release deadlocked.

Two ways to interrupt: an exception at every conversation with the store, before it was sent and after it was done (in
both worlds; this is what Ctrl-C does to a thread); and, in asyncio, a cancellation at every single step of the loop, with
a store that yields at every opportunity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from .tampering import Interruption, Tampered, tamper
from .world import World, inside, settled

Step = Callable[[Any], Coroutine[Any, Any, None]]

MANY = 200  # no operation here has as many steps
TURNS = 5000  # of the loop: waiting for a server's answer takes turns too


async def take_and_leave(locks: Any) -> None:
    lease = await settled(locks.lock("x", ttl=600).acquire(timeout=600))
    await settled(lease.release())


async def take_all_and_leave(locks: Any) -> None:
    leases = await settled(locks.all_of("x", "y", "z", ttl=600).acquire(timeout=600))
    await settled(leases.release())


async def body(locks: Any) -> None:
    await settled(inside(locks.all_of("x", "y", ttl=600), lambda _: None))


async def downgrade(locks: Any) -> None:
    await settled(inside(locks.rwlock("x", ttl=600).write(), lambda lease: lease.downgrade()))


STEPS: dict[str, Step] = {
    "a lock": take_and_leave,
    "all_of": take_all_and_leave,
    "all_of as a body": body,
    "a downgrade": downgrade,
}


def yielding(hand: Tampered) -> None:
    hand.before = hand.after = lambda method: asyncio.sleep(0)


async def cancelled_after(step: Step, locks: Any, iterations: int, again: int | None = None) -> bool:
    """Cancel `step` after so many turns of the loop, and again so many later. False: it was done before."""
    task = asyncio.get_running_loop().create_task(step(locks), name="cancelled one")
    for _ in range(iterations):
        await asyncio.sleep(0)
    if task.done():
        task.result()
        return False
    task.cancel()
    if again is not None:
        for _ in range(again):
            await asyncio.sleep(0)
        task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    raise AssertionError("a cancellation was swallowed")


class Interruptions:
    turns_at_a_time = 1  # a slow store may try every n-th: most turns of the loop only wait for the same answer

    @pytest.mark.parametrize("what", STEPS)
    def test_interrupted_at_any_conversation_nothing_is_left(self, world: World, what: str) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        for after in (False, True):
            for at in range(MANY):
                hand.heal()
                hand.interrupt(at, after=after)
                try:
                    a.do(STEPS[what])
                except Interruption:
                    assert world.names() == [], f"interrupted at the call {at} ({'after' if after else 'before'} it)"
                    continue
                break
            assert 0 < at < MANY - 1
        hand.heal()

    def test_interrupted_while_waiting_nothing_is_left(self, world: World) -> None:
        a, holder = world.actors("a", "holder")
        hand = tamper(a.locks)
        held = holder.do(lambda locks: locks.lock("x").acquire())
        for after in (False, True):
            for at in range(4):  # claim, wait, claim, wait
                hand.heal()
                hand.interrupt(at, after=after)
                with pytest.raises(Interruption):
                    a.do(lambda locks: locks.lock("x", ttl=world.ttl_short).acquire(timeout=600))
                assert world.waiters("x") == []
        assert world.holders("x") == ["holder"]
        holder.do(lambda _: held.release())

    @pytest.mark.parametrize("what", STEPS)
    def test_cancelled_at_any_await_nothing_is_left(self, world: World, what: str) -> None:
        if not world.asynchronous:
            return  # a thread has no other points than its conversations
        a = world.actor("a")
        yielding(tamper(a.locks))
        for again in (None, 1, 2, 3):
            for iterations in range(0, TURNS, self.turns_at_a_time):
                if not a.do(lambda locks, n=iterations, m=again: cancelled_after(STEPS[what], locks, n, m)):
                    break
                assert world.names() == [], f"cancelled after {iterations} turns of the loop, and after {again} more"
            assert 2 < iterations < TURNS - self.turns_at_a_time

    def test_cancelled_while_waiting_nothing_is_left(self, world: World) -> None:
        if not world.asynchronous:
            return
        a, holder = world.actors("a", "holder")
        held = holder.do(lambda locks: locks.lock("x").acquire())
        yielding(tamper(a.locks))
        for iterations in range(12):
            assert a.do(lambda locks, n=iterations: cancelled_after(take_and_leave, locks, n))
            assert world.waiters("x") == [], f"cancelled after {iterations} turns of the loop"
        holder.do(lambda _: held.release())
        world.until_nothing_is_left()

    def test_cancelled_in_the_moment_of_being_let_in_nothing_is_left(self, world: World) -> None:
        if not world.asynchronous:
            return
        a, holder = world.actors("a", "holder")
        yielding(tamper(a.locks))

        async def race(locks: Any, held: Any, iterations: int) -> None:
            task = asyncio.get_running_loop().create_task(take_and_leave(locks), name="a")
            await asyncio.to_thread(world.until_waiting, "x", "a")
            holder.do(lambda _: held.release())
            for _ in range(iterations):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

        for iterations in range(12):
            held = holder.do(lambda locks: locks.lock("x").acquire(timeout=5))
            a.do(lambda locks, held=held, n=iterations: race(locks, held, n))
            assert world.names() == [], f"cancelled {iterations} turns after the bell"

    def test_a_connection_that_saw_a_cancellation_is_not_poisoned(self, world: World) -> None:
        """Elsewhere: a cancelled command left its reply for the next caller."""
        if not world.asynchronous:
            return
        a = world.actor("a")
        for iterations in range(6):
            a.do(lambda locks, n=iterations: cancelled_after(take_and_leave, locks, n))
            lease = a.do(lambda locks, n=iterations: locks.lock(f"y{n}").acquire(timeout=5))
            assert lease.name == f"y{iterations}"
            assert world.names() == [lease.name]
            assert a.do(lambda _, lease=lease: lease.release()) is True
