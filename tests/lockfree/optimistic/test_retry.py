"""The schedule of attempts is a pure function; the loop over it waits as told and tells what it saw."""

from __future__ import annotations

import itertools
import pickle

import pytest

from holdfast import Conflict, Misuse
from holdfast.drivers.base import finish
from holdfast.lockfree.optimistic.retry import Attempt, Retry, persist

from ...properties import given, st


class Recorded:
    """A driver whose dice always fall high, and whose sleep takes no time."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.drawn: list[tuple[float, float]] = []

    def uniform(self, low: float, high: float) -> float:
        self.drawn.append((low, high))
        return high

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@given(attempts=st.integers(1, 2000), first=st.floats(1e-6, 10), longest=st.floats(0, 100))
def test_ceilings_double_up_to_the_longest(attempts: int, first: float, longest: float) -> None:
    ceilings = Retry(attempts, first, longest).ceilings()
    assert len(ceilings) == attempts - 1
    assert all(0 <= one <= longest for one in ceilings)
    for before, after in itertools.pairwise(ceilings):
        assert after == min(2 * before, longest) or before == longest


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"attempts": True}, {"attempts": 1.5}, {"first": -1}, {"longest": float("inf")}, {"first": "1"}],
)
def test_a_schedule_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        Retry(**wrong)  # type: ignore[arg-type]


def test_between_attempts_it_sleeps_with_full_jitter_and_never_after_the_last() -> None:
    driver = Recorded()
    versions = iter(range(10, 20))

    async def attempt() -> Attempt[None]:
        return Attempt(next(versions), False, None)

    with pytest.raises(Conflict, match="5 attempts") as caught:
        finish(persist(driver, Retry(attempts=5, first=1, longest=3), "the row", attempt))
    assert driver.drawn == [(0, 1), (0, 2), (0, 3), (0, 3)]
    assert driver.slept == [1, 2, 3, 3]
    assert caught.value.seen == (10, 11, 12, 13, 14)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.seen, copy.resource, str(copy)) == (caught.value.seen, "the row", str(caught.value))


def test_it_stops_with_the_first_that_is_written() -> None:
    driver = Recorded()
    attempts = iter([Attempt(1, False, "no"), Attempt(2, True, "yes"), Attempt(3, True, "never asked")])

    async def attempt() -> Attempt[str]:
        return next(attempts)

    assert finish(persist(driver, Retry(), "the row", attempt)) == "yes"
    assert len(driver.slept) == 1
