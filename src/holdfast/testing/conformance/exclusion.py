"""One at a time."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import NotAcquired
from .kinds import MUTEXES, token_of
from .world import World, inside, settled


class Exclusion:
    @pytest.mark.parametrize("kind", MUTEXES)
    def test_no_count_is_lost_when_many_count_together(self, world: World, kind: str) -> None:
        total = 0
        tokens: list[int] = []

        async def count(locks: Any) -> None:
            nonlocal total
            for _ in range(5):
                held = await settled(MUTEXES[kind](locks, "counter").acquire(timeout=60))
                seen = total
                tokens.append(token_of(held, "counter"))
                await settled(world.pause(0.0005))  # the race, held open
                total = seen + 1
                await settled(held.release())

        apart = world.actors("a", "b", "c")
        together = [actor.beside(f"{actor.name}'s friend") for actor in apart]
        for pending in [actor.start(count) for actor in (*apart, *together)]:
            pending.result(60)
        assert total == 5 * 6
        assert tokens == sorted(set(tokens)), "tokens rise in the order of the grants"
        world.until_nothing_is_left()

    @pytest.mark.parametrize("kind", MUTEXES)
    @pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
    def test_while_one_is_inside_another_is_refused_and_then_gets_in(
        self, world: World, kind: str, apart: bool
    ) -> None:
        a = world.actor("a")
        b = world.actor("b") if apart else a.beside("b")
        make = MUTEXES[kind]
        first = a.do(lambda locks: make(locks, "x").acquire(timeout=5))
        assert b.do(lambda locks: make(locks, "x").try_acquire()) is None
        with pytest.raises(NotAcquired):
            b.do(lambda locks: make(locks, "x").acquire(timeout=0.02))
        assert world.waiters("x") == []
        waiting = b.start(lambda locks: make(locks, "x").acquire(timeout=30))
        world.until_waiting("x", "b")
        a.do(lambda _: first.release())
        second = waiting.result()
        assert token_of(second, "x") > token_of(first, "x")
        assert world.holders("x") == ["b"]
        b.do(lambda _: second.release())
        world.until_nothing_is_left()

    def test_a_body_never_runs_without_the_lock(self, world: World) -> None:
        """Elsewhere: three etcd clients run the body of `with` when acquire returned False."""
        a, b = world.actors("a", "b")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        entered: list[object] = []
        for make in (lambda locks: locks.lock("x", timeout=0), lambda locks: locks.all_of("x", timeout=0.01)):
            with pytest.raises(NotAcquired):
                b.do(lambda locks, make=make: inside(make(locks), entered.append))
        assert entered == []
        a.do(lambda _: lease.release())

    def test_one_lock_object_may_be_shared_by_all(self, world: World) -> None:
        """Elsewhere: a token in the lock object, or in a thread-local, was shared by all tasks."""
        a = world.actor("a")
        shared = a.do(lambda locks: locks.lock("x", timeout=30))
        inside_now = 0
        most = 0

        async def body(_: Any) -> None:
            nonlocal inside_now, most
            inside_now += 1
            most = max(most, inside_now)
            await settled(world.pause(0.001))
            inside_now -= 1

        crew = [a, *(a.beside(f"a{n}") for n in range(4))]
        for _ in range(3):
            for pending in [one.start(lambda _: inside(shared, body)) for one in crew]:
                pending.result()
        assert most == 1
        world.until_nothing_is_left()

    def test_a_lease_may_be_released_by_another_than_took_it(self, world: World) -> None:
        """Ownership is the lease, not the thread."""
        a = world.actor("a")
        friend = a.beside("friend")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        assert friend.do(lambda _: lease.release()) is True
        assert not lease.held
        world.until_nothing_is_left()

    def test_two_clients_with_the_same_label_are_told_apart(self, world: World) -> None:
        a, b = world.actor("same", label="twin"), world.actor("same", label="twin")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        assert b.do(lambda locks: locks.lock("x").try_acquire()) is None
        assert lease.owner.endswith("/same/twin")
        a.do(lambda _: lease.release())
