"""Tokens rise, whatever happens."""

from __future__ import annotations

import pytest

from ...claim import MAX_TOKEN
from .kinds import MUTEXES, token_of
from .world import World, claim


class Tokens:
    @pytest.mark.parametrize("kind", MUTEXES)
    def test_every_grant_outranks_all_before(self, world: World, kind: str) -> None:
        seen: list[int] = []
        for actor in world.actors("a", "b", "a", "b"):
            for _ in range(3):
                held = actor.do(lambda locks: MUTEXES[kind](locks, "x").acquire(timeout=5))
                seen.append(token_of(held, "x"))
                actor.do(lambda _, held=held: held.release())
        assert seen == sorted(set(seen))
        assert all(type(token) is int and 0 < token <= MAX_TOKEN for token in seen)

    def test_a_grant_after_an_expiry_outranks_the_expired_one(self, world: World) -> None:
        a, b = world.actors("a", "b")
        dead = a.store(lambda store: store.claim(claim("x", world.ttl_short)))
        lease = b.do(lambda locks: locks.lock("x").acquire(timeout=world.ttl_short + world.slack + 5))
        assert lease.token > dead.token
        b.do(lambda _: lease.release())

    def test_a_grant_after_a_forced_release_outranks_the_evicted_and_the_seal(self, world: World) -> None:
        a, b = world.actors("a", "b")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        seal = b.do(lambda locks: locks.force_release("x", token=lease.token))
        assert seal > lease.token
        after = b.do(lambda locks: locks.lock("x").acquire(timeout=5))
        assert after.token > seal
        b.do(lambda _: after.release())

    def test_tokens_rise_although_the_name_was_forgotten(self, world: World) -> None:
        """Nobody inside, nobody waiting, all connections but one closed: the order outlives them."""
        highest = 0
        for number in range(3):
            actor = world.actor(f"a{number}")
            lease = actor.do(lambda locks: locks.lock("x").acquire(timeout=5))
            assert lease.token > highest
            highest = lease.token
            actor.do(lambda locks: locks.close())
            world.until_nothing_is_left()

    def test_units_of_one_semaphore_have_tokens_of_their_own(self, world: World) -> None:
        a = world.actor("a")
        leases = [a.do(lambda locks: locks.semaphore("pool", 4).acquire(timeout=5)) for _ in range(4)]
        tokens = [lease.token for lease in leases]
        assert tokens == sorted(set(tokens))
        for lease in leases:
            a.do(lambda _, lease=lease: lease.release())

    def test_a_renewed_lease_keeps_its_token(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_kept).acquire())
        world.until(lambda: all(one.age > 1.5 * world.ttl_kept for one in world.inspect("x").holders))
        assert [one.token for one in world.inspect("x").holders] == [lease.token]
        assert lease.held
        a.do(lambda _: lease.release())
