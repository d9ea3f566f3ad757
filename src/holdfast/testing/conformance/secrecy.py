"""The nonce that releases a lock is never shown. Elsewhere: it was, and whoever read a log could release."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ...errors import HoldfastError, NotAcquired
from .tampering import tamper
from .world import World, claim


class Secrecy:
    def test_the_nonce_is_in_nothing_that_can_be_printed(self, world: World) -> None:
        a, b = world.actors("a", "b")
        shown: list[Any] = []
        for actor in (a, b):
            actor.do(lambda locks: locks.subscribe(shown.append))
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_short).acquire())
        nonce = lease._grant.claim.holder
        assert len(nonce) == 32
        with pytest.raises(NotAcquired) as refused:
            b.do(lambda locks: locks.lock("x").acquire(timeout=0.02))
        waiting = b.start(lambda locks: locks.lock("x").acquire(timeout=30))
        world.until_waiting("x", "b")
        graph = world.looker.do(lambda locks: locks.wait_graph())
        shown += [lease, lease._grant, lease._grant.claim, refused.value, refused.value.snapshot, world.inspect("x")]
        shown += [graph.edges, graph.snapshots, a.locks, a.locks.traits, a.do(lambda locks: locks.lock("x"))]
        world.looker.do(lambda locks: locks.force_release("x", token=lease.token))
        a.do(lambda _: lease.lost.wait(world.ttl_short + world.slack + 5))
        with pytest.raises(HoldfastError) as lost:
            lease.check()
        taken = waiting.result()
        hand = tamper(b.locks)
        hand.fail("release", times=2)
        with pytest.raises(HoldfastError) as failed:
            b.do(lambda _: taken.release())
        b.do(lambda _: taken.release())
        shown += [lost.value, failed.value, lease, taken, world.inspect("x")]
        place = a.store(lambda store: store.claim(claim("x")))
        shown += [place, place.claim]
        secrets = [nonce, taken._grant.claim.holder, place.claim.holder]
        for one in shown:
            for text in (repr(one), str(one), f"{one}", f"{one!r:.200}"):
                assert not any(secret in text for secret in secrets), text
        for error in (refused.value, lost.value, failed.value):
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again)) == (type(error), str(error))
            assert not any(secret.encode() in pickle.dumps(error) for secret in secrets)

    def test_no_nonce_is_used_twice(self, world: World) -> None:
        a = world.actor("a")
        seen = set()
        for _ in range(20):
            lease = a.do(lambda locks: locks.lock("x").acquire(timeout=5))
            seen.add(lease._grant.claim.holder)
            a.do(lambda _, lease=lease: lease.release())
        assert len(seen) == 20
