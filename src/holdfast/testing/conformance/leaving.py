"""Release: by the holder, once, and again if the store did not answer."""

from __future__ import annotations

import pytest

from ... import events
from ...errors import LeaseLost, Unavailable
from .kinds import MUTEXES
from .tampering import tamper
from .world import World, inside


def fails(_: object) -> None:
    raise KeyError("the body's own")


class Leaving:
    def test_a_release_that_failed_may_be_repeated(self, world: World) -> None:
        """Elsewhere: release dropped the token, and then failed on the network."""
        a = world.actor("a")
        hand = tamper(a.locks)
        lease = a.do(lambda locks: locks.lock("x").acquire())
        token = lease.token
        hand.fail("release", times=10**6)
        with pytest.raises(Unavailable):
            a.do(lambda _: lease.release())
        assert lease.token == token
        assert not lease.held
        assert world.holders("x") == ["a"]
        with pytest.raises(Unavailable):
            a.do(lambda _: lease.release())
        hand.heal()
        a.do(lambda _: lease.release())
        assert world.names() == []

    def test_a_release_whose_connection_broke_is_repeated_at_once(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        lease = a.do(lambda locks: locks.lock("x").acquire())
        hand.fail("release")
        assert a.do(lambda _: lease.release()) is True
        assert world.names() == []

    def test_a_release_that_failed_goes_on_in_the_background(self, world: World) -> None:
        """A server that restarts does not keep a name taken for the rest of its ttl."""
        a = world.actor("a")
        hand = tamper(a.locks)
        told: list[str] = []
        a.do(lambda locks: locks.subscribe(lambda event: told.append(event.kind), [events.RELEASE_FAILED]))
        for reply_only in (False, True):
            hand.fail("release", times=5, reply_only=reply_only)
            a.do(lambda locks: inside(locks.lock("x", ttl=600), lambda lease: None))
            world.until_nothing_is_left()
            hand.heal()
        assert told == []

    def test_a_release_whose_answer_was_lost_may_be_repeated(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        lease = a.do(lambda locks: locks.lock("x").acquire())
        hand.fail("release", times=2, reply_only=True)
        with pytest.raises(Unavailable):
            a.do(lambda _: lease.release())
        assert a.do(lambda _: lease.release()) is False
        assert a.do(lambda _: lease.release()) is False
        world.until_nothing_is_left()

    @pytest.mark.parametrize("kind", MUTEXES)
    def test_a_failing_release_does_not_hide_what_the_body_did(self, world: World, kind: str) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        told: list[str] = []
        a.do(lambda locks: locks.subscribe(lambda event: told.append(event.kind), [events.RELEASE_FAILED]))
        hand.fail("release", times=10**6)
        ttl = world.ttl_short
        with pytest.raises(KeyError, match="the body's own"):
            a.do(lambda locks: inside(MUTEXES[kind](locks, "x", ttl=ttl), fails))
        assert a.do(lambda locks: inside(MUTEXES[kind](locks, "y", ttl=ttl), lambda lease: "done")) == "done"
        world.until(lambda: told == [events.RELEASE_FAILED] * 2)  # when they have ended by themselves
        hand.heal()

    def test_a_failing_body_releases_the_lock(self, world: World) -> None:
        a = world.actor("a")
        for make in MUTEXES.values():
            with pytest.raises(KeyError, match="the body's own"):
                a.do(lambda locks, make=make: inside(make(locks, "x"), fails))
            assert world.names() == []

    def test_a_body_may_release_early(self, world: World) -> None:
        a = world.actor("a")
        a.do(lambda locks: inside(locks.lock("x"), lambda lease: lease.release()))
        a.do(lambda locks: inside(locks.lock("x").acquire(timeout=5), lambda lease: lease.release()))
        a.do(lambda locks: inside(locks.all_of("x", "y"), lambda leases: leases.release()))
        assert world.names() == []

    def test_what_was_released_is_over(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        assert a.do(lambda _: lease.release()) is True
        assert a.do(lambda _: lease.release()) is False
        assert not lease.held
        assert not lease.in_danger
        assert lease.remaining() == 0
        assert not lease.lost
        assert a.do(lambda _: lease.lost.wait(world.slack + 5), within=5) is False
        with pytest.raises(LeaseLost, match="was released"):
            lease.check()

    def test_closing_a_connection_releases_what_it_holds(self, world: World) -> None:
        a = world.actor("a")
        a.do(lambda locks: locks.lock("x").acquire())
        a.do(lambda locks: locks.all_of("y", "z").acquire())
        again = a.do(lambda locks: locks.lock("again", reentrant=True).acquire())
        assert a.do(lambda locks: locks.lock("again", reentrant=True).acquire()) is again
        a.do(lambda locks: locks.close())
        assert world.names() == []
        a.do(lambda locks: locks.close())
