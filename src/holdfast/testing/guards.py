"""What every guard of fenced storage is asked, ours and yours. For authors of guards.

    # test_my_guard.py
    import pytest
    from holdfast.testing import guards

    @pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
    def test_my_guard(check):
        check(MyGuardUnderTest())

A guard under test keeps one integer a resource. It is called from many threads at once; one that lives in asyncio runs
each call on its loop and waits for it. Every check uses resource names of its own, so one storage may serve them all.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

from ..errors import Misuse, StaleToken

SECONDS = 60.0
WRITERS = 16
EACH = 5  # updates that a writer tries
CLIENTS = 3


class GuardUnderTest(Protocol):
    """One integer a resource, behind the guard."""

    most: int  # the highest token that the storage keeps whole: 2**63 - 1 where it can
    transactional: bool  # abandon() works

    def read(self, resource: str, token: int) -> int | None:
        """The value through the guard, None if nothing was written yet."""

    def write(self, resource: str, token: int, value: int) -> None:
        """Write through the guard."""

    def seen(self, resource: str) -> int:
        """The mark, behind the guard's back; 0 if there is none."""

    def abandon(self, resource: str, token: int, value: int) -> None:
        """Read and write in a transaction that is then rolled back."""


Check = Callable[[GuardUnderTest], None]


def title(check: Check) -> str:
    return check.__name__


def fresh() -> str:
    return f"resource {uuid4().hex}"


def refused(act: Callable[..., object], resource: str, token: int, *value: int) -> StaleToken:
    try:
        act(resource, token, *value)
    except StaleToken as error:
        return error
    raise AssertionError(f"token {token} was accepted for {resource!r}; it was overtaken")


# ---- one client after the other


def a_lower_token_is_refused_to_write(guard: GuardUnderTest) -> None:
    name = fresh()
    guard.write(name, 7, 1)
    refused(guard.write, name, 6, 2)
    assert guard.read(name, 7) == 1
    assert guard.seen(name) == 7


def a_lower_token_is_refused_to_read(guard: GuardUnderTest) -> None:
    name = fresh()
    guard.write(name, 7, 1)
    refused(guard.read, name, 6)


def reading_records_the_token(guard: GuardUnderTest) -> None:
    name = fresh()
    guard.write(name, 1, 5)
    assert guard.read(name, 2) == 5
    assert guard.seen(name) == 2
    refused(guard.write, name, 1, 6)
    assert guard.read(name, 2) == 5


def reading_what_is_not_there_records_the_token(guard: GuardUnderTest) -> None:
    name = fresh()
    assert guard.read(name, 2) is None
    assert guard.seen(name) == 2
    refused(guard.write, name, 1, 6)
    assert guard.read(name, 2) is None


def an_equal_token_is_the_same_holder(guard: GuardUnderTest) -> None:
    name = fresh()
    for value in range(3):
        guard.write(name, 9, value)
        assert guard.read(name, 9) == value
    assert guard.seen(name) == 9


def a_higher_token_is_always_accepted(guard: GuardUnderTest) -> None:
    """Kills `!=`: a guard that takes only the token it knows locks out every successor."""
    name = fresh()
    for token in (1, 2, 10, 99, 100, 1_000_000):  # 99 and 100, 2 and 10: as text they sort the other way
        guard.write(name, token, token)
        assert guard.read(name, token) == token
        assert guard.seen(name) == token


def a_refusal_says_what_was_seen(guard: GuardUnderTest) -> None:
    name = fresh()
    guard.write(name, 12, 1)
    error = refused(guard.write, name, 11, 2)
    assert (error.resource, error.seen, error.presented) == (name, 12, 11)
    assert "12" in str(error)
    assert "11" in str(error)
    assert name in str(error)


def a_refusal_changes_nothing(guard: GuardUnderTest) -> None:
    name = fresh()
    guard.write(name, 5, 50)
    for _ in range(2):
        refused(guard.write, name, 4, 40)
        refused(guard.read, name, 3)
    assert guard.seen(name) == 5
    assert guard.read(name, 5) == 50


def resources_are_apart(guard: GuardUnderTest) -> None:
    one, other = fresh(), fresh()
    guard.write(one, 10, 1)
    guard.write(other, 1, 2)
    assert (guard.read(one, 10), guard.read(other, 1)) == (1, 2)


# ---- what a token and a name may be


def what_is_no_token_is_refused(guard: GuardUnderTest) -> None:
    name = fresh()
    guard.write(name, 1, 5)
    impossible: tuple[Any, ...] = (0, -1, True, False, 1.0, "1", b"1", None, guard.most + 1, 2**64, -(2**63), 10**400)
    for token in impossible:
        for act in (partial(guard.read, name, token), partial(guard.write, name, token, 6)):
            try:
                act()
            except Misuse:
                continue
            raise AssertionError(f"{token!r:.50} was taken for a token")
    assert guard.read(name, 1) == 5
    assert guard.seen(name) == 1


def the_highest_tokens_are_kept_whole(guard: GuardUnderTest) -> None:
    name = fresh()
    guard.write(name, guard.most - 1, 1)
    assert guard.seen(name) == guard.most - 1
    refused(guard.write, name, guard.most - 2, 0)
    guard.write(name, guard.most, 2)
    refused(guard.write, name, guard.most - 1, 3)
    assert guard.read(name, guard.most) == 2
    assert guard.seen(name) == guard.most


