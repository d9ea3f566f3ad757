"""What can be seen: who is inside, who waits, for how long, and who waits for whom."""

from __future__ import annotations

import pytest

from ...claim import Snapshot
from ...errors import NotAcquired
from .world import World


class Looking:
    tells_ttl = True  # False: the store cannot say when a holder last renewed, and so tells no ttl

    def test_a_name_that_is_not_in_use_is_empty(self, world: World) -> None:
        snapshot = world.inspect("x")
        assert snapshot == Snapshot("x")
        assert snapshot.used == 0

    def test_those_inside_and_those_in_line_are_seen_with_plausible_times(self, world: World) -> None:
        a, b, c = world.actor("a", label="import"), world.actor("b"), world.actor("c")
        lease = a.do(lambda locks: locks.semaphore("pool", 5, ttl=20).acquire(units=4))
        big = b.start(lambda locks: locks.semaphore("pool", 5, ttl=40).acquire(units=3, timeout=60))
        world.until_waiting("pool", "b")
        small = c.start(lambda locks: locks.semaphore("pool", 5, fair=True).acquire(units=2, timeout=60))
        world.until(lambda: len(world.waiters("pool")) == 2)
        snapshot = world.inspect("pool")
        assert (snapshot.name, snapshot.capacity, snapshot.used) == ("pool", 5, 4)
        (holding,) = snapshot.holders
        assert holding.owner == lease.owner
        assert holding.owner.split("/")[2:] == ["a", "import"]
        assert (holding.token, holding.units, holding.note) == (lease.token, 4, "")
        assert 0 <= holding.age < 10
        assert 10 < holding.left <= 20 + 1  # a store may round up a little
        assert abs(holding.ttl - (20 if self.tells_ttl else 0)) < 1
        first, second = snapshot.waiters
        assert {(first.units, first.fair), (second.units, second.fair)} == {(3, True), (2, True)}
        assert all(0 <= one.age < 10 and 10 < one.left <= 40 + 1 for one in snapshot.waiters)
        a.do(lambda _: lease.release())
        for actor, pending in ((b, big), (c, small)):
            actor.do(lambda _, pending=pending: pending.result().release())

    def test_names_are_those_in_use_that_begin_so(self, world: World) -> None:
        a = world.actor("a")
        for name in ("job:1", "job:2", "jo", "JOB:3", "job%", "job_x", "*", "job*"):
            a.do(lambda locks, name=name: locks.lock(name).acquire(timeout=5))
        assert world.names() == sorted(["job:1", "job:2", "jo", "JOB:3", "job%", "job_x", "*", "job*"])
        assert world.names("job:") == ["job:1", "job:2"]
        assert world.names("job%") == ["job%"]
        assert world.names("job_") == ["job_x"]
        assert world.names("*") == ["*"]
        assert world.names("job*") == ["job*"]
        assert world.names("nothing") == []

    def test_who_was_not_let_in_is_told_who_was_in_the_way(self, world: World) -> None:
        a, b = world.actors("a", "b")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        for timeout, when in ((0, "at once"), (0.05, "within 0.05 s")):
            with pytest.raises(NotAcquired) as refused:
                b.do(lambda locks, timeout=timeout: locks.lock("x").acquire(timeout=timeout))
            story = str(refused.value)
            assert story.startswith(f"could not get 'x' {when}: held by {lease.owner} for ")
            assert f"token {lease.token}" in story
            assert refused.value.name == "x"
            assert refused.value.snapshot is not None
            assert refused.value.snapshot.holders[0].token == lease.token

    def test_a_deadlock_is_found_and_named(self, world: World) -> None:
        a, b, c = world.actors("a", "b", "c")
        mine = a.do(lambda locks: locks.lock("left").acquire())
        theirs = b.do(lambda locks: locks.lock("right").acquire())
        assert world.looker.do(lambda locks: locks.wait_graph()).deadlocks() == ()
        wait_a = a.start(lambda locks: locks.lock("right").acquire(timeout=30))
        world.until_waiting("right", "a")
        assert world.looker.do(lambda locks: locks.wait_graph()).deadlocks() == ()
        wait_b = b.start(lambda locks: locks.lock("left").acquire(timeout=30))
        world.until_waiting("left", "b")
        wait_c = c.start(lambda locks: locks.lock("left").acquire(timeout=30))
        world.until(lambda: len(world.waiters("left")) == 2)
        graph = world.looker.do(lambda locks: locks.wait_graph())
        assert {(edge.waiter.split("/")[2], edge.holder.split("/")[2], edge.name) for edge in graph.edges} == {
            ("a", "b", "right"),
            ("b", "a", "left"),
            ("c", "a", "left"),
        }
        (cycle,) = graph.deadlocks()
        assert {edge.waiter.split("/")[2] for edge in cycle} == {"a", "b"}
        b.beside("another of b").do(lambda _: theirs.release())  # one lets go, and all go on
        right = wait_a.result()
        a.do(lambda _: right.release())
        a.do(lambda _: mine.release())
        world.until(lambda: wait_b.done or wait_c.done)
        pending = [(b, wait_b), (c, wait_c)]
        if not world.traits.fair:  # whoever came in is first to leave
            pending.sort(key=lambda one: not one[1].done)
        for actor, wait in pending:
            lease = wait.result()
            actor.do(lambda _, lease=lease: lease.release())
