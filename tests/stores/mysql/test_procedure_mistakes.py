"""The procedures with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.mysql import definitions
from holdfast.sync import Locks
from holdfast.testing.servers.mariadb import MariaDB

from .admin import Admin, until

pytestmark = pytest.mark.server
Scenario = Callable[[Locks, Admin], None]
PROCEDURES = dict(definitions.procedures())
WAITER = "waits in vain"


def claim(name: str = "x", ttl: float = 30.0, units: int = 1, capacity: int = 1) -> Claim:
    return Claim(name, new_holder(), "somebody", ttl, units, capacity)


def ask(locks: Locks, asked: Claim) -> Grant | Place:
    return finish(locks._engine.store.claim(asked))


def only_the_holder_releases(locks: Locks, _: Admin) -> None:
    lease = locks.lock("x").acquire()
    assert not finish(locks._engine.store.release(claim()))
    assert locks.inspect("x").holders
    assert lease.release()


def a_repeated_claim_gets_its_token_again(locks: Locks, _: Admin) -> None:
    mine = claim(capacity=2)
    first = ask(locks, mine)
    assert isinstance(first, Grant)
    assert isinstance(ask(locks, claim(capacity=2)), Grant)
    assert ask(locks, mine) == first


def tokens_rise_though_the_clock_does_not(locks: Locks, admin: Admin) -> None:
    locks.lock("x").acquire().release()
    ahead = int((time.time() + 3600) * 1_000_000)
    admin.run(f"UPDATE small.holdfast_claims SET mark = {ahead} WHERE name = 'x'")
    assert locks.lock("x").acquire().token > ahead


def what_is_over_is_not_renewed(locks: Locks, _: Admin) -> None:
    grant = ask(locks, claim(ttl=0.1))
    assert isinstance(grant, Grant)
    time.sleep(0.2)
    assert list(finish(locks._engine.store.renew([grant], 5.0))) == [None]


def a_grant_is_renewed_by_its_own_holder_only(locks: Locks, _: Admin) -> None:
    grant = ask(locks, claim())
    assert isinstance(grant, Grant)
    assert list(finish(locks._engine.store.renew([grant._replace(claim=claim()), grant], 5.0))) == [None, grant]


def the_capacity_is_kept(locks: Locks, _: Admin) -> None:
    answers = [ask(locks, claim(capacity=2)) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Grant, Grant, Place]


def nobody_overtakes(locks: Locks, _: Admin) -> None:
    ask(locks, claim(capacity=3, units=2))
    assert isinstance(ask(locks, claim(capacity=3, units=2)), Place)
    assert isinstance(ask(locks, claim(capacity=3)), Place)


def the_dead_do_not_wait_in_line(locks: Locks, _: Admin) -> None:
    inside = claim()
    ask(locks, inside)
    ask(locks, claim(ttl=0.1))
    time.sleep(0.2)
    finish(locks._engine.store.release(inside))
    assert isinstance(ask(locks, claim()), Grant)


def a_release_rings(locks: Locks, _: Admin) -> None:
    lease = locks.lock("x", ttl=60).acquire()
    waited: list[float] = []

    def wait() -> None:
        with contextlib.suppress(holdfast.HoldfastError):  # closed, when nobody rang
            locks.lock("x", ttl=60).acquire(timeout=15).release()
            waited.append(time.monotonic())

    thread = threading.Thread(target=wait, daemon=True, name=WAITER)
    thread.start()
    until(lambda: locks.inspect("x").waiters)
    time.sleep(0.3)
    released = time.monotonic()
    lease.release()
    thread.join(4)
    assert waited
    assert waited[0] - released < 4


def one_whose_process_is_gone_is_passed_over(locks: Locks, admin: Admin) -> None:
    inside = claim()
    ask(locks, inside)
    ask(locks, claim())
    admin.run(f"UPDATE small.holdfast_claims SET bell = '{'0' * 32}' WHERE token = 0")
    finish(locks._engine.store.release(inside))
    mine = claim()
    place = ask(locks, mine)
    assert isinstance(place, Place)
    assert place.wake_in <= 0.75
    time.sleep(place.wake_in + 0.01)
    assert isinstance(ask(locks, mine), Grant)


def one_that_was_cut_off_has_a_moment_to_come_back(locks: Locks, admin: Admin) -> None:
    inside, cut_off, next_in_line = claim(), claim(), claim()
    for one in (inside, cut_off, next_in_line):
        ask(locks, one)
    its = f"holder = '{cut_off.holder}'"
    admin.run(f"UPDATE small.holdfast_claims SET bell = '{'0' * 32}' WHERE {its}")
    finish(locks._engine.store.release(inside))
    kept = "SELECT w.expires > n.expires - 3600000000 + 500000 FROM small.holdfast_claims n, small.holdfast_claims w"
    assert admin.run(f"{kept} WHERE n.name = 'x' AND n.seq = 0 AND w.{its}") == [(1,)], "its place ended with its bell"
    no_hurry = (
        f"UPDATE small.holdfast_claims SET expires = expires + 20000000 WHERE {its}"  # a moment passes in no time
    )
    admin.run(no_hurry)
    assert isinstance(ask(locks, next_in_line), Place), "the next came first"
    admin.run(no_hurry)
    assert isinstance(ask(locks, cut_off), Grant)


def a_sweep_leaves_names_alone_that_somebody_is_deciding_about(locks: Locks, admin: Admin) -> None:
    """Who has locked a name's row 0 has counted its other rows: one that goes meanwhile is granted, and not there."""
    inside, waiting = claim(), claim(ttl=0.1)
    ask(locks, inside)
    ask(locks, waiting)
    time.sleep(0.15)
    admin.run("BEGIN")
    admin.run("SELECT 1 FROM small.holdfast_claims WHERE name = 'x' AND seq = 0 FOR UPDATE")
    try:
        for number in range(3):
            ask(locks, claim(f"new:{number}"))
        assert admin.run("SELECT COUNT(*) FROM small.holdfast_claims WHERE name = 'x'") == [(2,)]
    finally:
        admin.run("ROLLBACK")


