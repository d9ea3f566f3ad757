"""Deadlocks, found by the rule, against a search through everything that could happen."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.claim import Holding, Snapshot, Waiting
from holdfast.rule import admit
from holdfast.waitfor import WaitGraph

from .properties import given, settings, st

OWNERS = "abcde"


@st.composite
def worlds(draw: st.DrawFn) -> list[Snapshot]:
    """A few names, a few owners, each of whom waits in one line at most."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 3)))]
    lines: dict[str, list[Waiting]] = {name: [] for name in names}
    capacities = {name: draw(st.integers(1, 3)) for name in names}
    for owner in OWNERS:
        if draw(st.booleans()):
            name = draw(st.sampled_from(names))
            units = draw(st.integers(1, capacities[name]))
            lines[name].append(Waiting(owner, units, 0.0, 9.0, draw(st.booleans())))
    found = []
    for name in names:
        inside: list[Holding] = []
        for owner in draw(st.permutations(OWNERS)):
            free = capacities[name] - sum(holding.units for holding in inside)
            if free and draw(st.booleans()):
                inside.append(Holding(owner, 1, draw(st.integers(1, free)), 0.0, 9.0))
        found.append(Snapshot(name, capacities[name], tuple(inside), tuple(lines[name])))
    return found


def left_for_ever(snapshots: list[Snapshot]) -> set[str]:
    """Play it: whoever is not in a line finishes and gives back; whoever may enter enters. Who still waits at the end?

    To finish is never to anybody's harm here, so the order in which it happens does not matter.
    """
    inside = {one.name: list(one.holders) for one in snapshots}
    lines = {one.name: list(one.waiters) for one in snapshots}
    capacity = {one.name: one.capacity for one in snapshots}
    while True:
        waiting = {one.owner for line in lines.values() for one in line}
        for name in inside:
            inside[name] = [one for one in inside[name] if one.owner in waiting]
        for name, line in lines.items():
            used = sum(one.units for one in inside[name])
            entering = next(
                (
                    one
                    for place, one in enumerate(line)
                    if admit(one.units, capacity[name], used, ahead=place > 0, fair=one.fair)
                ),
                None,
            )
            if entering is not None:
                line.remove(entering)
                break
        else:
            return waiting


@given(worlds())
@settings(max_examples=500, deadline=None)
def test_a_deadlock_is_found_exactly_when_somebody_waits_for_ever(snapshots: list[Snapshot]) -> None:
    graph = WaitGraph(snapshots)
    stuck = left_for_ever(snapshots)
    cycles = graph.deadlocks()
    assert bool(cycles) is bool(stuck)
    for cycle in cycles:
        assert {edge.waiter for edge in cycle} <= stuck
        assert all(edge in graph.edges for edge in cycle)
        assert [edge.holder for edge in cycle] == [*(edge.waiter for edge in cycle[1:]), cycle[0].waiter]


def line(length: int) -> list[Snapshot]:
    """Of one lock."""
    waiters = tuple(Waiting(f"w{number}", 1, 0.0, 9.0) for number in range(length))
    return [Snapshot("hot", 1, (Holding("h", 1, 1, 0.0, 9.0),), waiters)]


def chain(length: int) -> list[Snapshot]:
    """Each waits for the next."""
    return [
        Snapshot(f"n{at}", 1, (Holding(f"o{at + 1}", 1, 1, 0.0, 9.0),), (Waiting(f"o{at}", 1, 0.0, 9.0),))
        for at in range(length)
    ]


def crowd(length: int) -> list[Snapshot]:
    """Writers who wait for readers."""
    readers = tuple(Holding(f"r{at}", at + 1, 1, 0.0, 9.0) for at in range(length))
    return [Snapshot("page", 2**20, readers, tuple(Waiting(f"w{at}", 2**20, 0.0, 9.0) for at in range(length)))]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("world", [line, chain, crowd])
