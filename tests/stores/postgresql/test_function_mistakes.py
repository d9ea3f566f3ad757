"""The functions with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

import holdfast
from holdfast import Unavailable
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.postgresql import schema
from holdfast.sync import Locks
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import Connect, until

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


def a_sweep_frees_the_units_of_the_dead(locks: Locks, server: PostgreSQL) -> None:
    for ttl in (30.0, 30.0, 0.1):
        ask(locks, claim(ttl, capacity=3))
    time.sleep(0.2)
    for _ in range(3):
        server.query("SELECT mutant.sweep(1000)")
    of_rows = "SELECT sum(units) FROM mutant.locks WHERE holder <> ''"
    assert server.query(of_rows) == server.query("SELECT used FROM mutant.locks WHERE place = 0"), (
        "counted without a row"
    )
    assert isinstance(ask(locks, claim(capacity=3)), Grant), "its units were counted still"


def units_of_a_row_that_is_gone_do_not_count(locks: Locks, server: PostgreSQL) -> None:
    """Whoever deleted it: the sweep of an older version did."""
    for _ in range(3):
        ask(locks, claim(capacity=3))
    server.query("DELETE FROM mutant.locks WHERE place = -2")
    assert isinstance(ask(locks, claim(capacity=3)), Grant)


def a_sweep_leaves_the_living_alone(locks: Locks, server: PostgreSQL) -> None:
    inside = claim(capacity=2)
    first = ask(locks, inside)
    second = ask(locks, claim(capacity=2))
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    finish(locks._engine.store.release(inside))  # the name's own row is nobody's now
    time.sleep(0.2)
    for _ in range(3):
        server.query("SELECT mutant.sweep(100000)")
    assert finish(locks._engine.store.renew([second], 5.0)) == [second]


def a_sweep_keeps_a_token_that_is_ahead_of_the_clock(locks: Locks, server: PostgreSQL) -> None:
    """The clock was set back: the name's next token would be lower."""
    sessions = holdfast.connect(f"{server.url}?schema=mutant&mode=session")
    with sessions:
        for one in (locks, sessions):
            one.lock("x").acquire().release()
        ahead = int(time.time() * 1_000_000) + 10**10
        server.query(f"UPDATE mutant.locks SET last = {ahead}")  # noqa: S608
        for one in (locks, sessions):
            one.lock("x").acquire().release()
        time.sleep(0.05)
        for _ in range(3):
            server.query("SELECT mutant.sweep(1000)")
        assert all(one.lock("x").acquire().token > ahead + 1 for one in (locks, sessions))


def a_renewal_waits_with_nothing_locked(locks: Locks, server: PostgreSQL) -> None:
    """Else it and a release, which locks the name first and then who leaves it, wait for each other."""
    first, second = ask(locks, claim(capacity=2)), ask(locks, claim(capacity=2))
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    with psycopg.connect(server.url) as release:
        release.execute(
            "SET lock_timeout = '200ms'"
        )  # less than the server takes to find a deadlock; it need not wait at all
        release.execute("SELECT FROM mutant.locks WHERE place = 0 FOR NO KEY UPDATE")

        def renew() -> None:
            with contextlib.suppress(Unavailable):
                finish(locks._engine.store.renew([second, first], 5.0))

        renewing = threading.Thread(target=renew)
        renewing.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: not renewing.is_alive() or server.query(waiting) == [("1",)])
        try:
            release.execute("DELETE FROM mutant.locks WHERE place < 0")
        except psycopg.Error as error:
            raise AssertionError("they wait for each other") from error
        finally:
            release.rollback()
            renewing.join(20)


def a_waiter_that_was_cut_off_keeps_its_place(locks: Locks, server: PostgreSQL) -> None:
    inside, cut_off, next_in_line = claim(), claim(), claim()
    for one in (inside, cut_off, next_in_line):
        ask(locks, one)
    server.query("UPDATE mutant.locks SET ear = 1 WHERE place = 1")  # nobody's: as if its connection had just ended
    finish(locks._engine.store.release(inside))
    kept = "SELECT w.ends > n.ends FROM mutant.locks AS n, mutant.locks AS w WHERE n.place = 0 AND w.place = 1"
    assert server.query(kept) == [("t",)], "its place ended with its connection"
    no_hurry = "UPDATE mutant.locks SET ends = ends + 20000000 WHERE place = 1"  # half a second may pass in no time
    server.query(no_hurry)
    assert isinstance(ask(locks, next_in_line), Place), "the next came first"
    server.query(no_hurry)
    assert isinstance(ask(locks, cut_off), Grant)


def one_that_does_not_come_back_is_passed(locks: Locks, server: PostgreSQL) -> None:
    inside, gone, next_in_line = claim(), claim(), claim()
    for one in (inside, gone, next_in_line):
        ask(locks, one)
    server.query("UPDATE mutant.locks SET ear = 1 WHERE place = 1")
    finish(locks._engine.store.release(inside))
    place = ask(locks, next_in_line)
    assert isinstance(place, Grant) or place.wake_in < 0.6
    time.sleep(0.6)
    assert isinstance(ask(locks, next_in_line), Grant)


def an_eviction_ends_nobody_elses_connection(locks: Locks, server: PostgreSQL) -> None:
    """A pid of long ago may be anybody's by now."""
    sessions = holdfast.connect(f"{server.url}?schema=mutant&mode=session")
    with sessions, psycopg.connect(server.url, autocommit=True) as innocent:
        lease = sessions.lock("x").acquire()
        server.query(f"UPDATE mutant.locks SET ear = {innocent.info.backend_pid} WHERE place < 0")  # noqa: S608
        assert sessions.force_release("x", token=lease.token) is None
        try:
            innocent.execute("SELECT 1")
        except psycopg.Error as error:
            raise AssertionError("ended") from error