NAMES = (
    "plain",
    "PLAIN",
    "plain ",
    " plain",
    "plaïn",
    "plai\u0308n",  # the same to a reader, and to a careless collation
    "straße",
    "strasse",
    "K",
    "\u212a",  # the kelvin sign: lower-cases to k
    "it's",
    'a "quoted" name',
    "`; DROP TABLE holdfast_fences; --",
    "100% %s %(resource)s ? $1 :resource {resource}",
    "back\\slash\\' OR 1=1",
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "a%2Fb",
    "line\nbreak\r\ttab",
    "\u202eright to left",
    "e\u0301" * 10,
    "鎖",
    "🔒",
    "{slot}",
    "*",
    "?",
    "\x01\x7f",
    "n" * 512,
    "n" * 511 + "m",
    "鎖" * 170,
)


def any_name_is_data(guard: GuardUnderTest) -> None:
    """Kept apart from each other, however alike: wrong collations and cut names show here."""
    first = time.time_ns() // 1000  # higher than the marks that an earlier run left on these names
    for number, name in enumerate(NAMES):
        guard.write(name, first + number, number)
    for number, name in enumerate(NAMES):
        assert guard.seen(name) == first + number, name
        assert guard.read(name, first + number) == number, name
        refused(guard.write, name, first + number - 1, -1)


def what_is_no_name_is_refused(guard: GuardUnderTest) -> None:
    impossible: tuple[Any, ...] = ("", "n" * 513, "鎖" * 171, "a\0b", "\ud800", b"bytes", None, 7)
    for name in impossible:
        try:
            guard.write(name, 1, 1)
        except Misuse:
            continue
        raise AssertionError(f"{name!r:.50} was taken for a name")


# ---- several clients at once


def a_rolled_back_transaction_leaves_the_mark_unmoved(guard: GuardUnderTest) -> None:
    if not guard.transactional:
        return
    name = fresh()
    guard.abandon(name, 3, 30)
    assert guard.seen(name) == 0
    guard.write(name, 1, 10)
    guard.abandon(name, 5, 50)
    assert guard.seen(name) == 1
    assert guard.read(name, 1) == 10


def schedules(steps: int = 2, clients: int = CLIENTS) -> Iterator[tuple[int, ...]]:
    """Every order in which the steps of all clients can happen: for 3 clients that read and then write, 90."""

    def orders(left: tuple[int, ...], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not any(left):
            yield chosen
        for client, rest in enumerate(left):
            if rest:
                fewer = (*left[:client], rest - 1, *left[client + 1 :])
                yield from orders(fewer, (*chosen, client))

    return orders((steps,) * clients, ())


def loses_an_update(guard: GuardUnderTest, schedule: tuple[int, ...]) -> bool:
    """Client n has token n + 1, reads and then adds one: does an acknowledged addition get lost?"""
    name = fresh()
    value: dict[int, int] = {}
    dead: set[int] = set()
    added = 0
    for client in schedule:
        if client in dead:
            continue
        try:
            if client not in value:
                value[client] = guard.read(name, client + 1) or 0
            else:
                guard.write(name, client + 1, value[client] + 1)
                added += 1
        except StaleToken:
            dead.add(client)
    return (guard.read(name, CLIENTS) or 0) != added


def no_update_is_lost_in_any_order_of_three_clients(guard: GuardUnderTest) -> None:
    """Kills the fence on writes only, which loses in 42 of these 90 orders."""
    lost = [schedule for schedule in schedules() if loses_an_update(guard, schedule)]
    assert not lost, f"an acknowledged update is lost in {len(lost)} of 90 orders of 3 clients, such as {lost[0]}"


def sixteen_writers_at_once_lose_nothing(guard: GuardUnderTest) -> None:
    """Kills check-then-write: the check of one holder and the write of its successor would change places."""
    name = fresh()
    added = itertools.count()
    failures: list[BaseException] = []
    start = threading.Barrier(WRITERS)

    def writer(token: int) -> None:
        try:
            start.wait(SECONDS)
            for _ in range(EACH):
                guard.write(name, token, (guard.read(name, token) or 0) + 1)
                next(added)
        except StaleToken:
            return
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=writer, args=(token,), daemon=True) for token in range(1, WRITERS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads), f"writers are stuck after {SECONDS} s"
    if failures:
        raise failures[0]
    acknowledged = next(added)
    assert acknowledged >= EACH, "the highest token was refused"
    assert guard.seen(name) == WRITERS
    assert guard.read(name, WRITERS) == acknowledged


CHECKS: tuple[Check, ...] = (
    a_lower_token_is_refused_to_write,
    a_lower_token_is_refused_to_read,
    reading_records_the_token,
    reading_what_is_not_there_records_the_token,
    an_equal_token_is_the_same_holder,
    a_higher_token_is_always_accepted,
    a_refusal_says_what_was_seen,
    a_refusal_changes_nothing,
    resources_are_apart,
    what_is_no_token_is_refused,
    the_highest_tokens_are_kept_whole,
    any_name_is_data,
    what_is_no_name_is_refused,
    a_rolled_back_transaction_leaves_the_mark_unmoved,
    no_update_is_lost_in_any_order_of_three_clients,
    sixteen_writers_at_once_lose_nothing,
)