def test_a_line_as_long_as_strangers_make_it_is_looked_through_in_a_moment(
    world: Callable[[int], list[Snapshot]],
) -> None:
    """Looked through anew for each who can go on, it would take an hour."""
    length = 5000
    began = time.process_time()
    assert WaitGraph(world(length)).deadlocks() == ()
    assert time.process_time() - began < 5


def test_who_waits_for_themselves_is_a_deadlock_of_one() -> None:
    snapshot = Snapshot("x", 1, (Holding("a", 1, 1, 0.0, 9.0),), (Waiting("a", 1, 0.0, 9.0),))
    ((edge,),) = WaitGraph([snapshot]).deadlocks()
    assert edge == ("a", "a", "x")


def test_two_separate_deadlocks_are_both_named() -> None:
    def held(name: str, holder: str, waiter: str) -> Snapshot:
        return Snapshot(name, 1, (Holding(holder, 1, 1, 0.0, 9.0),), (Waiting(waiter, 1, 0.0, 9.0),))

    graph = WaitGraph([held("1", "a", "b"), held("2", "b", "a"), held("3", "c", "d"), held("4", "d", "c")])
    assert sorted(sorted(edge.waiter for edge in cycle) for cycle in graph.deadlocks()) == [["a", "b"], ["c", "d"]]


def test_an_unfair_waiter_passes_a_stuck_one_and_a_fair_one_does_not() -> None:
    """a holds one of two units of x and waits for y, which c holds; b, who wants both of x, is ahead of c there."""

    def world(fair: bool) -> WaitGraph:
        inside = (Holding("a", 1, 1, 0.0, 9.0),)
        line = (Waiting("b", 2, 0.0, 9.0), Waiting("c", 1, 0.0, 9.0, fair))
        return WaitGraph(
            [
                Snapshot("x", 2, inside, line),
                Snapshot("y", 1, (Holding("c", 2, 1, 0.0, 9.0),), (Waiting("a", 1, 0.0, 9.0),)),
            ]
        )

    assert world(fair=False).deadlocks() == ()
    assert len(world(fair=True).deadlocks()) == 1


def test_who_goes_on_leaves_every_line_that_they_stand_in() -> None:
    """Tasks of one thread go by one name."""
    one = Snapshot("x", 1, (Holding("h", 1, 1, 0.0, 9.0),), (Waiting("a", 1, 0.0, 9.0),))
    another = Snapshot("y", 1, (), (Waiting("a", 1, 0.0, 9.0), Waiting("b", 1, 0.0, 9.0)))
    for snapshots in ([one, another], [another, one]):
        assert WaitGraph(snapshots)._stuck() == set()


def test_a_wait_that_leads_nowhere_hides_no_deadlock() -> None:
    """Two tasks of a: one waits for d, who only stands behind the other in a line that moves; and a and b wait for each other."""

    def one(name: str, holder: str, *line: str) -> Snapshot:
        inside = (Holding(holder, 1, 1, 0.0, 9.0),) if holder else ()
        return Snapshot(name, 1, inside, tuple(Waiting(owner, 1, 0.0, 9.0) for owner in line))

    world = [one("1", "", "a", "d"), one("2", "d", "a"), one("3", "b", "a"), one("4", "a", "b")]
    for snapshots in (world, world[::-1]):
        (cycle,) = WaitGraph(snapshots).deadlocks()
        assert {edge.name for edge in cycle} == {"3", "4"}


@st.composite
def crowded(draw: st.DrawFn) -> list[Snapshot]:
    """Owners in several lines, and twice in one; who holds one, holds it perhaps twice."""
    owners, found = st.sampled_from(OWNERS), []
    for number in range(draw(st.integers(1, 4))):
        capacity = draw(st.integers(1, 3))
        inside = draw(st.lists(owners, max_size=capacity))
        line = draw(st.lists(st.tuples(owners, st.integers(1, capacity), st.booleans()), max_size=4))
        holders = tuple(Holding(owner, token, 1, 0.0, 9.0) for token, owner in enumerate(inside, 1))
        waiters = tuple(Waiting(owner, units, 0.0, 9.0, fair) for owner, units, fair in line)
        found.append(Snapshot(f"n{number}", capacity, holders, waiters))
    return found


