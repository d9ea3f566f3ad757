"""Below the engine: what a store owes to a claim that is repeated, lost, late or not its own."""

from __future__ import annotations

import pytest

from ...claim import Grant, Place
from ...errors import LeaseLost, NotAcquired, Unavailable
from .tampering import tamper
from .world import World, claim


class Claims:
    def test_a_claim_that_is_inside_may_be_repeated_and_keeps_its_token(self, world: World) -> None:
        mine = claim("x")
        first = world.looker.store(lambda store: store.claim(mine))
        second = world.looker.store(lambda store: store.claim(mine))
        assert isinstance(first, Grant)
        assert isinstance(second, Grant)
        assert first.token == second.token
        assert len(world.inspect("x").holders) == 1
        assert world.looker.store(lambda store: store.release(mine)) is True
        world.until_nothing_is_left()

    def test_a_claim_that_is_in_line_may_be_repeated_and_keeps_its_place(self, world: World) -> None:
        inside, first, second = claim("x"), claim("x", owner="h/1/first"), claim("x", owner="h/1/second")
        for each in (inside, first, second, first, second, first):
            world.looker.store(lambda store, each=each: store.claim(each))
        world.until_waiting("x", "first", "second")  # where the server keeps the line, it may still be on its way there
        for each in (inside, first, second):
            assert world.looker.store(lambda store, each=each: store.release(each)) is True
        world.until_nothing_is_left()

    def test_a_claim_after_its_release_is_a_new_one(self, world: World) -> None:
        mine = claim("x")
        first = world.looker.store(lambda store: store.claim(mine))
        world.looker.store(lambda store: store.release(mine))
        again = world.looker.store(lambda store: store.claim(mine))
        assert again.token > first.token
        world.looker.store(lambda store: store.release(mine))

    def test_one_that_will_not_queue_leaves_no_place(self, world: World) -> None:
        inside, hasty = claim("x"), claim("x", queue=False)
        world.looker.store(lambda store: store.claim(inside))
        assert isinstance(world.looker.store(lambda store: store.claim(hasty)), Place)
        assert world.waiters("x") == []
        world.looker.store(lambda store: store.release(inside))

    def test_nobody_releases_what_is_not_theirs(self, world: World) -> None:
        mine, other = claim("x"), claim("x")
        world.looker.store(lambda store: store.claim(mine))
        assert world.looker.store(lambda store: store.release(other)) is False
        assert len(world.inspect("x").holders) == 1
        assert world.looker.store(lambda store: store.release(mine)) is True
        assert world.looker.store(lambda store: store.release(mine)) is False

    def test_a_release_that_arrives_too_late_leaves_the_successor_alone(self, world: World) -> None:
        late = claim("x", world.ttl_short)
        world.looker.store(lambda store: store.claim(late))
        b = world.actor("b")
        lease = b.do(lambda locks: locks.lock("x").acquire(timeout=world.ttl_short + world.slack + 5))
        assert world.looker.store(lambda store: store.release(late)) is False
        assert [one.token for one in world.inspect("x").holders] == [lease.token]
        b.do(lambda _: lease.release())

    def test_a_renewal_after_the_end_is_refused_and_revives_nothing(self, world: World) -> None:
        """Elsewhere: extend took an expired lock again."""
        dead = claim("x", world.ttl_short)
        grant = world.looker.store(lambda store: store.claim(dead))
        world.until(lambda: not world.names())
        assert world.looker.store(lambda store: store.renew([grant], 5)) == [None]
        assert world.names() == []
        successor = world.looker.store(lambda store: store.claim(claim("x", world.ttl_short)))
        assert world.looker.store(lambda store: store.renew([grant, successor], 5)) == [None, successor]
        assert [one.token for one in world.inspect("x").holders] == [successor.token]

    def test_renewals_are_answered_one_by_one(self, world: World) -> None:
        claims = [claim(f"x{number}") for number in range(4)]
        grants = [world.looker.store(lambda store, each=each: store.claim(each)) for each in claims]
        world.looker.store(lambda store: store.release(claims[1]))
        stranger = Grant(claim("x2"), grants[2].token, 30.0)
        answers = world.looker.store(lambda store: store.renew([*grants, stranger], 5))
        assert [bool(answer) for answer in answers] == [True, False, True, True, False]
        assert [answer.token for answer in answers if answer] == [grants[n].token for n in (0, 2, 3)]
        for each in claims:
            world.looker.store(lambda store, each=each: store.release(each))

    def test_a_grant_whose_answer_was_lost_is_found_again(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        hand.fail("claim", reply_only=True)
        lease = a.do(lambda locks: locks.lock("x").acquire(timeout=5))
        assert hand.calls.count("claim") == 2
        assert [one.token for one in world.inspect("x").holders] == [lease.token]
        a.do(lambda _: lease.release())
        world.until_nothing_is_left()

    def test_a_store_that_does_not_answer_is_reported_and_no_ghost_stays(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        hand.fail("claim", times=9, reply_only=True)
        with pytest.raises(Unavailable):
            a.do(lambda locks: locks.lock("x").acquire(timeout=5))
        world.until_nothing_is_left()

    @pytest.mark.parametrize("timeout", [0, 0.01])
    def test_a_grant_that_arrives_after_its_end_is_no_grant_and_no_ghost_stays(
        self, world: World, timeout: float
    ) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        hand.before = hand.after = lambda method: world.pause(0.6 * world.ttl_short) if method == "claim" else None
        with pytest.raises(NotAcquired):
            a.do(lambda locks: locks.lock("x", ttl=world.ttl_short).acquire(timeout=timeout))
        # Given back in the background, if the pauses took all the time there was; a ghost would stay a little longer.
        world.until(lambda: world.names() == [], within=0.3 * world.ttl_short)

    def test_deadlines_count_from_before_the_request_was_sent(self, world: World) -> None:
        """Elsewhere: counted from the answer, the holder believed longer than the server."""
        a = world.actor("a")
        hand = tamper(a.locks)
        hand.after = lambda method: world.pause(0.5 * world.ttl_short) if method == "claim" else None
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_short, renew=False).acquire(timeout=5))
        hand.heal()
        assert lease.remaining() <= 0.5 * world.ttl_short
        world.until(lambda: not lease.held)
        with pytest.raises(LeaseLost):
            lease.check()
