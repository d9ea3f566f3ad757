"""`rwlock(…, keep=)`: the readers of a process share one grant, and who writes gets in all the same."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import LeaseLost, Misuse, NotAcquired
from .staying import LONG, crowd, must_keep
from .tampering import tamper
from .world import PATIENCE, World, inside, settled


def reader(locks: Any, keep: float = LONG, ttl: float = LONG, **more: Any) -> Any:
    return locks.rwlock("x", ttl=ttl, keep=keep, **more).read()


class Sharing:
    @pytest.fixture
    def shared(self, world: World) -> World:
        return must_keep(world, lambda locks: locks.rwlock("x", keep=1))

    def test_readers_here_share_one_grant_that_stays(self, shared: World) -> None:
        a = shared.actor("a")
        hand = tamper(a.locks)
        crew = [a, a.beside("b"), a.beside("c")]
        leases = [one.do(lambda locks: reader(locks).acquire()) for one in crew]
        for one, lease in zip(crew, leases, strict=True):
            lease.check()
            one.do(lambda _, lease=lease: lease.release())
        again = a.do(lambda locks: reader(locks).try_acquire())
        assert {lease.token for lease in [*leases, again]} == {leases[0].token}
        assert hand.calls.count("claim") == 1
        assert hand.calls.count("release") == 0
        (holding,) = shared.inspect("x").holders
        assert holding.note == f"kept for {LONG:g} s after use"
        a.do(lambda _: again.release())

    def test_who_writes_elsewhere_gets_in_when_the_last_reader_here_has_left(self, shared: World) -> None:
        a, b = shared.actors("a", "b")
        friend = a.beside("a's friend")
        first = a.do(lambda locks: reader(locks).acquire())
        second = friend.do(lambda locks: reader(locks).acquire())
        writing = b.start(lambda locks: locks.rwlock("x", timeout=PATIENCE).write().acquire())
        shared.until_waiting("x", "b")
        kept = first._stay.kept
        shared.until(lambda: kept.wanted, within=5 + shared.slack)
        a.do(lambda _: first.release())
        second.check()
        (holding,) = shared.inspect("x").holders
        assert holding.token == second.token, "it is still read here"
        assert not writing.done
        friend.do(lambda _: second.release())
        assert writing.result(5 + shared.slack).token > second.token

    def test_who_writes_elsewhere_is_not_kept_out_by_readers_here_who_keep_coming(self, shared: World) -> None:
        a, b = shared.actors("a", "b")
        with crowd(shared, a, lambda locks: reader(locks, 0.05, timeout=PATIENCE), 0.005):
            for _ in range(3):
                b.do(lambda locks: inside(locks.rwlock("x", timeout=5 + shared.slack).write(), lambda _: None))

    def test_who_writes_here_does_not_wait_for_what_no_reader_uses(self, shared: World) -> None:
        a = shared.actor("a")
        a.do(lambda locks: inside(reader(locks), lambda _: None))
        writer = a.do(lambda locks: locks.rwlock("x", keep=LONG).write().try_acquire())
        assert writer is not None
        friend = a.beside("a's friend")
        assert friend.do(lambda locks: reader(locks).try_acquire()) is None, "nobody reads beside a writer"
        a.do(lambda _: writer.release())
        a.do(lambda locks: inside(reader(locks, timeout=5), lambda _: None))

    def test_who_reads_does_not_wait_for_others_here_one_of_whom_failed(self, shared: World) -> None:
        """Here it broke: the failure ended the grant, and who came waited until the last of its readers had left."""
        a, b = shared.actors("a", "b")
        friend, other = a.beside("a's friend"), a.beside("another")
        first = a.do(lambda locks: reader(locks).acquire())
        beside = other.do(lambda locks: reader(locks).acquire())

        def fail(lease: Any) -> None:
            raise KeyError(lease.token)

        with pytest.raises(KeyError):
            friend.do(lambda locks: inside(reader(locks), fail))
        second = friend.do(lambda locks: reader(locks, timeout=5 + shared.slack).acquire())
        assert second.token > first.token == beside.token
        other.do(lambda _: beside.release())
        assert {one.token for one in shared.inspect("x").holders} == {first.token, second.token}, (
            "it is still read here"
        )
        writing = b.start(lambda locks: locks.rwlock("x", timeout=PATIENCE).write().acquire())
        shared.until_waiting("x", "b")
        a.do(lambda _: first.release())
        second.check()
        assert [one.token for one in shared.inspect("x").holders] == [second.token], (
            "what was left goes with its last reader"
        )
        assert not writing.done
        friend.do(lambda _: second.release())
        assert writing.result(5 + shared.slack).token > second.token

    def test_who_reads_does_not_wait_for_others_here_when_a_writer_has_given_up(self, shared: World) -> None:
        a, b = shared.actors("a", "b")
        friend = a.beside("a's friend")
        first = a.do(lambda locks: reader(locks, 0.01).acquire())
        kept = first._stay.kept
        with pytest.raises(NotAcquired):
            b.do(lambda locks: locks.rwlock("x").write().acquire(timeout=1 + shared.slack))
        shared.until(lambda: kept.wanted, within=5 + shared.slack)
        shared.until(lambda: kept.is_over(first._stay, a.locks._engine.driver.now()))
        second = friend.do(lambda locks: reader(locks, 0.01, timeout=5 + shared.slack).acquire())
        first.check()
        for one, lease in ((a, first), (friend, second)):
            one.do(lambda _, lease=lease: lease.release())
        shared.until_nothing_is_left()

    def test_a_reader_that_asks_to_write_is_told_that_it_would_wait_for_itself(self, shared: World) -> None:
        a = shared.actor("a")

        async def upgrade(locks: Any) -> None:
            lease = await settled(reader(locks).acquire())
            again = await settled(reader(locks).acquire())
            assert again is lease
            with pytest.raises(Misuse, match="wait for itself"):
                await settled(locks.rwlock("x", keep=LONG).write().acquire())
            await settled(again.release())
            lease.check()
            await settled(lease.release())

        a.do(upgrade)

    def test_a_loss_reaches_all_who_read(self, shared: World) -> None:
        a, b = shared.actors("a", "b")
        friend = a.beside("a's friend")
        ttl = shared.ttl_short
        first = a.do(lambda locks: reader(locks, ttl=ttl).acquire())
        second = friend.do(lambda locks: reader(locks, ttl=ttl).acquire())
        told: list[Any] = []
        for lease in (first, second):
            lease.on_lost(told.append)
        b.do(lambda locks: locks.force_release("x", token=first.token))
        shared.until(lambda: len(told) == 2, within=ttl + shared.slack + 5)
        for lease in (first, second):
            with pytest.raises(LeaseLost, match="lost the lock 'x'"):
                lease.check()
            assert a.do(lambda _, lease=lease: lease.release()) is False
        again = a.do(lambda locks: reader(locks, ttl=ttl, timeout=5 + shared.slack).acquire())
        assert again.token > first.token
        a.do(lambda _: again.release())

    def test_a_renewal_reaches_all_who_read(self, shared: World) -> None:
        a = shared.actor("a")
        friend = a.beside("a's friend")
        ttl = shared.ttl_short
        leases = [one.do(lambda locks: reader(locks, ttl=ttl).acquire()) for one in (a, friend)]
        before = [lease._deadline for lease in leases]
        shared.until(
            lambda: all(lease._deadline > old for lease, old in zip(leases, before, strict=True)),
            within=ttl + shared.slack,
        )
        for lease in leases:
            a.do(lambda _, lease=lease: lease.release())

    def test_who_only_tries_to_read_is_let_in_beside_others(self, shared: World) -> None:
        a, b = shared.actors("a", "b")
        outside = b.do(lambda locks: locks.rwlock("x").read().acquire())
        friend = a.beside("a's friend")
        mine = a.do(lambda locks: reader(locks).try_acquire())
        ours = friend.do(lambda locks: reader(locks).try_acquire())
        assert mine.token == ours.token
        for one, lease in ((b, outside), (a, mine), (friend, ours)):
            one.do(lambda _, lease=lease: lease.release())
