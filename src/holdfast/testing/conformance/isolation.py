"""One lease's trouble is its own: not its neighbours', and never the renewer's.

A verdict is one of three, for each lease by itself: kept, lost, unknown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from ... import events
from ..network import Network
from .tampering import tamper
from .world import LOOPS, World, on_every_loop

ENDINGS = (SystemExit, KeyboardInterrupt, asyncio.CancelledError)


class Isolation:
    @on_every_loop
    def test_what_is_unknown_of_one_lease_is_nothing_to_the_others(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        told: list[tuple[str, str]] = []
        kinds = [events.IN_DANGER, events.RENEWED, events.LOST]
        a.do(lambda locks: locks.subscribe(lambda event: told.append((event.kind, event.name)), kinds))
        ttl = world.ttl_kept
        leases = [a.do(lambda locks, n=n: locks.lock(f"x{n}", ttl=ttl).acquire()) for n in range(4)]
        hand.doubtful = {"x1"}
        assert a.do(lambda _: leases[1].lost.wait(ttl + world.slack + 5)) is True
        world.until(lambda: (events.LOST, "x1") in told)
        before = told.index((events.LOST, "x1"))
        # The others were answered whenever that one was not, and not only when it was gone.
        assert all((events.RENEWED, f"x{n}") in told[:before] for n in (0, 2, 3)), told
        world.until(lambda: all((events.RENEWED, f"x{n}") in told[before:] for n in (0, 2, 3)))
        assert [lease.held for lease in leases] == [True, False, True, True]
        assert (events.IN_DANGER, "x1") in told
        hand.doubtful = set()
        for n in (0, 2, 3):
            assert a.do(lambda _, n=n: leases[n].release()) is True

    @on_every_loop
    def test_one_that_was_in_doubt_for_a_moment_is_kept(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        told: list[str] = []
        kinds = [events.IN_DANGER, events.RENEWED, events.LOST]
        ttl = 3 * world.ttl_short
        a.do(lambda locks: locks.subscribe(lambda e: told.append(e.kind) if e.name == "x0" else None, kinds))
        leases = [a.do(lambda locks, n=n: locks.lock(f"x{n}", ttl=ttl).acquire()) for n in range(2)]
        hand.doubtful = {"x0"}
        world.until(lambda: events.IN_DANGER in told)
        hand.doubtful = set()
        world.until(lambda: events.RENEWED in told)
        assert [lease.held for lease in leases] == [True, True]
        assert not leases[0].in_danger
        assert told[:2] == [events.IN_DANGER, events.RENEWED]
        for each in leases:
            assert a.do(lambda _, each=each: each.release()) is True

    @on_every_loop
    def test_a_short_lease_that_is_lost_to_a_stall_does_not_take_a_long_one_along(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        long = a.do(lambda locks: locks.lock("long", ttl=10 * world.ttl_short).acquire())
        short = a.do(lambda locks: locks.lock("short", ttl=world.ttl_short).acquire())
        before = time.monotonic()
        hand.stalled = True
        assert a.do(lambda _: short.lost.wait(world.ttl_short + world.slack + 5)) is True
        assert time.monotonic() - before <= world.ttl_short + world.slack  # in time, whoever else is being asked about
        world.until(lambda: time.monotonic() - before > 2 * world.ttl_short)
        hand.stalled = False
        world.until(lambda: long.remaining() > 9 * world.ttl_short, within=10 * world.ttl_short + world.slack)
        assert long.held
        assert a.do(lambda _: long.release()) is True

    @on_every_loop
    def test_a_pause_of_the_server_costs_only_leases_that_are_shorter(self, world: World, network: Network) -> None:
        if not network:
            return
        a = world.actor("a", url=network.url)
        longs = [a.do(lambda locks, n=n: locks.lock(f"long{n}", ttl=10 * world.ttl_short).acquire()) for n in range(3)]
        short = a.do(lambda locks: locks.lock("short", ttl=world.ttl_short).acquire())
        network.silence()
        assert a.do(lambda _: short.lost.wait(world.ttl_short + world.slack + 5)) is True
        network.heal()
        world.until(
            lambda: all(one.remaining() > 8 * world.ttl_short for one in longs),
            within=10 * world.ttl_short + world.slack,
        )
        assert all(long.held for long in longs)
        for long in longs:
            assert a.do(lambda _, long=long: long.release()) is True

    @on_every_loop
    @pytest.mark.parametrize("ending", ENDINGS, ids=[ending.__name__ for ending in ENDINGS])
    def test_no_callback_and_no_subscriber_ends_renewal(self, world: World, ending: type[BaseException]) -> None:
        a = world.actor("a")

        def ends(_: object) -> None:
            raise ending("a callback of the test")

        told: list[str] = []
        renewed: list[str] = []
        ttl = world.ttl_kept
        a.do(lambda locks: locks.subscribe(lambda event: renewed.append(event.name), [events.RENEWED]))
        a.do(lambda locks: locks.subscribe(ends, [events.RENEWED, events.LOST]))
        lost, kept = (a.do(lambda locks, n=n: locks.lock(n, ttl=ttl).acquire()) for n in ("lost", "kept"))
        lost.on_lost(ends)
        lost.on_lost(lambda lease: told.append(lease.name))
        world.looker.do(lambda locks: locks.force_release("lost", token=lost.token))
        world.until(lambda: told == ["lost"], within=ttl + world.slack + 5)
        before = renewed.count("kept")
        world.until(lambda: renewed.count("kept") >= before + 2)  # after the loss, and after a subscriber that ends
        assert kept.held
        assert a.do(lambda _: kept.release()) is True

    @on_every_loop
    def test_a_log_that_fails_hides_no_loss_and_ends_no_renewal(self, world: World) -> None:
        a = world.actor("a")
        told: list[str] = []
        renewed: list[str] = []
        ttl = world.ttl_kept

        def fails(record: logging.LogRecord) -> bool:
            raise ZeroDivisionError("a filter of the test")  # logging lets what a filter raises through

        logger = logging.getLogger("holdfast")
        logger.addFilter(fails)
        try:
            a.do(lambda locks: locks.subscribe(lambda event: renewed.append(event.name), [events.RENEWED]))
            lost, kept = (a.do(lambda locks, n=n: locks.lock(n, ttl=ttl).acquire()) for n in ("lost", "kept"))
            lost.on_lost(lambda lease: told.append(lease.name))
            world.looker.do(lambda locks: locks.force_release("lost", token=lost.token))
            world.until(lambda: told == ["lost"], within=ttl + world.slack + 5)
            before = renewed.count("kept")
            world.until(lambda: renewed.count("kept") >= before + 2)
            assert kept.held
            assert a.do(lambda _: kept.release()) is True
        finally:
            logger.removeFilter(fails)

    @pytest.mark.parametrize("world", LOOPS, indirect=True)
    def test_cancelling_every_task_does_not_end_renewal(self, world: World) -> None:
        a = world.actor("a")
        ttl = world.ttl_kept
        renewed: list[str] = []
        a.do(lambda locks: locks.subscribe(lambda event: renewed.append(event.name), [events.RENEWED]))
        lease = a.do(lambda locks: locks.lock("x", ttl=ttl).acquire())

        async def cancel_the_rest(_: Any) -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.sleep(0)

        for _ in range(2):
            a.do(cancel_the_rest)
            renewed.clear()
            world.until(lambda: renewed.count("x") >= 2)
            assert lease.held
        other = a.do(lambda locks: locks.lock("y", ttl=ttl).acquire())
        world.until(lambda: "y" in renewed)
        assert other.held
        assert a.do(lambda _: lease.release()) is True
