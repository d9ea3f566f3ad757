"""`confirm=False`: a release that nobody waits for arrives all the same, and the end of a body is still checked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ... import events
from ...errors import LeaseLost, Unavailable
from .tampering import tamper
from .world import World, inside, settled


class Unconfirmed:
    def test_a_release_that_nobody_waits_for_arrives(self, world: World) -> None:
        a, b = world.actors("a", "b")
        tokens = []
        for number in range(20):
            for actor in (a, b):
                lock = actor.do(lambda locks: locks.lock("x", ttl=60, confirm=False, timeout=10 + world.slack))
                tokens.append(actor.do(lambda _, lock=lock: inside(lock, lambda lease: lease.token)))
            a.do(lambda locks, number=number: inside(locks.lock(f"y{number}", ttl=60, confirm=False), lambda _: None))
        assert tokens == sorted(set(tokens))
        world.until_nothing_is_left()

    def test_two_that_are_left_at_once_are_both_released(self, world: World) -> None:
        a = world.actor("a")

        async def both(locks: Any) -> None:
            one = await settled(locks.lock("x", ttl=60, confirm=False).acquire())
            other = await settled(locks.lock("y", ttl=60, confirm=False).acquire())
            assert await settled(one.release()) is True
            assert await settled(other.release()) is True
            assert not one.held
            assert await settled(one.release()) is False

        for _ in range(5):
            a.do(both)
        world.until_nothing_is_left()

    def test_a_body_that_outlived_its_lease_is_told_though_nobody_waits_for_the_release(self, world: World) -> None:
        a = world.actor("a")
        lock = a.do(lambda locks: locks.lock("x", ttl=world.ttl_short, renew=False, confirm=False))

        async def body(lease: Any) -> None:
            end = time.monotonic() + world.ttl_short + 5
            while lease.held and time.monotonic() < end:
                await settled(world.pause(0.01))

        with pytest.raises(LeaseLost):
            a.do(lambda _: inside(lock, body))

    def test_closing_waits_for_what_was_not_waited_for(self, world: World) -> None:
        a = world.actor("a")
        a.do(lambda locks: inside(locks.lock("x", ttl=60, confirm=False), lambda _: None))
        a.do(lambda locks: locks.close())
        assert world.names() == []

    def test_whoever_wants_it_again_does_not_stand_in_line_behind_his_own_release(self, world: World) -> None:
        a = world.actor("a")

        async def again(locks: Any) -> None:
            lock = locks.lock("x", ttl=60, confirm=False)
            for _ in range(20):
                lease = await settled(lock.try_acquire())
                assert lease is not None, "it waited for itself"
                assert await settled(lease.release()) is True

        a.do(lambda locks: inside(locks.lock("x"), lambda _: None))
        a.do(again)

    def test_whoever_is_refused_behind_his_own_release_says_it_again(self, world: World) -> None:
        """Here it broke: one answer was lost, and who had left was told that he held it himself."""
        a = world.actor("a")
        hand = tamper(a.locks)

        async def leave_and_come_back(locks: Any, times: int, confirm: bool) -> int:
            lease = await settled(locks.lock("x", ttl=60, confirm=confirm).acquire())
            hand.fail("release", times=times)
            try:
                await settled(lease.release())
            except Unavailable:
                assert times > 1
            again = await settled(locks.lock("x", ttl=60).try_acquire())
            assert again is not None, "he stands behind himself"
            assert again.token > lease.token
            await settled(again.release())
            return times

        for times, confirm in ((1, False), (2, True)):
            a.do(lambda locks, times=times, confirm=confirm: leave_and_come_back(locks, times, confirm))
            hand.heal()
        world.until_nothing_is_left()

    def test_a_release_that_nobody_waits_for_is_repeated_until_it_is_answered(self, world: World) -> None:
        a = world.actor("a")
        told: list[str] = []
        a.do(lambda locks: locks.subscribe(lambda event: told.append(event.kind), [events.LOST]))
        hand = tamper(a.locks)
        for reply_only in (False, True):
            hand.fail("release", times=3, reply_only=reply_only)
            a.do(lambda locks: inside(locks.lock("x", ttl=60, confirm=False), lambda _: None))
            world.until_nothing_is_left()
            world.until(lambda: hand.calls.count("release") >= 4)
            hand.heal()
            hand.calls.clear()
        assert told == [], "who repeats finds nothing, since the first one arrived: that is no loss"

    def test_who_was_put_out_is_told_though_nobody_waits_for_the_release(self, world: World) -> None:
        a = world.actor("a")
        told: list[tuple[str, int]] = []
        a.do(lambda locks: locks.subscribe(lambda event: told.append((event.name, event.token)), [events.LOST]))
        lease = a.do(lambda locks: locks.lock("x", ttl=60, renew=False, confirm=False).acquire())
        assert world.looker.do(lambda locks: locks.force_release("x", token=lease.token))
        there = a.do(lambda _: lease.release())
        assert a.do(lambda locks: locks.inspect("x")).holders == ()  # reads what nobody has read yet
        if there:  # nobody knew yet
            world.until(lambda: told == [("x", lease.token)])
