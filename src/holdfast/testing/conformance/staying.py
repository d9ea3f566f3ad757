"""`keep=`: a grant stays with its process and is lent from hand to hand, and who waits elsewhere gets it all the same."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import pytest

from ... import events
from ...errors import LeaseLost, NotAcquired, Unsupported
from ...lending import LOOK, wanted_of
from ...staying import Waiter
from .abandonment import SIGNALLED, recorded
from .processes import run
from .tampering import tamper
from .world import PATIENCE, Actor, Cancelled, World, inside, settled

LONG = 60.0  # nobody waits so long: who gets in behind it was heard of

_KEEPS = """
import sys, holdfast
lock = holdfast.connect(sys.argv[1]).lock("x", ttl=float(sys.argv[2]), keep=60)
with lock as lease:
    print(lease.token, flush=True)
print("idle", flush=True)
sys.stdin.read()
"""

_FORKS = """
import os, sys, holdfast
locks = holdfast.connect(sys.argv[1])
lock = locks.lock("x", ttl=60, keep=60)
with lock:
    pass
lent = lock.acquire()
pid = os.fork()
if pid == 0:
    code = 1
    try:
        assert not lent.held and lent.lost and lent.release() is False
        assert locks.traits.scope == "process" or lock.try_acquire() is None, "the child lends what is its parent's"
        with locks.lock("y", keep=0.01, timeout=5):
            pass
        locks.close()
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
lent.check()
assert lent.release() is True
with lock:
    pass