def who_keeps_a_name_is_told_who_joins(locks: Locks, admin: Admin) -> None:
    with locks.lock("x", ttl=60, keep=60):
        pass
    until(lambda: admin.run("SELECT 1 FROM small.holdfast_claims WHERE token = -2"))  # the keeper listens
    ((port,),) = admin.run("SELECT @@port")
    with holdfast.connect(f"mysql://root@127.0.0.1:{port}/small") as other:
        other.lock("x").acquire(timeout=8).release()


def who_came_before_the_keeper_listened_is_seen(locks: Locks, _: Admin) -> None:
    grant = ask(locks, claim())
    assert isinstance(grant, Grant)
    assert isinstance(ask(locks, claim()), Place)
    before = time.monotonic()
    assert finish(locks._engine.store.wanted(grant, 3.0))  # type: ignore[attr-defined]
    assert time.monotonic() - before < 2.9


def what_is_over_keeps_nobody(locks: Locks, _: Admin) -> None:
    mine = claim()
    grant = ask(locks, mine)
    assert isinstance(grant, Grant)
    finish(locks._engine.store.release(mine))
    ask(locks, claim())
    before = time.monotonic()
    assert finish(locks._engine.store.wanted(grant, 3.0))  # type: ignore[attr-defined]
    assert time.monotonic() - before < 2.9


MISTAKES: dict[str, tuple[str, str, str, Scenario]] = {
    "anybody may release": (
        "holdfast_release_1", "IF v_holder_0 = p_holder THEN", "IF v_holder_0 <> '' THEN", only_the_holder_releases,
    ),
    "a repeated claim is a new one": (
        "holdfast_claim_1", "IF v_holder_0 = p_holder THEN", "IF v_holder_0 = '?' THEN", a_repeated_claim_gets_its_token_again,
    ),
    "tokens are the clock": (
        "holdfast_claim_1", "GREATEST(v_mark + 1, v_now)", "v_now", tokens_rise_though_the_clock_does_not,
    ),
    "renewal revives": (
        "holdfast_renew_1", "held.expires > v_now", "held.expires > 0", what_is_over_is_not_renewed,
    ),
    "anybody may renew": (
        "holdfast_renew_1", "AND held.holder = UNHEX(asked.holder_hex)", "", a_grant_is_renewed_by_its_own_holder_only,
    ),
    "units are not counted": (
        "holdfast_claim_1", "v_used + p_units <= p_capacity", "p_units <= p_capacity", the_capacity_is_kept,
    ),
    "the line is not kept": (
        "holdfast_claim_1", "v_head IS NULL OR", "TRUE OR", nobody_overtakes,
    ),
    "places in line do not expire": (
        "holdfast_claim_1", "seq > 0 AND expires <= v_now;", "seq > 0 AND token > 0 AND expires <= v_now;",
        the_dead_do_not_wait_in_line,
    ),
    "nobody is marked": (
        "holdfast_heir_1", "SET rung = 1", "SET rung = 0", a_release_rings,
    ),
    "who was cut off loses its place at once": (
        "holdfast_heir_1", "v_now + 750000)", "v_now)", one_that_was_cut_off_has_a_moment_to_come_back,
    ),
    "the sweep asks nobody": (
        "holdfast_sweep_1", "AND v_name <=> v_ours", "", a_sweep_leaves_names_alone_that_somebody_is_deciding_about,
    ),
    "who joins is told to nobody": (
        "holdfast_claim_1", "AND token = -2", "AND token = -3", who_keeps_a_name_is_told_who_joins,
    ),
    "who was in line is not seen": (
        "holdfast_wanted_1", "v_mine IS NOT NULL AND v_line = 0", "v_mine IS NOT NULL",
        who_came_before_the_keeper_listened_is_seen,
    ),
    "what is over is kept": (
        "holdfast_wanted_1", "v_mine IS NOT NULL AND v_line = 0", "v_line = 0", what_is_over_keeps_nobody,
    ),
    "the dead are rung": (
        "holdfast_heir_1", "IS NOT NULL THEN", "IS NOT NULL OR TRUE THEN", one_whose_process_is_gone_is_passed_over,
    ),
}  # fmt: skip


@pytest.fixture
def locks(mariadb: MariaDB, admin: Admin) -> Iterator[Locks]:
    admin.run("CREATE OR REPLACE DATABASE small")
    with holdfast.connect(f"mysql://root@127.0.0.1:{mariadb.port}/small") as locks:
        locks.lock("first").acquire().release()
        yield locks
    for thread in threading.enumerate():
        if thread.name == WAITER:  # nobody rang it: it ends now, and must not make anything in the next test's database
            thread.join(20)
    admin.run("DROP DATABASE small")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_scenario_finds_the_mistake(locks: Locks, admin: Admin, mistake: str) -> None:
    name, right, wrong, scenario = MISTAKES[mistake]
    assert right in PROCEDURES[name]
    admin.run("USE small")
    # In one step: what is missing is made again by whoever finds that out.
    admin.run(PROCEDURES[name].replace(right, wrong).replace("CREATE PROCEDURE", "CREATE OR REPLACE PROCEDURE", 1))
    with pytest.raises((AssertionError, holdfast.HoldfastError)):
        scenario(locks, admin)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_and_passes_without_it(locks: Locks, admin: Admin, mistake: str) -> None:
    MISTAKES[mistake][3](locks, admin)