def nor_that_of_a_later_holder_with_the_same_pid(locks: Locks, server: PostgreSQL) -> None:
    sessions = holdfast.connect(f"{server.url}?schema=mutant&mode=session")
    with sessions:
        dead = sessions.rwlock("x").read().acquire()
        server.query(
            "UPDATE mutant.locks SET since = since - 3600000000 WHERE place < 0"
        )  # it entered before that backend began
        assert sessions.force_release("x", token=dead.token) is None
        assert dead.held


def who_keeps_a_name_is_told_who_joins(locks: Locks, server: PostgreSQL) -> None:
    with locks.lock("x", ttl=60, keep=60):
        pass
    until(lambda: server.query("SELECT FROM mutant.locks WHERE watched > 0"))  # the keeper listens
    with holdfast.connect(f"{server.url}?schema=mutant") as other:
        try:
            other.lock("x").acquire(timeout=8).release()
        except holdfast.NotAcquired as error:
            raise AssertionError(error) from error


def who_came_before_the_keeper_listened_is_seen(locks: Locks, _: PostgreSQL) -> None:
    grant = ask(locks, claim())
    assert isinstance(grant, Grant)
    assert isinstance(ask(locks, claim()), Place)
    before = time.monotonic()
    assert finish(locks._engine.store.wanted(grant, 3.0))  # type: ignore[attr-defined]
    assert time.monotonic() - before < 2.9


def what_is_over_keeps_nobody(locks: Locks, _: PostgreSQL) -> None:
    """Nobody listens for what another has by now: who was put out may otherwise lend for as long as it listens."""
    mine = claim()
    grant = ask(locks, mine)
    assert isinstance(grant, Grant)
    finish(locks._engine.store.release(mine))
    ask(locks, claim())
    before = time.monotonic()
    assert finish(locks._engine.store.wanted(grant, 3.0))  # type: ignore[attr-defined]
    assert time.monotonic() - before < 2.9


HOLDER = "AND l.holder = asked.holder AND l.token = asked.token AND l.ends > now_us"
MINE = "IF book.holder = a_holder THEN\n        value"
COUNTED = """    SELECT coalesce(sum(p.units), 0) + CASE WHEN book.holder = '' THEN 0 ELSE book.units END INTO book.used
        FROM "holdfast".locks AS p WHERE p.name = book.name AND p.place < 0;
"""
NAMELESS = """ AND NOT EXISTS (
                    SELECT FROM "holdfast".locks AS p WHERE p.name = o.name AND p.place = 0)"""
CUT_OFF = "least(w.ends, now_us + 500000)"
IS_THERE = 'IF NOT FOUND OR NOT "holdfast".session_is_there(gone) OR NOT pg_term'
BEGAN = "s.backend_start <= to_timestamp(party.since / 1000000.0)"
HEAD_LIVES = "EXIT WHEN party.ends > now_us;"
TOLD = "changed := true; -- whoever keeps"
NOBODY_AHEAD = """IF NOT EXISTS (SELECT FROM "holdfast".locks AS p WHERE p.name = a_name AND p.place > 0 AND p.ends > now_us)
        AND"""
MINE_STILL = "(book.holder = a_holder AND book.token = a_token OR"
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
    ("a sweep of the living", a_sweep_leaves_the_living_alone, "swept.name AND (p.ends >= old", "swept.name AND (false"),
    ("units are remembered", units_of_a_row_that_is_gone_do_not_count, COUNTED, ""),
    ("the sweep takes what a name counts", a_sweep_frees_the_units_of_the_dead, NAMELESS, ""),
    ("tokens ahead of the clock are forgotten", a_sweep_keeps_a_token_that_is_ahead_of_the_clock, "AND o.last < old", ""),
    ("renewed before the name is locked", a_renewal_waits_with_nothing_locked, 'IF "holdfast".is_busy(asked.name)', "IF false"),
    ("cut off is dead", a_waiter_that_was_cut_off_keeps_its_place, CUT_OFF, CUT_OFF.replace("500000", "0")),
    ("the dead are waited for", one_that_does_not_come_back_is_passed, CUT_OFF, CUT_OFF.replace("500000", "500000000")),
    ("whoever has that pid", an_eviction_ends_nobody_elses_connection, IS_THERE, "IF NOT FOUND OR NOT pg_term"),
    ("who joins is told to nobody", who_keeps_a_name_is_told_who_joins, TOLD, TOLD.replace("true", "false")),
    ("who was in line is not seen", who_came_before_the_keeper_listened_is_seen, NOBODY_AHEAD, "IF"),
    ("what is over is kept", what_is_over_keeps_nobody, MINE_STILL, "(true OR"),
    ("whoever has that pid and the lock", nor_that_of_a_later_holder_with_the_same_pid, BEGAN, "true"),
]  # fmt: skip


@pytest.fixture
def mutated(postgresql: PostgreSQL, connect: Connect) -> Iterator[Callable[..., Locks]]:
    """Locks on a schema of their own, with what is asked for replaced in it."""

    def create(old: str = "", new: str = "") -> Locks:
        url = f"{postgresql.url}?schema=mutant"
        text = schema(url)
        old = old.replace('"holdfast"', '"mutant"')
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
