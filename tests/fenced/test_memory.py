"""Fenced memory passes the suite; every wrong way to build a guard fails it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import pytest

import holdfast
from holdfast import fenced
from holdfast.errors import StaleToken
from holdfast.events import Event
from holdfast.fenced.mark import Mark, mark_of, refusal
from holdfast.testing import guards

from .under_test import MemoryUnderTest


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_fenced_memory(check: guards.Check) -> None:
    check(MemoryUnderTest())


# ---- mutants


class Mutant:
    """A guard in a dictionary, wrong in one way."""

    most = 2**63 - 1
    transactional = False

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.marks: dict[str, int] = {}

    def seal(self, resource: str, token: int) -> None:
        mark = mark_of((resource, token))
        seen = self.marks.get(resource, 0)
        if token < seen:
            raise refusal(mark, seen)
        self.marks[resource] = token

    def read(self, resource: str, token: int) -> int | None:
        self.seal(resource, token)
        return self.values.get(resource)

    def write(self, resource: str, token: int, value: int) -> None:
        self.seal(resource, token)
        self.values[resource] = value

    def seen(self, resource: str) -> int:
        return self.marks.get(resource, 0)

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError


class NoFence(Mutant):
    def seal(self, resource: str, token: int) -> None:
        mark_of((resource, token))


class WritesOnly(Mutant):
    def read(self, resource: str, token: int) -> int | None:
        mark_of((resource, token))
        return self.values.get(resource)


class ReadsChecked(Mutant):
    """Checks the token on reads, but does not record it there."""

    def read(self, resource: str, token: int) -> int | None:
        mark = mark_of((resource, token))
        if token < self.seen(resource):
            raise refusal(mark, self.seen(resource))
        return self.values.get(resource)


class NotEqual(Mutant):
    def seal(self, resource: str, token: int) -> None:
        mark = mark_of((resource, token))
        if self.marks.setdefault(resource, token) != token:
            raise refusal(mark, self.marks[resource])


class StrictlyHigher(Mutant):
    def seal(self, resource: str, token: int) -> None:
        mark = mark_of((resource, token))
        if token <= self.seen(resource):
            raise refusal(mark, self.seen(resource))
        self.marks[resource] = token


class ComparedAsText(Mutant):
    def seal(self, resource: str, token: int) -> None:
        mark = mark_of((resource, token))
        if str(token) < str(self.marks.get(resource, "")):
            raise refusal(mark, self.seen(resource))
        self.marks[resource] = token


class ThroughFloat(Mutant):
    def seal(self, resource: str, token: int) -> None:
        super().seal(resource, token)
        self.marks[resource] = int(float(token))


class IgnoringCase(Mutant):
    def read(self, resource: str, token: int) -> int | None:
        return super().read(str(resource).casefold(), token)

    def write(self, resource: str, token: int, value: int) -> None:
        super().write(str(resource).casefold(), token, value)


class CheckThenWrite(Mutant):
    """The pause between the check and the write is where a successor slips in; here it always does."""

    def __init__(self) -> None:
        super().__init__()
        self.checked = threading.Event()
        self.slipped_in = threading.Event()

    def read(self, resource: str, token: int) -> int | None:
        if token == guards.WRITERS:
            self.checked.wait(guards.SECONDS)
        return super().read(resource, token)

    def write(self, resource: str, token: int, value: int) -> None:
        self.seal(resource, token)
        if token != guards.WRITERS:
            self.checked.set()
            self.slipped_in.wait(guards.SECONDS)
        self.values[resource] = value
        if token == guards.WRITERS:
            self.slipped_in.set()


CAUGHT_BY: list[tuple[Callable[[], Mutant], guards.Check]] = [
    (NoFence, guards.a_lower_token_is_refused_to_write),
    (WritesOnly, guards.reading_records_the_token),
    (WritesOnly, guards.no_update_is_lost_in_any_order_of_three_clients),
    (ReadsChecked, guards.no_update_is_lost_in_any_order_of_three_clients),
    (NotEqual, guards.a_higher_token_is_always_accepted),
    (StrictlyHigher, guards.an_equal_token_is_the_same_holder),
    (ComparedAsText, guards.a_higher_token_is_always_accepted),
    (ThroughFloat, guards.the_highest_tokens_are_kept_whole),
    (IgnoringCase, guards.any_name_is_data),
    (CheckThenWrite, guards.sixteen_writers_at_once_lose_nothing),
]


@pytest.mark.parametrize(("mutant", "check"), CAUGHT_BY)
def test_the_suite_catches(mutant: Callable[[], Mutant], check: guards.Check) -> None:
    with pytest.raises((AssertionError, StaleToken)):
        check(mutant())


@pytest.mark.parametrize(("mutant", "losing"), [(NoFence, 84), (WritesOnly, 42), (Mutant, 0)])
def test_how_many_of_the_ninety_orders_lose_an_update(mutant: Callable[[], Mutant], losing: int) -> None:
    """The figures that the guarantees rest on: 93 % unfenced, 47 % fenced on writes, none fenced on reads as well."""
    guard = mutant()
    schedules = list(guards.schedules())
    assert len(schedules) == 90
    assert sum(guards.loses_an_update(guard, schedule) for schedule in schedules) == losing


# ---- words


def test_a_lease_is_a_ticket() -> None:
    with holdfast.connect("memory://").lock("invoice:42") as lease:
        memory: fenced.Memory[str] = fenced.Memory()
        memory.write(lease, "paid")
        assert memory.read(lease) == "paid"
        assert memory.seen("invoice:42") == lease.token
        assert memory.delete(lease)
        assert not memory.delete(lease)


@pytest.mark.parametrize("ticket", [None, "invoice:42", ("a", 1, 2), ("a",), 7])
def test_what_is_no_ticket_is_refused(ticket: object) -> None:
    with pytest.raises(holdfast.Misuse):
        mark_of(ticket)  # type: ignore[arg-type]  # the point


def test_a_refusal_names_both_tokens_and_the_time_and_can_be_pickled() -> None:
    error = refusal(Mark("invoice:42", 7), 9, 0.0)
    assert "'invoice:42' has seen token 9, since 1970-01-01 00:00:00 UTC; the token presented is 7" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.resource, again.seen, again.presented, again.since) == ("invoice:42", 9, 7, 0.0)


def test_refusals_can_be_counted() -> None:
    events: list[Event] = []
    stop = fenced.subscribe(events.append)
    memory: fenced.Memory[int] = fenced.Memory()
    memory.write(("counted", 2), 0)
    for _ in range(2):
        with pytest.raises(StaleToken):
            memory.read(("counted", 1))
    stop()
    with pytest.raises(StaleToken):
        memory.read(("counted", 1))
    assert [(event.kind, event.name, event.token, event.detail) for event in events] == [
        ("refused", "counted", 1, "seen 2")
    ] * 2
