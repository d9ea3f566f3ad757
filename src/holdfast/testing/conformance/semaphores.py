"""Units and capacity."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import Misuse
from .world import World, settled


class Semaphores:
    def test_there_is_never_more_inside_than_the_capacity(self, world: World) -> None:
        inside_now = 0
        most = 0

        async def work(locks: Any, units: int) -> None:
            nonlocal inside_now, most
            for _ in range(6):
                lease = await settled(locks.semaphore("pool", 3).acquire(timeout=60, units=units))
                inside_now += units
                most = max(most, inside_now)
                await settled(world.pause(0.001))
                inside_now -= units
                await settled(lease.release())

        crew = world.actors("a", "b", "c", "d")
        pending = [
            one.start(lambda locks, u=units: work(locks, u)) for one, units in zip(crew, (1, 2, 1, 3), strict=True)
        ]
        for each in pending:
            each.result(60)
        assert most == 3
        world.until_nothing_is_left()

    def test_as_many_get_in_together_as_there_are_units(self, world: World) -> None:
        a, b = world.actors("a", "b")
        leases = [a.do(lambda locks: locks.semaphore("pool", 3).try_acquire()) for _ in range(3)]
        assert all(leases)
        assert world.inspect("pool").used == 3
        assert b.do(lambda locks: locks.semaphore("pool", 3).try_acquire()) is None
        a.do(lambda _: leases[1].release())
        late = b.do(lambda locks: locks.semaphore("pool", 3).try_acquire())
        assert late is not None
        assert world.inspect("pool").used == 3

    def test_a_big_claim_at_the_head_is_not_starved_by_small_ones(self, world: World) -> None:
        if not world.traits.fair:
            return  # it says so
        a, big, small = world.actors("a", "big", "small")
        held = [a.do(lambda locks: locks.semaphore("pool", 3).acquire()) for _ in range(2)]
        wants_all = big.start(lambda locks: locks.semaphore("pool", 3).acquire(units=3, timeout=30))
        world.until_waiting("pool", "big")
        wants_one = small.start(lambda locks: locks.semaphore("pool", 3).acquire(timeout=30))
        world.until_waiting("pool", "big", "small")
        a.do(lambda _: held[0].release())
        assert world.waiters("pool") == ["big", "small"]
        a.do(lambda _: held[1].release())
        everything = wants_all.result()
        assert world.waiters("pool") == ["small"]
        big.do(lambda _: everything.release())
        small.do(lambda _: wants_one.result().release())

    def test_one_release_of_many_units_lets_many_in(self, world: World) -> None:
        a, *crew = world.actors("a", "b", "c", "d")
        everything = a.do(lambda locks: locks.semaphore("pool", 3).acquire(units=3))
        pending = []
        for number, one in enumerate(crew):
            pending.append(one.start(lambda locks: locks.semaphore("pool", 3, ttl=300).acquire(timeout=60)))
            world.until(lambda n=number: len(world.waiters("pool")) == n + 1)
        a.do(lambda _: everything.release())
        leases = [each.result(5 + world.slack) for each in pending]
        assert world.inspect("pool").used == 3
        for one, lease in zip(crew, leases, strict=True):
            one.do(lambda _, lease=lease: lease.release())

    def test_a_name_refuses_a_claim_that_disagrees_on_its_capacity(self, world: World) -> None:
        a, b = world.actors("a", "b")
        lease = a.do(lambda locks: locks.semaphore("x", 3).acquire())
        for disagree in (
            lambda locks: locks.semaphore("x", 4).acquire(timeout=5),
            lambda locks: locks.lock("x").acquire(timeout=5),
            lambda locks: locks.rwlock("x").read().acquire(timeout=5),
            lambda locks: locks.lock("x").try_acquire(),
        ):
            with pytest.raises(Misuse, match="'x' is in use with a capacity of 3"):
                b.do(disagree)
        assert world.inspect("x").used == 1
        assert world.inspect("x").waiters == ()
        a.do(lambda _: lease.release())
        other = b.do(lambda locks: locks.semaphore("x", 4).acquire(timeout=5))
        assert world.inspect("x").capacity == 4
        b.do(lambda _: other.release())
