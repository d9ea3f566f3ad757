"""Renewal: a lease lives while its holder does; a loss is told, and final."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ... import events
from ...errors import LeaseLost
from .kinds import MUTEXES
from .tampering import tamper
from .world import Cancelled, World, inside, settled


class Keeping:
    def test_a_lease_outlives_its_ttl_while_its_holder_lives(self, world: World) -> None:
        actors = world.actors("a", "b")
        for number, make in enumerate(MUTEXES.values()):
            name = f"x{number}"
            actors[0].do(lambda locks, make=make, name=name: make(locks, name, ttl=world.ttl_kept).acquire())
        world.until(lambda: all(world.inspect(n).holders[0].age > 1.2 * world.ttl_kept for n in world.names()))
        assert len(world.names()) == len(MUTEXES)
        for number, make in enumerate(MUTEXES.values()):
            name = f"x{number}"
            assert actors[1].do(lambda locks, make=make, name=name: make(locks, name).try_acquire()) is None

    def test_a_lease_that_is_not_renewed_ends(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_short, renew=False).acquire())
        assert lease.held
        assert a.do(lambda _: lease.lost.wait(world.ttl_short + world.slack + 5)) is True
        assert not lease.held
        world.until(lambda: not world.names(), within=world.slack + 1)

    def test_a_loss_is_told_in_every_way(self, world: World) -> None:
        a, b = world.actors("a", "b")
        told: list[Any] = []
        lost: list[Any] = []
        a.do(lambda locks: locks.subscribe(told.append, [events.LOST]))
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_short).acquire())

        def raises(_: object) -> None:
            raise KeyError("a callback that fails breaks nothing")

        a.do(lambda _: lease.on_lost(raises))
        a.do(lambda _: lease.on_lost(lost.append))
        b.do(lambda locks: locks.force_release("x", token=lease.token))
        assert a.do(lambda _: lease.lost.wait(world.ttl_short + world.slack + 5)) is True
        world.until(lambda: lost and told)
        assert lost == [lease]
        assert [(event.name, event.token) for event in told] == [("x", lease.token)]
        assert lease.lost
        assert not lease.held
        assert lease.remaining() == 0
        with pytest.raises(LeaseLost, match=r"lost the lock 'x' \(token \d+\)"):
            lease.check()
        a.do(lambda _: lease.on_lost(lost.append))
        assert lost == [lease, lease]
        assert a.do(lambda _: lease.release()) is False

    def test_a_body_that_lost_its_lock_does_not_end_as_if_nothing_had_been(self, world: World) -> None:
        for number, make in enumerate(MUTEXES.values()):
            name = f"x{number}"
            a = world.actor("a")

            async def body(held: Any, name: str = name) -> None:
                lease = held[name] if hasattr(held, "tokens") else held
                assert world.looker.do(lambda locks: locks.force_release(name, token=lease.token))
                await settled(lease.lost.wait(world.ttl_kept + world.slack + 5))

            with pytest.raises(LeaseLost):
                a.do(lambda locks, make=make, n=name, body=body: inside(make(locks, n, ttl=world.ttl_kept), body))

    def test_a_body_that_ends_before_it_was_told_is_told_at_its_end(self, world: World) -> None:
        for number, make in enumerate(MUTEXES.values()):
            name = f"x{number}"
            a = world.actor("a")

            def body(held: Any, name: str = name) -> None:
                lease = held[name] if hasattr(held, "tokens") else held
                assert world.looker.do(lambda locks: locks.force_release(name, token=lease.token))

            with pytest.raises(LeaseLost):
                a.do(lambda locks, make=make, n=name, body=body: inside(make(locks, n), body))

    def test_a_loss_cancels_an_asyncio_body_and_comes_out_as_lease_lost(self, world: World) -> None:
        if not world.asynchronous:
            return  # nothing can stop a thread
        a, b = world.actors("a", "b")
        cancelled: list[str] = []

        async def body(lease: Any) -> None:
            assert b.do(lambda locks: locks.force_release("x", token=lease.token))
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError as error:
                cancelled.append(str(error))
                raise

        async def task_is_clean(locks: Any) -> int:
            task = asyncio.current_task()
            assert task is not None
            await asyncio.sleep(0.001)
            return task.cancelling()

        with pytest.raises(LeaseLost):
            a.do(lambda locks: inside(locks.lock("x", ttl=world.ttl_kept), body))
        assert cancelled == ["lost the lock 'x'"]
        assert a.do(task_is_clean) == 0

    def test_a_cancellation_from_outside_stays_one_although_the_lock_is_lost_too(self, world: World) -> None:
        if not world.asynchronous:
            return
        a, b = world.actors("a", "b")

        async def body(lease: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            lease.on_lost(lambda _: task.cancel())
            assert b.do(lambda locks: locks.force_release("x", token=lease.token))
            await asyncio.sleep(600)

        with pytest.raises(Cancelled):
            a.do(lambda locks: inside(locks.lock("x", ttl=world.ttl_kept), body))

    def test_a_renewal_that_fails_is_tried_again_and_the_holder_is_warned(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        told: list[str] = []
        a.do(lambda locks: locks.subscribe(lambda event: told.append(event.kind), [events.IN_DANGER, events.RENEWED]))
        ttl = world.ttl_kept
        lease = a.do(lambda locks: locks.lock("x", ttl=ttl).acquire())
        hand.fail("renew", times=2)
        world.until(lambda: events.RENEWED in told)
        assert told == [events.IN_DANGER, events.RENEWED]
        assert lease.held
        assert not lease.in_danger
        a.do(lambda _: lease.release())

    def test_a_store_that_never_answers_a_renewal_ends_the_lease_in_time(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_short).acquire())
        hand.fail("renew", times=10**6, reply_only=True)  # they do arrive: we cannot know
        assert a.do(lambda _: lease.lost.wait(world.ttl_short + world.slack + 5)) is True
        assert not lease.held

    def test_renewal_ends_with_release(self, world: World) -> None:
        """Elsewhere: renewal outlived unlock, and took the lock again."""
        a = world.actor("a")
        hand = tamper(a.locks)
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_kept).acquire())
        world.until(lambda: "renew" in hand.calls)
        a.do(lambda _: lease.release())
        hand.calls.clear()
        other = a.do(lambda locks: locks.lock("y", ttl=world.ttl_kept).acquire())
        world.until(lambda: hand.calls.count("renew") >= 2)
        assert world.names() == ["y"]
        a.do(lambda _: other.release())

    def test_one_lost_lease_does_not_take_the_others_along(self, world: World) -> None:
        a = world.actor("a")
        leases = [a.do(lambda locks, n=n: locks.lock(f"x{n}", ttl=world.ttl_kept).acquire()) for n in range(3)]
        world.looker.do(lambda locks: locks.force_release("x1", token=leases[1].token))
        assert a.do(lambda _: leases[1].lost.wait(world.ttl_kept + world.slack + 5)) is True
        world.until(lambda: all(world.inspect(f"x{n}").holders[0].age > 1.2 * world.ttl_kept for n in (0, 2)))
        assert [lease.held for lease in leases] == [True, False, True]
