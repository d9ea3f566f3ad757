"""The same thread, or task, again."""

from __future__ import annotations

import pytest

from ...errors import LeaseLost, Misuse
from .world import World, inside


class Reentrancy:
    def test_who_is_inside_may_enter_again_and_leaves_at_the_outermost_exit(self, world: World) -> None:
        a = world.actor("a")
        outer = a.do(lambda locks: locks.lock("x", reentrant=True).acquire(timeout=5))
        inner = a.do(lambda locks: locks.lock("x", reentrant=True).acquire(timeout=5))
        assert inner.token == outer.token
        tried = a.do(lambda locks: locks.lock("x", reentrant=True).try_acquire())
        assert tried.token == outer.token
        for lease in (tried, inner):
            assert a.do(lambda _, lease=lease: lease.release()) is True
            assert world.holders("x") == ["a"]
            assert outer.held
        assert a.do(lambda _: outer.release()) is True
        assert world.names() == []
        later = a.do(lambda locks: locks.lock("x", reentrant=True).acquire(timeout=5))
        assert later.token > outer.token
        a.do(lambda _: later.release())

    def test_bodies_may_be_nested(self, world: World) -> None:
        a = world.actor("a")
        seen: list[list[str]] = []

        def innermost(_: object) -> None:
            seen.append(world.holders("x"))

        def nested(locks: object) -> object:
            lock = a.locks.lock("x", reentrant=True)
            return inside(lock, lambda _: inside(lock, lambda _: inside(lock, innermost)))

        a.do(nested)
        assert seen == [["a"]]
        assert world.names() == []

    def test_another_thread_or_task_of_the_same_connection_does_not_enter(self, world: World) -> None:
        a = world.actor("a")
        friend = a.beside("friend")
        lease = a.do(lambda locks: locks.lock("x", reentrant=True).acquire())
        assert friend.do(lambda locks: locks.lock("x", reentrant=True).try_acquire()) is None
        a.do(lambda _: lease.release())
        theirs = friend.do(lambda locks: locks.lock("x", reentrant=True).try_acquire())
        assert theirs.token > lease.token
        friend.do(lambda _: theirs.release())

    def test_a_lost_lock_is_not_entered_again(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x", reentrant=True, ttl=world.ttl_short).acquire())
        a.do(lambda locks: locks.lock("x", reentrant=True).acquire())
        world.looker.do(lambda locks: locks.force_release("x", token=lease.token))
        a.do(lambda _: lease.lost.wait(world.ttl_short + world.slack + 5))
        for _ in range(2):
            with pytest.raises(LeaseLost):
                a.do(lambda locks: locks.lock("x", reentrant=True).acquire(timeout=5))
            assert a.do(lambda _: lease.release()) is False
        fresh = a.do(lambda locks: locks.lock("x", reentrant=True).acquire(timeout=5))
        assert fresh.token > lease.token
        a.do(lambda _: fresh.release())

    def test_a_reader_does_not_re_enter_as_a_mutex(self, world: World) -> None:
        a, b = world.actors("a", "b")
        for one in (a, b):
            one.do(lambda locks: locks.rwlock("x").read().acquire(timeout=5))
        for one in (a, b):
            with pytest.raises(Misuse, match="in use with readers and writers"):
                one.do(lambda locks: locks.lock("x", reentrant=True).try_acquire())
