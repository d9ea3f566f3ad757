"""Holders and waiters that never come back."""

from __future__ import annotations

import time

from .kinds import MUTEXES
from .processes import holding_process
from .world import World, claim


class Deaths:
    def test_a_dead_holder_is_replaced_when_its_ttl_ends(self, world: World) -> None:
        for number, make in enumerate(MUTEXES.values()):
            name = f"x{number}"
            capacity = 2**31 - 1 if make is MUTEXES["write lock"] else 1
            dead = claim(name, world.ttl_short, units=capacity, capacity=capacity)
            a = world.actor("a")
            before = time.monotonic()
            world.looker.store(lambda store, dead=dead: store.claim(dead))
            lease = a.do(lambda locks, make=make, name=name: make(locks, name).acquire(timeout=None))
            took = time.monotonic() - before
            assert 0.9 * world.ttl_short <= took <= world.ttl_short + world.slack
            a.do(lambda _, lease=lease: lease.release())

    def test_a_dead_waiter_does_not_block_the_line_beyond_its_ttl(self, world: World) -> None:
        """Elsewhere: an orphan at the head of the queue blocked a free lock."""
        a, b = world.actors("a", "b")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        for _ in range(3):
            world.looker.store(lambda store: store.claim(claim("x", world.ttl_short)))
        before = time.monotonic()
        waiting = b.start(lambda locks: locks.lock("x").acquire(timeout=30))
        world.until(lambda: "b" in world.waiters("x"))
        a.do(lambda _: lease.release())
        taken = waiting.result()
        assert time.monotonic() - before <= world.ttl_short + world.slack
        if not world.traits.fair:  # no line: the living one did not have to wait for the dead ones to go
            world.until(lambda: world.waiters("x") == [], within=world.ttl_short + world.slack)
        assert world.waiters("x") == []
        b.do(lambda _: taken.release())

    def test_a_dead_waiter_is_not_let_in_behind_our_backs(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        world.looker.store(lambda store: store.claim(claim("x", world.ttl_short)))
        a.do(lambda _: lease.release())
        assert world.holders("x") == []
        world.until(lambda: not world.names(), within=world.ttl_short + world.slack)

    def test_a_killed_process_is_replaced_within_its_ttl(self, world: World) -> None:
        if world.traits.scope == "process":
            return  # it would have to be this one
        a = world.actor("a")
        ttl = world.ttl_kept
        with holding_process(world.url, "x", ttl) as (process, token):
            waiting = a.start(lambda locks: locks.lock("x").acquire(timeout=None))
            world.until_waiting("x", "a")
            world.until(lambda: world.inspect("x").holders[0].age > ttl)  # it renews, while it lives
            process.kill()
            lease = waiting.result(ttl + world.slack + 1)
        assert lease.token > token
        a.do(lambda _: lease.release())
