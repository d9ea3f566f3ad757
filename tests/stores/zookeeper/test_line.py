"""The rule over names of nodes, without a server: compared with the rule itself, over any history."""

from __future__ import annotations

import pytest

from holdfast import Misuse, rule
from holdfast.claim import Claim, new_holder
from holdfast.stores.zookeeper import line
from holdfast.stores.zookeeper.records import Told, told

from ...properties import given, st

CAPACITY = 4


def named(tag: str, sequence: int, units: int = 1, capacity: int = 1, fair: bool = True) -> str:
    claim = Claim("x", new_holder(), "somebody", 30.0, units, capacity, fair)
    return f"{line.stem(claim, tag)}{sequence:010d}"


def inside(children: list[str], tag: str) -> bool:
    stands = line.standing(line.read(children), tag)
    assert stands is not None
    return stands.inside


def test_the_first_is_inside_and_the_others_wait_each_for_the_one_before() -> None:
    children = [named("c", 3), named("a", 1), named("b", 2)]
    assert [inside(children, tag) for tag in "abc"] == [True, False, False]
    for tag, before in (("b", "a"), ("c", "b")):
        stands = line.standing(line.read(children), tag)
        assert stands is not None
        assert stands.ahead is not None
        assert stands.ahead.tag == before
    assert line.standing(line.read(children), "d") is None


def test_a_sequence_that_wraps_keeps_the_order() -> None:
    """It is 32 bits with a sign: after 2147483647 comes -2147483648."""
    children = [named("b", -(2**31)), named("a", 2**31 - 1), named("c", -(2**31) + 1)]
    assert [node.tag for node in line.read(children)] == ["a", "b", "c"]
    assert [inside(children, tag) for tag in "abc"] == [True, False, False]


def test_what_is_not_ours_is_passed_over() -> None:
    assert line.read(["", "x", "a.b", "a.b.c.d.e", "lock-0000000001", "a~", "!", "a~x"]) == []
    assert line.read(["a.-5.1.f.1", "a.2.1.f.1", "a.0.1.f.1"]) == []
    assert line.decode("%FF") is None


@pytest.mark.parametrize(
    "data",
    [None, b"", b"x", b"5", b"[1]", b"[" * 100_000, b'{"owner": 5, "note": {"a": 1}, "ttl": "abc", "state": null}'],
    ids=lambda data: repr(data)[:40],
)
def test_a_node_that_says_what_we_never_say_says_nothing(data: bytes | None) -> None:
    """Here it broke: whoever looked at such a name was told of a ValueError."""
    assert told(data) == Told()


@pytest.mark.parametrize("name", ["x", ".", "..", "a/b", "%", "%2E", "é", "日本", "\x01", "a b", "~", "x" * 512])
def test_names_are_one_part_of_a_path_and_come_back(name: str) -> None:
    part = line.encode(name)
    assert "/" not in part
    assert part not in (".", "..")
    assert part.isascii()
    assert line.decode(part) == name


@given(st.lists(st.text(min_size=1, max_size=8), unique=True))
def test_two_names_are_two_nodes(names: list[str]) -> None:
    valid = [name for name in names if name.isprintable() or name.isascii()]
    assert len({line.encode(name) for name in valid}) == len(valid)


step = st.one_of(
    st.tuples(st.just("join"), st.integers(1, CAPACITY), st.booleans()),
    st.tuples(st.just("leave"), st.integers(0, 20), st.booleans()),
    st.tuples(st.just("shrink"), st.integers(0, 20), st.booleans()),
)


@given(st.lists(step, max_size=40), st.integers(0, 2**32 - 1))
def test_never_more_inside_than_the_capacity_and_who_is_inside_stays(
    steps: list[tuple[str, int, bool]], start: int
) -> None:
    """Every claim looks after every step, and goes in when it is told so: past the line if it may."""
    children: dict[str, list[str]] = {}
    within: dict[str, int] = {}
    for number, (what, count, flag) in enumerate(steps):
        if what == "join":
            sequence = (start + number + 2**31) % 2**32 - 2**31
            children[f"t{number}"] = [named(f"t{number}", sequence, count, CAPACITY, flag)]
        elif children and what == "leave":
            gone = sorted(children)[count % len(children)]
            del children[gone]
            within.pop(gone, None)
        elif within and what == "shrink":
            fewer = sorted(within)[count % len(within)]
            within[fewer] = 1
            children[fewer].append(f"{fewer}~1")
        for tag in list(children):
            nodes = line.read([name for some in children.values() for name in some])
            stands = line.standing(nodes, tag)
            assert stands is not None
            mine = next(node for node in nodes if node.tag == tag)
            assert stands.inside or tag not in within
            if stands.inside:
                within[tag] = mine.units
            elif stands.room and not mine.fair:
                assert rule.admit(mine.units, CAPACITY, sum(within.values()), ahead=True, fair=False)
                within[tag] = mine.units
                children[tag].append(f"{tag}!")
            assert sum(within.values()) <= CAPACITY
        nodes = line.read([name for some in children.values() for name in some])
        assert line.entitled(nodes) == set(within)


def test_another_capacity_is_refused_by_whoever_comes_second() -> None:
    nodes = line.read([named("a", 1, 1, 3), named("b", 2, 1, 4), named("c", 3, 1, 3)])
    with pytest.raises(Misuse, match="in use with a capacity of 3"):
        line.check_capacity("x", nodes, "b")
    line.check_capacity("x", nodes, "c")
    # When the first has left meanwhile, nobody can tell who looked at what: both are refused.
    for tag in "bc":
        with pytest.raises(Misuse):
            line.check_capacity("x", nodes[1:], tag)


sequences = st.lists(st.integers(0, 1000), min_size=1, max_size=40, unique=True)


@given(sequences, st.integers(0, 2**32 - 1), st.data())
def test_those_who_decide_decide_as_all_would(offsets: list[int], start: int, data: st.DataObject) -> None:
    """A long line is not read name by name; what is made of it is the same."""
    claims = {}
    for offset in offsets:
        capacity = data.draw(st.sampled_from([1, 1, 1, 1, 1, 1, 3]))
        tag = f"{offset:032x}"
        claims[tag] = named(tag, (start + offset + 2**31) % 2**32 - 2**31, 1, capacity, data.draw(st.booleans()))
    foreign = data.draw(st.lists(st.sampled_from(["x", "lock-1", f"{0:032x}.1.1.f.x", f"{5:032x}~1"]), max_size=2))
    children = data.draw(st.permutations([*claims.values(), *foreign]))
    nodes = line.read(children)
    for node in nodes:
        if node.capacity != 1:
            continue
        few = line.read(line.deciding(children, node.tag, 1))
        shown, whole = line.standing(few, node.tag), line.standing(nodes, node.tag)
        assert shown is not None
        assert whole is not None
        assert (shown.inside, shown.room, shown.ahead) == (whole.inside, whole.room, whole.ahead)
        assert _refused(few, node.tag) == _refused(nodes, node.tag)


def _refused(nodes: list[line.Node], tag: str) -> str:
    try:
        line.check_capacity("x", nodes, tag)
    except Misuse as error:
        return str(error)
    return ""
