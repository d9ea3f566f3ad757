"""First come, first served, unless somebody asked otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ...errors import NotAcquired
from .world import World, claim, inside, settled


class Order:
    @pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
    def test_the_line_is_served_in_the_order_of_arrival(self, world: World, apart: bool) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        crew = [world.actor(f"w{n}") if apart else a.beside(f"w{n}") for n in range(5)]
        served: list[str] = []
        pending = []
        for number, one in enumerate(crew):
            pending.append(one.start(lambda locks, one=one: inside(locks.lock("x"), lambda _: served.append(one.name))))
            world.until(lambda number=number: len(world.waiters("x")) == number + 1)
        if world.traits.fair:
            assert world.waiters("x") == [one.name for one in crew]
        a.do(lambda _: lease.release())
        for each in pending:
            each.result()
        assert sorted(served) == [one.name for one in crew]
        if world.traits.fair:
            assert served == [one.name for one in crew]

    def test_a_place_is_kept_for_as_long_as_one_waits(self, world: World) -> None:
        """Longer than the ttl of a place: its owner asks again in time."""
        a, first, second = world.actors("a", "first", "second")
        ttl = max(world.ttl_short, 1.0)  # it asks every third of it, and has two more for a moment without a processor
        lease = a.do(lambda locks: locks.lock("x").acquire())
        served: list[str] = []
        pending = [first.start(lambda locks: inside(locks.lock("x", ttl=ttl), lambda _: served.append("first")))]
        world.until_waiting("x", "first")
        pending.append(second.start(lambda locks: inside(locks.lock("x", ttl=ttl), lambda _: served.append("second"))))
        world.until(lambda: len(world.waiters("x")) == 2)
        world.until(lambda: world.inspect("x").waiters[0].age > 1.5 * ttl)
        assert sorted(world.waiters("x")) == ["first", "second"]
        a.do(lambda _: lease.release())
        for each in pending:
            each.result()
        if world.traits.fair:
            assert served == ["first", "second"]

    def test_who_gives_up_loses_the_place_and_holds_up_nobody(self, world: World) -> None:
        a, b, c = world.actors("a", "b", "c")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        impatient = b.start(lambda locks: locks.lock("x").acquire(timeout=1))
        world.until_waiting("x", "b")
        patient = c.start(lambda locks: locks.lock("x").acquire(timeout=30))
        world.until(lambda: "c" in world.waiters("x"))  # by when the other may have given up, on a busy machine
        with pytest.raises(NotAcquired):
            impatient.result()
        world.until_waiting("x", "c")
        a.do(lambda _: lease.release())
        taken = patient.result(5 + world.slack)
        c.do(lambda _: taken.release())

    def test_the_fair_do_not_pass_the_line_and_the_unfair_do(self, world: World) -> None:
        a, b, c = world.actors("a", "b", "c")
        one = a.do(lambda locks: locks.semaphore("pool", 2).acquire())
        both = b.start(lambda locks: locks.semaphore("pool", 2).acquire(units=2))
        world.until_waiting("pool", "b")
        if world.traits.fair:
            assert c.do(lambda locks: locks.semaphore("pool", 2).try_acquire()) is None
        pushed = c.do(lambda locks: locks.semaphore("pool", 2, fair=False).try_acquire())
        assert pushed is not None
        assert not both.done
        c.do(lambda _: pushed.release())
        a.do(lambda _: one.release())
        b.do(lambda _: both.result(0).release())

    def test_a_release_reaches_the_next_in_line_at_once(self, world: World) -> None:
        """Elsewhere: a missed message meant a full ttl of waiting."""
        if not world.traits.bell:
            return  # it says that it polls
        a, b = world.actors("a", "b")
        first, second = a.start(_turns(20, "x", world)), b.start(_turns(20, "x", world))
        first.result(within=10)  # one missed bell would take ten seconds
        second.result(within=10)

    def test_many_are_rung_at_once_and_nobody_waits_for_another(self, world: World) -> None:
        """Here it broke: MariaDB, where who ended two sleeps at once waited two seconds for either, and all with them."""
        if not world.traits.bell:
            return
        a, b = world.actors("a", "b")
        pairs = [(a.beside(f"a{n}"), b.beside(f"b{n}"), f"x{n}") for n in range(6)]
        pending = [one.start(_turns(40, name, world)) for *both, name in pairs for one in both]
        end = time.monotonic() + 15  # one after the other, of 480: a third of it on a busy machine
        for each in pending:
            each.result(within=max(end - time.monotonic(), 0))

    def test_a_bell_before_the_wait_is_not_missed(self, world: World) -> None:
        if not world.traits.bell:
            return
        a, b = world.actors("a", "b")
        ours, theirs = claim("x"), claim("x")
        a.store(lambda store: store.claim(ours))
        place = b.store(lambda store: store.claim(theirs))
        a.store(lambda store: store.release(ours))
        b.do(lambda locks: locks._engine.store.wait(place, 30), within=5 + world.slack)
        assert b.store(lambda store: store.claim(theirs)).token > 0
        b.store(lambda store: store.release(theirs))


def _turns(number: int, name: str, world: World) -> Callable[[Any], Coroutine[Any, Any, None]]:
    async def take_turns(locks: Any) -> None:
        for _ in range(number):
            lease = await settled(locks.lock(name, ttl=60).acquire(timeout=30))
            await settled(world.pause(0.001))
            await settled(lease.release())

    return take_turns
