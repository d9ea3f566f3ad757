"""Somebody who may execute the procedures, and nothing else, sets up their own session as nobody should: others notice nothing.

Each scenario fails with the mistake that it is here for, and passes without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

import holdfast
from holdfast.stores.mysql import definitions
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.servers.base import Server

pytestmark = pytest.mark.server
PROCEDURES = dict(definitions.procedures())
MEMBERS = "the others"
PATIENCE = 20.0
READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"


class Somebody:
    def __init__(self, server: Server, user: str, **session: Any) -> None:
        self._connection = pymysql.connect(host=server.host, port=server.port, user=user, **session)
        self.run("USE small")

    def run(self, statement: str) -> tuple[tuple[Any, ...], ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    def refused(self, statement: str, why: str) -> None:
        with pytest.raises(pymysql.err.MySQLError, match=why):
            self.run(statement)

    def close(self) -> None:
        self._connection.close()


Scenario = Callable[[Locks, Locks, Somebody, Somebody], None]


def all_is_well(locks: Locks) -> None:
    for name in ("x", "a new one", "y, after all others"):
        locks.lock(name).acquire(timeout=PATIENCE).release()


def in_serializable(eve: Somebody) -> None:
    eve.run("SET autocommit = 0")
    eve.run("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")


def looking(call: str) -> Scenario:
    def scenario(locks: Locks, session: Locks, eve: Somebody, root: Somebody) -> None:
        in_serializable(eve)
        eve.run(f"CALL {call}")
        all_is_well(locks)
        all_is_well(session)

    return scenario


def ringing(locks: Locks, session: Locks, eve: Somebody, root: Somebody) -> None:
    in_serializable(eve)
    eve.run("CALL holdfast_watch_1('x', 'w', 0, 60000000, '', 1)")
    assert eve.run("CALL holdfast_claim_1('x', 'h', 'eve', 60000000, 1, 1, 1, 0, '', '', 1)")[0][0] == "granted"
    eve.run("COMMIT")  # of what the ring has read
    assert eve.run("CALL holdfast_release_1('x', 'h', 1)") == ((1,),)
    all_is_well(locks)


def not_ending(begin: str) -> Scenario:
    """The lock is given back; the transaction of whoever had it goes on, and one of XA for ever."""

    def scenario(locks: Locks, session: Locks, eve: Somebody, root: Somebody) -> None:
        eve.run(begin)
        with contextlib.suppress(pymysql.err.MySQLError):
            eve.run("CALL holdfast_session_claim_1('x', 'eve', '', 0, 60, 1)")
        with contextlib.suppress(pymysql.err.MySQLError):
            eve.run("CALL holdfast_session_release_1('x')")
        all_is_well(session)

    return scenario


def numbering(mode: str) -> Scenario:
    def scenario(locks: Locks, session: Locks, eve: Somebody, root: Somebody) -> None:
        victims = session if mode == "session_" else locks
        lease = victims.lock("victim", ttl=60).acquire(timeout=PATIENCE)
        if mode == "session_":
            token = eve.run("CALL holdfast_session_claim_1('own', 'eve', '', 0, 60, 1)")[0][1]
        else:
            token = eve.run("CALL holdfast_claim_1('own', 'h', 'eve', 60000000, 1, 1, 1, 0, '', '', 1)")[0][1]
        eve.run("SET insert_id = 9223372036854775806")
        with contextlib.suppress(pymysql.err.MySQLError):
            eve.run(f"CALL holdfast_{mode}evict_1('own', {token}, 'eve'{', 1' * (not mode)})")
        assert victims.force_release("victim", token=lease.token)

    return scenario


def holding_as_nobody(locks: Locks, session: Locks, eve: Somebody, root: Somebody) -> None:
    ours = locks.semaphore("x", 2, ttl=60).acquire(timeout=PATIENCE)
    with contextlib.suppress(pymysql.err.MySQLError):
        eve.run("CALL holdfast_claim_1('x', '', 'eve', 60000000, 1, 2, 0, 0, '', '', 1)")
    inside = locks.inspect("x")
    assert inside.used == sum(one.units for one in inside.holders)
    with locks.semaphore("x", 2).acquire(timeout=8):
        ours.release()


def calling_a_part(call: str) -> Scenario:
    def scenario(locks: Locks, session: Locks, eve: Somebody, root: Somebody) -> None:
        eve.run("SET autocommit = 0")
        eve.refused(f"CALL {call}", "denied")
        all_is_well(locks)

    return scenario


SCENARIOS: dict[str, tuple[str, str, str, Scenario]] = {
    "lists names": ("holdfast_names_1", READ_COMMITTED, "", looking("holdfast_names_1('')")),
    "looks": ("holdfast_inspect_1", READ_COMMITTED, "", looking("holdfast_inspect_1('x')")),
    "listens": ("holdfast_listen_1", READ_COMMITTED, "", looking("holdfast_listen_1('eve', 1, 0.01)")),
    "looks at session locks": (
        "holdfast_session_look_1", READ_COMMITTED, "", looking("holdfast_session_look_1('', 1)"),
    ),
    "rings": ("holdfast_ring_1", READ_COMMITTED, "", ringing),
    "commits nothing": ("holdfast_session_claim_1", "COMMIT; -- of", "-- of", not_ending("SET autocommit = 0")),
    "has begun already": ("holdfast_session_claim_1", f"{READ_COMMITTED} -- in", "-- in", not_ending("XA START 'eve'")),
    "numbers": ("holdfast_evict_1", "@@SESSION.insert_id <> 0", "FALSE", numbering("")),
    "numbers session locks": (
        "holdfast_session_evict_1", "@@SESSION.insert_id <> 0", "FALSE", numbering("session_"),
    ),
    "is nobody": ("holdfast_claim_1", " OR p_holder = ''", "", holding_as_nobody),
    "sweeps": ("holdfast_sweep_1", "SQL SECURITY INVOKER", "", calling_a_part("holdfast_sweep_1(1)")),
    "marks": ("holdfast_heir_1", "SQL SECURITY INVOKER", "", calling_a_part("holdfast_heir_1('x')")),
    "rings alone": ("holdfast_ring_1", "SQL SECURITY INVOKER", "", calling_a_part("holdfast_ring_1('x')")),
}  # fmt: skip


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with servers.start(request.param) as server:
        root = pymysql.connect(host=server.host, port=server.port, user="root", autocommit=True)
        with root.cursor() as cursor:
            cursor.execute("CREATE USER eve@'%'")
        root.close()
        yield server


@pytest.fixture
def stage(server: Server) -> Iterator[tuple[Locks, Locks, Somebody, Somebody]]:
    with (
        pymysql.connect(host=server.host, port=server.port, user="root", autocommit=True) as line,
        line.cursor() as cursor,
    ):
        cursor.execute("CREATE DATABASE small")
        cursor.execute("GRANT EXECUTE ON small.* TO eve@'%'")
        url = f"mysql://root@127.0.0.1:{server.port}/small?timeout="
        try:
            with holdfast.connect(f"{url}60") as maker:  # makes the tables
                maker.lock("x").acquire(timeout=PATIENCE).release()
            url += "4"  # seconds until it is known that a row is locked
            with holdfast.connect(url, label=MEMBERS) as locks, holdfast.connect(f"{url}&mode=session") as session:
                for one in (locks, session):
                    one.lock("x").acquire(timeout=PATIENCE).release()
                somebody = Somebody(server, "eve", autocommit=True), Somebody(server, "root", autocommit=True)
                try:
                    yield locks, session, *somebody
                finally:
                    for each in somebody:
                        each.close()
        finally:
            cursor.execute("DROP DATABASE small")


@pytest.mark.parametrize("what", SCENARIOS)
def test_nobody_else_notices_who(stage: tuple[Locks, Locks, Somebody, Somebody], what: str) -> None:
    SCENARIOS[what][3](*stage)


@pytest.mark.parametrize("what", SCENARIOS)
def test_nor_would_the_mistake_be_overlooked_if(stage: tuple[Locks, Locks, Somebody, Somebody], what: str) -> None:
    name, right, wrong, scenario = SCENARIOS[what]
    assert PROCEDURES[name].count(right) == 1
    root = stage[3]
    root.run(f"DROP PROCEDURE {name}")
    root.run(PROCEDURES[name].replace(right, wrong))
    with pytest.raises((AssertionError, holdfast.HoldfastError, pytest.fail.Exception)):
        scenario(*stage)
