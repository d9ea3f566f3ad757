"""The functions with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.postgresql import schema
from holdfast.sync import Locks
from holdfast.testing.servers.postgresql import PostgreSQL

from .hands import Connect

pytestmark = pytest.mark.server
Scenario = Callable[[Locks, PostgreSQL], None]


def claim(ttl: float = 30.0, units: int = 1, capacity: int = 1) -> Claim:
    return Claim("x", new_holder(), "somebody", ttl, units, capacity)


def ask(locks: Locks, asked: Claim) -> Grant | Place:
    return finish(locks._engine.store.claim(asked))


def only_the_holder_releases(locks: Locks, _: PostgreSQL) -> None:
    lease = locks.lock("x").acquire()
    assert not finish(locks._engine.store.release(claim()))
    assert locks.inspect("x").holders
    assert lease.release()


def a_repeated_claim_gets_its_token_again(locks: Locks, _: PostgreSQL) -> None:
    mine = claim(capacity=2)
    assert ask(locks, mine) == ask(locks, mine)


def tokens_rise_though_the_clock_does_not(locks: Locks, server: PostgreSQL) -> None:
    locks.lock("x").acquire().release()
    ahead = int(time.time() * 1_000_000) + 10**9
    server.query(f"UPDATE mutant.locks SET last = {ahead}")  # noqa: S608
    assert locks.lock("x").acquire().token > ahead


def what_is_over_is_not_renewed(locks: Locks, _: PostgreSQL) -> None:
    grant = ask(locks, claim(ttl=0.1))
    assert isinstance(grant, Grant)
    time.sleep(0.2)
    assert finish(locks._engine.store.renew([grant], 5.0)) == [None]


def a_grant_is_renewed_by_its_own_holder_only(locks: Locks, _: PostgreSQL) -> None:
    grant = ask(locks, claim())
    assert isinstance(grant, Grant)
    other = grant._replace(claim=claim())
    assert list(finish(locks._engine.store.renew([other, grant], 5.0))) == [None, grant]


def the_capacity_is_kept(locks: Locks, _: PostgreSQL) -> None:
    answers = [ask(locks, claim(capacity=2)) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Grant, Grant, Place]


def nobody_overtakes(locks: Locks, _: PostgreSQL) -> None:
    ask(locks, claim(units=2, capacity=3))
    assert isinstance(ask(locks, claim(units=3, capacity=3)), Place)
    assert isinstance(ask(locks, claim(units=1, capacity=3)), Place)


def a_dead_waiter_expires(locks: Locks, _: PostgreSQL) -> None:
    inside = claim()
    ask(locks, inside)
    ask(locks, claim(ttl=0.4))
    finish(locks._engine.store.release(inside))  # rings for one that lives, and then dies
    time.sleep(0.6)
    assert isinstance(ask(locks, claim()), Grant)


def a_release_wakes_the_next(locks: Locks, _: PostgreSQL) -> None:
    lease = locks.lock("x").acquire()
    thread = threading.Thread(target=lambda: locks.lock("x", timeout=8).acquire())
    thread.start()
    while not locks.inspect("x").waiters:
        time.sleep(0.005)
    started = time.monotonic()
    lease.release()
    thread.join(10)
    assert time.monotonic() - started < 3


def an_evicted_holder_is_outranked(locks: Locks, server: PostgreSQL) -> None:
    locks.lock("x").acquire().release()
    server.query(f"UPDATE mutant.locks SET last = {int(time.time() * 1_000_000) + 10**9}")  # noqa: S608
    lease = locks.lock("x").acquire()
    past = locks.force_release("x", token=lease.token)
    assert past is not None
    assert past > lease.token
    assert locks.lock("x").acquire().token > past


HOLDER = "AND l.holder = asked.holder AND l.token = asked.token AND l.ends > now_us"
MINE = "IF book.holder = a_holder THEN\n        value"
HEAD_LIVES = "EXIT WHEN party.ends > now_us;"
MUTANTS: list[tuple[str, Scenario, str, str]] = [
    ("plain delete", only_the_holder_releases, "AND l.holder = a_holder AND NOT l.crowded", "AND NOT l.crowded"),
    ("not idempotent", a_repeated_claim_gets_its_token_again, MINE, MINE.replace("book.holder = a_holder", "false")),
    ("only the clock", tokens_rise_though_the_clock_does_not, "greatest(l.last + 1, now_us)", "now_us"),
    ("renewed after loss", what_is_over_is_not_renewed, HOLDER, HOLDER.replace("AND l.ends > now_us", "")),
    ("anybody renews", a_grant_is_renewed_by_its_own_holder_only, HOLDER, "AND l.ends > now_us"),
    ("no capacity", the_capacity_is_kept, "IF book.used + a_units <= a_capacity AND", "IF"),
    ("no line", nobody_overtakes, "(a_flags & 1 = 0 OR head.place IS NULL OR head.place = mine.place)", "true"),
    ("waiters never die", a_dead_waiter_expires, HEAD_LIVES, "EXIT;"),
    ("no bell", a_release_wakes_the_next, "PERFORM pg_notify('holdfast_' || w", "PERFORM concat('holdfast_' || w"),
    ("eviction mints nothing", an_evicted_holder_is_outranked, "        book.last := past;\n", ""),
]  # fmt: skip


@pytest.fixture
def mutated(postgresql: PostgreSQL, connect: Connect) -> Iterator[Callable[..., Locks]]:
    """Locks on a schema of their own, with what is asked for replaced in it."""

    def create(old: str = "", new: str = "") -> Locks:
        url = f"{postgresql.url}?schema=mutant"
        text = schema(url)
        assert old in text, f"the schema has changed: {old!r} is no longer in it"
        postgresql.query("DROP SCHEMA IF EXISTS mutant CASCADE")
        postgresql.query(text.replace(old, new) if old else text)
        return connect(url)

    yield create
    postgresql.query("DROP SCHEMA IF EXISTS mutant CASCADE")


@pytest.mark.parametrize("scenario", dict.fromkeys(one[1] for one in MUTANTS))
def test_without_a_mistake_it_holds(postgresql: PostgreSQL, mutated: Callable[..., Locks], scenario: Scenario) -> None:
    scenario(mutated(), postgresql)


@pytest.mark.parametrize(("scenario", "old", "new"), [pytest.param(*rest, id=name) for name, *rest in MUTANTS])
def test_a_mistake_is_found(
    postgresql: PostgreSQL, mutated: Callable[..., Locks], scenario: Scenario, old: str, new: str
) -> None:
    locks = mutated(old, new)
    with pytest.raises(AssertionError):
        scenario(locks, postgresql)
