"""all_of: several locks, all or nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ...errors import NotAcquired, Unavailable
from .tampering import tamper
from .world import World, inside, settled


class Several:
    def test_all_are_taken_with_a_token_each_and_all_are_given_back(self, world: World) -> None:
        a = world.actor("a")
        leases = a.do(lambda locks: locks.all_of("b", "a", "c", "a").acquire(timeout=5))
        assert [lease.name for lease in leases] == ["a", "b", "c"]
        assert len(leases) == 3
        assert leases.tokens == {name: leases[name].token for name in "abc"}
        assert world.names() == ["a", "b", "c"]
        a.do(lambda _: leases.release())
        assert world.names() == []

    def test_if_one_is_not_to_be_had_none_is_kept(self, world: World) -> None:
        a, b = world.actors("a", "b")
        taken = a.do(lambda locks: locks.lock("m").acquire())
        assert b.do(lambda locks: locks.all_of("a", "m", "z").try_acquire()) is None
        with pytest.raises(NotAcquired, match="'m'"):
            b.do(lambda locks: locks.all_of("a", "m", "z").acquire(timeout=0.05))
        assert world.names() == ["m"]
        assert world.waiters("m") == []
        a.do(lambda _: taken.release())

    def test_one_deadline_covers_all(self, world: World) -> None:
        """Elsewhere: each member was given the whole timeout."""
        a, b = world.actors("a", "b")
        names = [f"x{number}" for number in range(4)]
        taken = {name: a.do(lambda locks, name=name: locks.lock(name).acquire()) for name in names}
        before = time.monotonic()
        waiting = b.start(lambda locks: locks.all_of(*names).acquire(timeout=0.6))
        world.until(lambda: world.waiters("x0") == ["b"], within=0.5)
        a.do(lambda _: taken["x0"].release())
        with pytest.raises(NotAcquired):
            waiting.result()
        assert time.monotonic() - before < 0.6 + world.slack
        for name in names[1:]:
            a.do(lambda _, name=name: taken[name].release())
        world.until_nothing_is_left()

    def test_if_the_store_fails_at_any_of_them_all_are_rolled_back(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        for failing in range(4):
            calls = 0

            def hook(method: str, failing: int = failing) -> None:
                nonlocal calls
                calls += method == "claim"
                if method == "claim" and calls > failing:
                    raise Unavailable("as the test wants it")

            hand.heal()
            hand.after = hook
            with pytest.raises(Unavailable):
                a.do(lambda locks: locks.all_of("a", "b", "c", "d").acquire(timeout=5))
            assert world.names() == [], f"failed at number {failing}"

    def test_the_failure_to_release_one_does_not_strand_the_rest(self, world: World) -> None:
        """Elsewhere: unlocking was a bare loop, and its first error stranded the rest."""
        a = world.actor("a")
        hand = tamper(a.locks)
        leases = a.do(lambda locks: locks.all_of("a", "b", "c").acquire())
        hand.fail_name("release", "c")
        with pytest.raises(Unavailable):
            a.do(lambda _: leases.release())
        assert world.names() == ["c"]
        hand.heal()
        a.do(lambda _: leases.release())
        assert world.names() == []

    def test_opposite_orders_do_not_deadlock(self, world: World) -> None:
        async def cross(locks: Any, *names: str) -> None:
            for _ in range(5):
                await settled(inside(locks.all_of(*names, timeout=30), lambda _: world.pause(0.001)))

        a, b = world.actors("a", "b")
        pending = [
            a.start(lambda locks: cross(locks, "left", "right")),
            b.start(lambda locks: cross(locks, "right", "left")),
        ]
        for each in pending:
            each.result(30)
        world.until_nothing_is_left()
