"""Who would wait for themselves for ever is told so at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ...errors import Misuse, NotAcquired
from .world import Actor, World, settled

AGAIN: dict[str, tuple[Any, Any]] = {
    "a writer that reads": (lambda locks: locks.rwlock("x").write(), lambda locks: locks.rwlock("x").read()),
    "a writer that writes": (lambda locks: locks.rwlock("x").write(), lambda locks: locks.rwlock("x").write()),
    "a reader that writes": (lambda locks: locks.rwlock("x").read(), lambda locks: locks.rwlock("x").write()),
    "a leader that stands": (lambda locks: locks.election("x").lead(), lambda locks: locks.election("x").lead()),
}


def waits_beside(world: World, holder: Actor, lease: Any, acquire: Callable[[Any], Any]) -> None:
    """Another thread or task of the same process is in line until the lease is given back."""
    other = holder.beside("other")
    waiting = other.start(acquire)
    world.until_waiting("x", "other")
    holder.do(lambda _: lease.release())
    got = waiting.result(5 + world.slack)
    other.do(lambda _: got.release())


class Oneself:
    @pytest.mark.parametrize("what", AGAIN)
    def test_one_who_would_wait_for_oneself_is_refused_at_once(self, world: World, what: str) -> None:
        first, second = AGAIN[what]
        a = world.actor("a")
        lease = a.do(lambda locks: first(locks).acquire(timeout=5))
        with pytest.raises(Misuse):
            a.do(lambda locks: second(locks).acquire(timeout=20), within=1 + world.slack)
        with pytest.raises(Misuse):  # nor with a short patience: the mistake is the same
            a.do(lambda locks: second(locks).acquire(timeout=0.5), within=1 + world.slack)
        assert lease.held
        assert world.waiters("x") == []
        a.do(lambda _: lease.release())
        again = a.do(lambda locks: second(locks).acquire(timeout=5))  # with nothing held, nobody is in the way
        a.do(lambda _: again.release())
        world.until_nothing_is_left()

    @pytest.mark.parametrize("what", AGAIN)
    def test_another_of_the_same_process_just_waits(self, world: World, what: str) -> None:
        first, second = AGAIN[what]
        a = world.actor("a")
        lease = a.do(lambda locks: first(locks).acquire(timeout=5))
        waits_beside(world, a, lease, lambda locks: second(locks).acquire(timeout=20))

    def test_one_who_holds_a_lock_and_would_wait_for_it_for_ever_is_told_so(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x").acquire(timeout=5))
        for second in (lambda locks: locks.lock("x"), lambda locks: locks.all_of("x", "y")):
            with pytest.raises(Misuse, match="you hold 'x' already"):
                a.do(lambda locks, second=second: second(locks).acquire(), within=5 + world.slack)
        with pytest.raises(
            NotAcquired
        ):  # with a timeout it is an honest question: the lease may be given back elsewhere
            a.do(lambda locks: locks.lock("x").acquire(timeout=0.1))
        assert lease.held
        world.until(lambda: world.waiters("x") == [] and world.names() == ["x"])
        waits_beside(world, a, lease, lambda locks: locks.lock("x").acquire())

    def test_a_leader_that_resigned_may_stand_again(self, world: World) -> None:
        a = world.actor("a")

        async def twice(locks: Any) -> tuple[int, int]:
            election = locks.election("x")
            first = await settled(election.lead().acquire(timeout=5))
            assert await settled(election.resign())
            second = await settled(election.lead().acquire(timeout=5))
            await settled(second.release())
            return first.token, second.token

        first, second = a.do(twice)
        assert second > first
