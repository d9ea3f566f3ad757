"""One leader, a rising term, and everybody told."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from ...errors import NotAcquired
from .world import Actor, World, claim, inside


def followed(actor: Actor, name: str, last: str) -> queue.SimpleQueue[Any]:
    """What a follower is told, as it is told, until nobody leads after the leader at the address `last`."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    addresses: list[str] = []

    def enough(leader: Any) -> bool:
        told.put(leader)
        addresses.append(leader.address if leader else "")
        return not leader and last in addresses

    async def follow(locks: Any) -> None:
        watching = locks.election(name).watch(timeout=20)
        if hasattr(watching, "__aiter__"):
            async for leader in watching:
                if enough(leader):
                    await watching.aclose()
                    return
        for leader in watching:
            if enough(leader):
                return

    actor.start(follow)
    return told


class Elections:
    def test_one_leads_and_everybody_knows_whom_to_ask(self, world: World) -> None:
        a, b = world.actors("a", "b")
        election = a.do(lambda locks: locks.election("boss", address="10.0.0.7:80"))
        assert b.do(lambda locks: locks.election("boss").leader()) is None
        lease = a.do(lambda _: election.lead().acquire(timeout=5))
        leader = b.do(lambda locks: locks.election("boss").leader())
        assert (leader.address, leader.term) == ("10.0.0.7:80", lease.token)
        assert leader.owner == lease.owner
        assert leader.age >= 0
        with pytest.raises(NotAcquired):
            b.do(lambda locks: locks.election("boss", address="other").lead(timeout=0.02).acquire())
        assert a.do(lambda _: election.resign()) is True
        assert a.do(lambda _: election.resign()) is False
        assert b.do(lambda locks: locks.election("boss").leader()) is None

    def test_a_leader_may_resign_inside_its_body(self, world: World) -> None:
        a = world.actor("a")
        election = a.do(lambda locks: locks.election("boss"))
        assert a.do(lambda _: inside(election.lead(), lambda _: election.resign())) is True
        assert world.names() == []

    def test_every_change_is_pushed_to_those_who_watch(self, world: World) -> None:
        a, b, follower = world.actors("a", "b", "follower")
        told = followed(follower, "boss", last="b")
        assert told.get(timeout=10) is None
        first = a.do(lambda locks: locks.election("boss", address="a").lead().acquire(timeout=5))
        leader = told.get(timeout=5 + world.slack)
        assert (leader.address, leader.term) == ("a", first.token)
        standing = b.start(lambda locks: locks.election("boss", address="b").lead().acquire(timeout=30))
        world.until_waiting("boss", "b")
        a.do(lambda _: first.release())
        second = standing.result()
        while (leader := told.get(timeout=5 + world.slack)) is None:
            pass  # the moment between the two may be seen or not
        assert (leader.address, leader.term) == ("b", second.token)
        assert second.token > first.token
        b.do(lambda _: second.release())
        assert told.get(timeout=5 + world.slack) is None

    def test_those_who_watch_are_told_when_a_leader_dies(self, world: World) -> None:
        follower = world.actor("follower")
        dead = world.looker.store(lambda store: store.claim(claim("boss", world.ttl_kept, note="dead")))
        told = followed(follower, "boss", last="dead")
        assert told.get(timeout=10).term == dead.token
        assert told.get(timeout=world.ttl_kept + world.slack + 5) is None

    def test_watching_ends_when_nothing_happens(self, world: World) -> None:
        a = world.actor("a")
        told: list[Any] = []

        async def follow(locks: Any) -> None:
            watching = locks.election("boss").watch(timeout=0.05)
            if hasattr(watching, "__aiter__"):
                told.extend([leader async for leader in watching])
            else:
                told.extend(watching)

        a.do(follow)
        assert told == [None]
