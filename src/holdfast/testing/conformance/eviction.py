"""A forced release: only the grant that was looked at, audited, and outranked."""

from __future__ import annotations

from typing import Any

from ... import events
from .world import World, claim


class Evictions:
    def test_only_the_holder_of_that_token_is_put_out(self, world: World) -> None:
        a, b, admin = world.actors("a", "b", "admin")
        one = a.do(lambda locks: locks.semaphore("pool", 2, ttl=world.ttl_kept).acquire())
        two = b.do(lambda locks: locks.semaphore("pool", 2, ttl=world.ttl_kept).acquire())
        assert admin.do(lambda locks: locks.force_release("pool", token=one.token + 10**12)) is None
        assert admin.do(lambda locks: locks.force_release("other", token=one.token)) is None
        assert admin.do(lambda locks: locks.force_release("pool", token=one.token)) > two.token
        assert world.holders("pool") == ["b"]
        assert a.do(lambda _: one.lost.wait(world.ttl_kept + world.slack + 5)) is True
        assert two.held
        assert admin.do(lambda locks: locks.force_release("pool", token=one.token)) is None
        b.do(lambda _: two.release())

    def test_the_next_in_line_gets_in_at_once(self, world: World) -> None:
        a, b, admin = world.actors("a", "b", "admin")
        lease = a.do(lambda locks: locks.lock("x", ttl=300).acquire())
        waiting = b.start(lambda locks: locks.lock("x", ttl=300).acquire(timeout=60))
        world.until_waiting("x", "b")
        seal = admin.do(lambda locks: locks.force_release("x", token=lease.token))
        assert waiting.result(5 + world.slack).token > seal
        assert a.do(lambda _: lease.release()) is False
        assert world.holders("x") == ["b"]

    def test_who_was_put_out_by_whom_can_be_seen_afterwards(self, world: World) -> None:
        a, admin = world.actors("a", "admin")
        told: list[Any] = []
        admin.do(lambda locks: locks.subscribe(told.append, [events.EVICTED]))
        lease = a.do(lambda locks: locks.lock("x").acquire())
        assert world.inspect("x").eviction is None
        seal = admin.do(lambda locks: locks.force_release("x", token=lease.token))
        eviction = world.inspect("x").eviction
        assert eviction is not None
        assert (eviction.owner, eviction.evicted_token, eviction.token) == (lease.owner, lease.token, seal)
        assert eviction.by.split("/")[2] == "admin"
        assert 0 <= eviction.age < 30
        assert [(event.kind, event.name, event.token) for event in told] == [(events.EVICTED, "x", lease.token)]

    def test_an_expired_grant_is_nobodys_to_put_out(self, world: World) -> None:
        grant = world.looker.store(lambda store: store.claim(claim("x", world.ttl_short)))
        world.until(lambda: not world.names())
        assert world.looker.do(lambda locks: locks.force_release("x", token=grant.token)) is None