print("kept")
"""


def must_keep(world: World, some: Callable[[Any], object]) -> World:
    """A world whose store can; of one that cannot, that it says so."""
    if wanted_of(world.looker.locks._engine.store) is None:
        with pytest.raises(Unsupported, match="keep="):
            world.looker.do(some)
        pytest.skip("this store says that it cannot")
    return world


@contextmanager
def crowd(stage: World, first: Actor, lock_of: Callable[[Any], Any], seconds: float) -> Iterator[None]:
    """Four in one process who come again and again."""
    over = False

    async def again_and_again(locks: Any) -> None:
        while not over:
            await settled(inside(lock_of(locks), lambda _: stage.pause(seconds)))

    busy = [one.start(again_and_again) for one in (first, *(first.beside(f"a{n}") for n in range(3)))]
    try:
        yield
    finally:
        over = True
    for one in busy:
        one.result()


class Staying:
    @pytest.fixture
    def stage(self, world: World) -> World:
        return must_keep(world, lambda locks: locks.lock("x", keep=1))

    def test_what_is_kept_is_taken_again_without_a_word_to_the_store(self, stage: World) -> None:
        a = stage.actor("a")
        hand = tamper(a.locks)
        tokens = [a.do(lambda locks: inside(locks.lock("x", keep=LONG), _token)) for _ in range(3)]
        assert len(set(tokens)) == 1
        assert hand.calls.count("claim") == 1
        assert hand.calls.count("release") == 0
        (holding,) = stage.inspect("x").holders
        assert holding.note == f"kept for {LONG:g} s after use"
        assert holding.token == tokens[0]

    def test_it_is_given_up_when_nobody_has_used_it_for_so_long(self, stage: World) -> None:
        a = stage.actor("a")
        first = a.do(lambda locks: inside(locks.lock("x", keep=0.05), _token))
        stage.until_nothing_is_left(within=LOOK + 1 + stage.slack)
        stage.until(lambda: not a.locks._engine.lending.names())
        assert a.do(lambda locks: inside(locks.lock("x", keep=0.05), _token)) > first

    def test_who_waits_elsewhere_gets_what_nobody_uses(self, stage: World) -> None:
        a, b = stage.actors("a", "b")
        first = a.do(lambda locks: inside(locks.lock("x", ttl=LONG, keep=LONG), _token))
        assert b.do(lambda locks: inside(locks.lock("x", timeout=5 + stage.slack), _token)) > first
        again = a.do(lambda locks: inside(locks.lock("x", ttl=LONG, keep=LONG, timeout=5 + stage.slack), _token))
        assert again > first

    def test_who_waits_elsewhere_gets_it_when_the_section_under_way_ends(self, stage: World) -> None:
        a, b = stage.actors("a", "b")
        lease = a.do(lambda locks: locks.lock("x", ttl=LONG, keep=LONG).acquire())
        waiting = b.start(lambda locks: locks.lock("x", timeout=PATIENCE).acquire())
        stage.until_waiting("x", "b")
        stay = lease._stay
        stage.until(lambda: stay.kept.wanted, within=5 + stage.slack)
        assert not waiting.done
        lease.check()
        assert a.do(lambda _: lease.release()) is True
        assert waiting.result(5 + stage.slack).token > lease.token

    def test_who_waits_elsewhere_is_not_kept_out_by_a_crowd_here(self, stage: World) -> None:
        a, b = stage.actors("a", "b")
        with crowd(stage, a, lambda locks: locks.lock("x", keep=0.05, timeout=PATIENCE), 0.001):
            for _ in range(3):
                b.do(lambda locks: inside(locks.lock("x", timeout=5 + stage.slack), _token))

    def test_it_is_lent_to_one_at_a_time(self, stage: World) -> None:
        total, inside_now = 0, 0
        tokens: list[int] = []

        async def count(locks: Any) -> None:
            nonlocal total, inside_now
            for _ in range(16):
                lease = await settled(locks.lock("x", keep=0.05).acquire(timeout=60))
                inside_now += 1
                assert inside_now == 1
                seen = total
                tokens.append(lease.token)
                await settled(stage.pause(0.0005))
                total = seen + 1
                inside_now -= 1
                await settled(lease.release())

        apart = stage.actors("a", "b")
        together = [actor.beside(f"{actor.name}'s friend") for actor in apart]  # mostly, nobody is in line here
        for pending in [actor.start(count) for actor in (*apart, *together)]:
            pending.result(60)
        assert total == 16 * 4
        assert tokens == sorted(tokens), "sections share a token, and tokens rise"
        stage.until_nothing_is_left()

    def test_here_too_it_is_first_come_first_served(self, stage: World) -> None:
        a = stage.actor("a")
        crew = [a.beside(f"a{n}") for n in range(4)]
        lock = a.do(lambda locks: locks.lock("x", keep=LONG))
        lease = a.do(lambda _: lock.acquire())
        came: list[int] = []
        line = lease._stay.kept.line
        waiting = []
        for number, one in enumerate(crew):
            waiting.append(one.start(lambda _, number=number: inside(lock, lambda _: came.append(number))))
            stage.until(lambda number=number: len(line) == number + 1)
        a.do(lambda _: lease.release())
        for pending in waiting:
            pending.result()
        assert came == [0, 1, 2, 3]

    def test_who_does_not_wait_is_told_at_once_and_leaves_nothing(self, stage: World) -> None:
        a = stage.actor("a")
        b = a.beside("b")
        lease = a.do(lambda locks: locks.lock("x", keep=LONG).acquire())
        assert b.do(lambda locks: locks.lock("x", keep=LONG).try_acquire()) is None
        with pytest.raises(NotAcquired, match="held by"):
            b.do(lambda locks: locks.lock("x", keep=LONG).acquire(timeout=0.02))
        assert not lease._stay.kept.line
        a.do(lambda _: lease.release())
        got = b.do(lambda locks: locks.lock("x", keep=LONG).try_acquire())
        assert got.token == lease.token
        b.do(lambda _: got.release())

    def test_what_differs_shares_nothing(self, stage: World) -> None:
        a = stage.actor("a")
        b = a.beside("b")
        first = a.do(lambda locks: inside(locks.lock("x", ttl=LONG, keep=LONG), _token))
        second = b.do(lambda locks: inside(locks.lock("x", ttl=30, keep=LONG, timeout=5 + stage.slack), _token))
        assert second > first

    def test_a_lock_that_lets_its_holder_in_again_does_so_when_it_is_kept(self, stage: World) -> None:
        a = stage.actor("a")
        b = a.beside("b")

        async def twice(locks: Any) -> list[int]:
            lock = locks.lock("x", keep=LONG, reentrant=True)
            outer = await settled(lock.acquire(timeout=5))
            inner = await settled(lock.acquire(timeout=5))
            tokens = [outer.token, inner.token]
            await settled(inner.release())
            outer.check()
            assert b.do(lambda locks: locks.lock("x", keep=LONG, reentrant=True).try_acquire()) is None
            await settled(outer.release())
            return tokens

        if stage.asynchronous:
            return  # b's answer would have to be waited for in a's loop
        (one, other), (third, _) = a.do(twice), a.do(twice)
        assert one == other == third

    def test_a_loss_reaches_who_is_inside_and_nobody_is_lent_it_any_more(self, stage: World) -> None:
        a, b = stage.actors("a", "b")
        told: list[Any] = []
        lost: list[Any] = []
        a.do(lambda locks: locks.subscribe(told.append, [events.LOST]))
        a.do(lambda locks: inside(locks.lock("x", ttl=stage.ttl_short, keep=LONG), _token))
        lease = a.do(lambda locks: locks.lock("x", ttl=stage.ttl_short, keep=LONG).acquire())
        a.do(lambda _: lease.on_lost(lost.append))
        b.do(lambda locks: locks.force_release("x", token=lease.token))
        stage.until(lambda: lost and told, within=stage.ttl_short + stage.slack + 5)
        assert not lease.held
        assert a.do(lambda _: lease.lost.wait(5)) is True
        assert lost == [lease]
        with pytest.raises(LeaseLost, match="lost the lock 'x'"):
            lease.check()
        assert a.do(lambda _: lease.release()) is False
        again = a.do(lambda locks: inside(locks.lock("x", ttl=stage.ttl_short, keep=LONG, timeout=5), _token))
        assert again > lease.token

    def test_who_was_put_out_lets_nobody_in_any_more(self, stage: World) -> None:
        """Here it broke: those in line here were lent what others had been given since, until a renewal found out."""
        a, b = stage.actors("a", "b")
        friend = a.beside("a's friend")
        lease = a.do(lambda locks: locks.lock("x", ttl=LONG, keep=LONG).acquire())
        kept = lease._stay.kept
        waiting = friend.start(lambda locks: inside(locks.lock("x", ttl=LONG, keep=LONG, timeout=PATIENCE), _token))
        stage.until(lambda: kept.line)
        b.do(lambda locks: locks.force_release("x", token=lease.token))
        assert a.do(lambda _: lease.lost.wait(5 + stage.slack)) is True
        assert a.do(lambda _: lease.release()) is False
        assert waiting.result() > lease.token

    def test_a_body_is_cancelled_or_told_at_its_end_when_what_it_was_lent_is_lost(self, stage: World) -> None:
        a = stage.actor("a")

        async def body(lease: Any) -> None:
            stage.looker.do(lambda locks: locks.force_release("x", token=lease.token))
            if stage.asynchronous:
                await settled(stage.pause(PATIENCE))
            else:
                lease.lost.wait(PATIENCE)

        a.do(lambda locks: inside(locks.lock("x", ttl=stage.ttl_short, keep=LONG), _token))
        with pytest.raises(LeaseLost):
            a.do(lambda locks: inside(locks.lock("x", ttl=stage.ttl_short, keep=LONG), body))

    def test_what_ran_out_is_not_lent(self, stage: World) -> None:
        a = stage.actor("a")
        hand = tamper(a.locks)
        lock = a.do(lambda locks: locks.lock("x", ttl=stage.ttl_short, keep=LONG, timeout=5 + stage.slack))
        lease = a.do(lambda _: lock.acquire())
        hand.stalled = True
        a.do(lambda _: lease.release())
        stage.until(lambda: not stage.names(), within=stage.ttl_short + stage.slack + 5)
        assert a.do(lambda _: inside(lock, _token)) > lease.token
        hand.stalled = False

    def test_closing_gives_back_what_is_kept_and_what_is_lent(self, stage: World) -> None:
        a = stage.actor("a")
        a.do(lambda locks: inside(locks.lock("idle", ttl=LONG, keep=LONG), _token))
        lease = a.do(lambda locks: locks.lock("lent", ttl=LONG, keep=LONG).acquire())
        b = a.beside("b")
        waiting = b.start(lambda locks: locks.lock("lent", ttl=LONG, keep=LONG).acquire())
        stage.until(lambda: lease._stay.kept.line)
        before = time.monotonic()
        a.do(lambda locks: locks.close())
        assert time.monotonic() - before < 1 + stage.slack
        stage.until_nothing_is_left()
        assert not lease.held
        with pytest.raises(Exception, match="closed"):
            waiting.result()
        with pytest.raises(Exception, match="closed"):
            a.do(lambda locks: locks.lock("idle", keep=LONG).acquire())

    def test_who_is_cancelled_in_line_is_passed_over(self, stage: World) -> None:
        if not stage.asynchronous:
            return
        a = stage.actor("a")
        b, c = a.beside("b"), a.beside("c")
        lease = a.do(lambda locks: locks.lock("x", keep=LONG).acquire())
        kept = lease._stay.kept
        first = b.start(lambda locks: locks.lock("x", keep=LONG).acquire())
        stage.until(lambda: len(kept.line) == 1)
        second = c.start(lambda locks: inside(locks.lock("x", keep=LONG), _token))
        stage.until(lambda: len(kept.line) == 2)
        b.cancel()  # type: ignore[attr-defined]
        with pytest.raises(Cancelled):
            first.result()
        a.do(lambda _: lease.release())
        assert second.result() == lease.token

    def test_a_section_that_failed_ends_the_grant(self, stage: World) -> None:
        """What it had sent may still be on its way: it must not arrive in a section with the same token."""
        a = stage.actor("a")

        def fail(lease: Any) -> None:
            raise KeyError(lease.token)

        with pytest.raises(KeyError) as failed:
            a.do(lambda locks: inside(locks.lock("x", keep=LONG), fail))
        assert a.do(lambda locks: inside(locks.lock("x", keep=LONG, timeout=5), _token)) > failed.value.args[0]

    def test_a_lease_that_was_lent_and_dropped_is_let_go_and_the_grant_with_it(self, stage: World) -> None:
        a = stage.actor("a")
        token = a.do(lambda locks: inside(locks.lock("x", ttl=LONG, keep=LONG), _token))

        async def drop(locks: Any) -> None:
            await settled(locks.lock("x", ttl=LONG, keep=LONG).acquire())

        with recorded() as told:
            a.do(drop)
            gc.collect()
            again = a.do(lambda locks: inside(locks.lock("x", ttl=LONG, keep=LONG, timeout=5), _token))
        assert any(issubclass(one.category, ResourceWarning) for one in told)
        assert again > token

    def test_who_waits_elsewhere_gets_what_was_lent_and_dropped_at_once(self, stage: World) -> None:
        """Here it broke: nobody told the keeper, who looks every ten seconds while somebody is inside."""
        a, b = stage.actors("a", "b")
        leases: list[Any] = []

        async def take(locks: Any) -> None:
            leases.append(await settled(locks.lock("x", ttl=LONG, keep=LONG).acquire()))

        a.do(take)
        kept, token = leases[0]._stay.kept, leases[0].token
        waiting = b.start(lambda locks: locks.lock("x", timeout=PATIENCE).acquire())
        stage.until(lambda: kept.wanted, within=5 + stage.slack)
        with recorded():
            leases.clear()
            gc.collect()
            assert waiting.result(2 + stage.slack).token > token

    def test_who_waits_elsewhere_gets_what_nobody_here_took_in_its_turn(self, stage: World) -> None:
        """The same: whoever was rung here has given up before it was lent the name, and nobody else is in line."""
        a, b = stage.actors("a", "b")
        lease = a.do(lambda locks: locks.lock("x", ttl=LONG, keep=LONG).acquire())
        waiting = b.start(lambda locks: locks.lock("x", timeout=PATIENCE).acquire())
        kept, mutex = lease._stay.kept, a.locks._engine.mutex
        stage.until(lambda: kept.wanted, within=5 + stage.slack)
        here = Waiter(a.do(lambda locks: locks._engine.driver.bell()))
        with mutex:
            kept.line.append(ref(here))
        assert a.do(lambda _: lease.release()) is True
        assert not waiting.done
        with mutex:
            kept.leave(here)
        assert waiting.result(2 + stage.slack).token > lease.token

    def test_a_killed_keeper_is_outlived_by_its_ttl_and_no_longer(self, stage: World) -> None:
        if stage.traits.scope == "process" or stage.asynchronous:
            return
        command = [sys.executable, "-c", _KEEPS, stage.url, str(stage.ttl_short)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
            assert keeper.stdout is not None
            token = int(keeper.stdout.readline())
            assert keeper.stdout.readline() == "idle\n"
            assert [one.token for one in stage.inspect("x").holders] == [token]
            keeper.kill()
            patience = stage.ttl_short + 5 + stage.slack
            assert stage.looker.do(lambda locks: inside(locks.lock("x", timeout=patience), _token)) > token

    def test_a_keeper_that_ends_gives_back_what_it_kept(self, stage: World) -> None:
        if stage.traits.scope == "process" or stage.asynchronous:
            return
        command = [sys.executable, "-c", _KEEPS, stage.url, str(LONG)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
            keeper.communicate("", timeout=PATIENCE)
        stage.until_nothing_is_left()

    def test_a_forked_child_is_lent_nothing(self, stage: World) -> None:
        if not stage.asynchronous:
            assert run(_FORKS, stage.url) == "kept"

    def test_a_signal_handler_that_raises_keeps_nothing(self, stage: World) -> None:
        if not stage.asynchronous:
            assert run(SIGNALLED.replace("ttl=60", "ttl=60, keep=0.02"), stage.url, "100") == "0"


def _token(lease: Any) -> int:
    token: int = lease.token
    return token
