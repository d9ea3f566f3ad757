"""Many readers or one writer."""

from __future__ import annotations

import pytest

from ...errors import Misuse
from .world import World


class Readers:
    def test_readers_share_and_a_writer_is_alone(self, world: World) -> None:
        a, b, c = world.actors("a", "b", "c")
        first = a.do(lambda locks: locks.rwlock("x").read().acquire(timeout=5))
        second = b.do(lambda locks: locks.rwlock("x").read().acquire(timeout=5))
        assert first.token != second.token
        assert c.do(lambda locks: locks.rwlock("x").write().try_acquire()) is None
        a.do(lambda _: first.release())
        assert c.do(lambda locks: locks.rwlock("x").write().try_acquire()) is None
        b.do(lambda _: second.release())
        writer = c.do(lambda locks: locks.rwlock("x").write().acquire(timeout=5))
        assert writer.token > max(first.token, second.token)
        assert a.do(lambda locks: locks.rwlock("x").read().try_acquire()) is None
        assert b.do(lambda locks: locks.rwlock("x").write().try_acquire()) is None
        c.do(lambda _: writer.release())

    def test_a_writer_is_not_starved_by_readers_that_come_after_it(self, world: World) -> None:
        if not world.traits.fair:
            return  # it says so
        a, writer, late = world.actors("a", "writer", "late")
        reading = a.do(lambda locks: locks.rwlock("x").read().acquire())
        writes = writer.start(lambda locks: locks.rwlock("x").write().acquire(timeout=30))
        world.until_waiting("x", "writer")
        reads = late.start(lambda locks: locks.rwlock("x").read().acquire(timeout=30))
        world.until_waiting("x", "writer", "late")
        assert late.beside("later").do(lambda locks: locks.rwlock("x").read().try_acquire()) is None
        a.do(lambda _: reading.release())
        lease = writes.result()
        assert not reads.done
        writer.do(lambda _: lease.release())
        late.do(lambda _: reads.result().release())

    def test_all_readers_in_line_come_in_together(self, world: World) -> None:
        a, *crew = world.actors("a", "b", "c", "d")
        writing = a.do(lambda locks: locks.rwlock("x").write().acquire())
        pending = []
        for number, one in enumerate(crew):
            pending.append(one.start(lambda locks: locks.rwlock("x", ttl=300).read().acquire(timeout=60)))
            world.until(lambda n=number: len(world.waiters("x")) == n + 1)
        a.do(lambda _: writing.release())
        for each in pending:
            each.result(5 + world.slack)
        assert sorted(world.holders("x")) == ["b", "c", "d"]

    def test_a_downgrade_keeps_the_token_and_lets_readers_in_but_no_writer(self, world: World) -> None:
        a, reader, writer = world.actors("a", "reader", "writer")
        lease = a.do(lambda locks: locks.rwlock("x").write().acquire())
        token = lease.token
        reads = reader.start(lambda locks: locks.rwlock("x", ttl=300).read().acquire(timeout=60))
        world.until_waiting("x", "reader")
        writes = writer.start(lambda locks: locks.rwlock("x").write().acquire(timeout=60))
        world.until(lambda: len(world.waiters("x")) == 2)
        a.do(lambda _: lease.downgrade())
        second = reads.result(5 + world.slack)
        assert lease.token == token
        assert lease.held
        assert sorted(world.holders("x")) == ["a", "reader"]
        assert world.waiters("x") == ["writer"]
        with pytest.raises(Misuse, match="only a writer can downgrade"):
            a.do(lambda _: lease.downgrade())
        a.do(lambda _: lease.release())
        reader.do(lambda _: second.release())
        writer.do(lambda _: writes.result().release())
        world.until_nothing_is_left()

    def test_a_downgraded_lease_is_renewed_as_a_reader(self, world: World) -> None:
        a, reader = world.actors("a", "reader")
        lease = a.do(lambda locks: locks.rwlock("x", ttl=world.ttl_short).write().acquire())
        a.do(lambda _: lease.downgrade())
        world.until(lambda: world.inspect("x").holders[0].age > 1.5 * world.ttl_short)
        assert lease.held
        second = reader.do(lambda locks: locks.rwlock("x").read().try_acquire())
        assert second is not None
        assert [one.units for one in world.inspect("x").holders] == [1, 1]

    def test_an_upgrade_is_refused_since_it_would_wait_for_itself(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.rwlock("x").read().acquire())
        for timeout in (None, 0, 5):
            with pytest.raises(Misuse, match="would wait for itself"):
                a.do(lambda locks, t=timeout: locks.rwlock("x").write().acquire(timeout=t))
        a.do(lambda _: lease.release())
        writing = a.do(lambda locks: locks.rwlock("x").write().acquire(timeout=5))
        a.do(lambda _: writing.downgrade())
        with pytest.raises(Misuse, match="would wait for itself"):
            a.do(lambda locks: locks.rwlock("x").write().acquire(timeout=5))
        a.do(lambda _: writing.release())
        world.until_nothing_is_left()
