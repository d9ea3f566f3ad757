"""The one rule, against a slow and obvious one."""

from __future__ import annotations

import pytest

from holdfast.claim import MAX_TOKEN
from holdfast.errors import Misuse, Unavailable
from holdfast.rule import EVERYBODY, admit, next_token, same_capacity

from .properties import given, st

SMALL = st.integers(1, 6)


@given(SMALL, SMALL, st.integers(0, 6), st.booleans(), st.booleans())
def test_one_enters_when_there_is_room_and_nobody_ahead(
    units: int, capacity: int, used: int, ahead: bool, fair: bool
) -> None:
    free = ["unit"] * (capacity - used)
    expected = len(free) >= units and (not fair or not ahead)
    assert admit(units, capacity, used, ahead=ahead, fair=fair) is expected


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_there_are_never_a_reader_and_a_writer_inside_or_two_writers(steps: list[tuple[bool, bool]]) -> None:
    inside: list[int] = []
    for writes, leaves in steps:
        if leaves and inside:
            inside.pop()
        units = EVERYBODY if writes else 1
        if admit(units, EVERYBODY, sum(inside), ahead=False):
            inside.append(units)
        assert inside.count(EVERYBODY) == 0 or inside == [EVERYBODY]


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_tokens_rise_whatever_the_clock_does(clock: list[int]) -> None:
    last = 0
    for wall in clock:
        token = next_token(last, wall, "x")
        assert token > last
        assert token >= wall
        last = token


def test_a_forgotten_counter_is_made_up_for_by_the_clock() -> None:
    before = next_token(0, 1_700_000_000_000_000, "x")
    assert next_token(0, 1_700_000_000_000_001, "x") > before


def test_a_token_at_its_limit_is_refused_and_never_wraps() -> None:
    assert next_token(MAX_TOKEN - 1, 0, "x") == MAX_TOKEN
    with pytest.raises(Unavailable, match="used up"):
        next_token(MAX_TOKEN, 0, "x")
    with pytest.raises(Unavailable, match="used up"):
        next_token(0, MAX_TOKEN + 1, "x")


def test_two_opinions_of_a_capacity_are_refused_by_name() -> None:
    same_capacity("x", 3, 3)
    with pytest.raises(
        Misuse, match="'x' is in use with readers and writers, and was now asked for with a capacity of 3"
    ):
        same_capacity("x", 3, EVERYBODY)