@given(crowded())
@settings(max_examples=500, deadline=None)
def test_of_owners_in_several_lines_a_deadlock_is_found_exactly_when_a_circle_of_them_is_stuck(
    snapshots: list[Snapshot],
) -> None:
    graph = WaitGraph(snapshots)
    stuck = graph._stuck()
    waits_for = {owner: {edge.holder for edge in graph.edges if edge.waiter == owner} & stuck for owner in stuck}
    for _ in stuck:  # who waits for whom, over so many others
        waits_for = {owner: others.union(*(waits_for[one] for one in others)) for owner, others in waits_for.items()}
    cycles = graph.deadlocks()
    assert bool(cycles) is any(owner in others for owner, others in waits_for.items())
    assert all(edge in graph.edges and edge.waiter in stuck for cycle in cycles for edge in cycle)


def test_what_somebody_will_give_back_who_waits_for_now_is_no_deadlock() -> None:
    """a and t share x, of which b wants a unit, and a wants y of b; but t waits only for z, and its holder for nobody."""

    def one(name: str, holders: str, waiter: str) -> Snapshot:
        inside = tuple(Holding(owner, number, 1, 0.0, 9.0) for number, owner in enumerate(holders, 1))
        return Snapshot(name, len(holders), inside, (Waiting(waiter, 1, 0.0, 9.0),))

    assert WaitGraph([one("x", "at", "b"), one("y", "b", "a"), one("z", "f", "t")]).deadlocks() == ()
    assert len(WaitGraph([one("x", "at", "b"), one("y", "b", "a"), one("z", "b", "t")]).deadlocks()) == 1


def test_a_long_line_and_many_lines_are_looked_through_at_once() -> None:
    """Each of these took minutes of the processor, in the thread of the dashboard or the loop of a program."""
    alone = (Holding("a", 1, 1, 0.0, 9.0),)
    long = [Snapshot("x", 1, alone, tuple(Waiting(f"w{number}", 1, 0.0, 9.0) for number in range(3000)))]
    many = [
        Snapshot(f"n{number}", 1, (Holding(f"h{number}", 1, 1, 0.0, 9.0),), (Waiting(f"w{number}", 1, 0.0, 9.0),))
        for number in range(3000)
    ]
    chain = [
        Snapshot(f"n{number}", 1, (Holding(f"o{number}", 1, 1, 0.0, 9.0),), (Waiting(f"o{number + 1}", 1, 0.0, 9.0),))
        for number in range(3000)
    ]
    began = time.process_time()
    assert [WaitGraph(world).deadlocks() for world in (long, many, chain)] == [(), (), ()]
    closed = [*chain, Snapshot("last", 1, (Holding("o3000", 1, 1, 0.0, 9.0),), (Waiting("o0", 1, 0.0, 9.0),))]
    (cycle,) = WaitGraph(closed).deadlocks()
    assert len(cycle) == 3001
    assert time.process_time() - began < 5


def test_a_million_edges_are_not_made_to_find_a_deadlock_among_them() -> None:
    readers = tuple(Holding(f"r{number}", number + 1, 1, 0.0, 9.0) for number in range(2000))
    writers = tuple(Waiting(f"w{number}", 2000, 0.0, 9.0) for number in range(2000))
    world = [
        Snapshot("x", 2000, readers, writers),
        Snapshot("y", 1, (Holding("w9", 1, 1, 0.0, 9.0),), (Waiting("r7", 1, 0.0, 9.0),)),
    ]
    began = time.process_time()
    (cycle,) = WaitGraph(world).deadlocks()
    assert {edge.waiter for edge in cycle} == {"w9", "r7"}
    assert next(WaitGraph(world).each_edge()) == ("w0", "r0", "x")
    assert time.process_time() - began < 2
