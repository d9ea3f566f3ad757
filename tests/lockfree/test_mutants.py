"""Mistakes put in on purpose: for each, a test of this folder must fail. Otherwise that test would prove nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.databases import redis as scripts
from holdfast.databases.redis import Script
from holdfast.databases.statements import load
from holdfast.lockfree.bell import PostgresBell
from holdfast.lockfree.mailbox.handling import Journaled
from holdfast.lockfree.partition.membership import Member

from . import test_journal, test_left_loops, test_mailbox, test_partition, test_queue, test_restored_journal
from .conftest import SERVER, Database, address_of

JOURNAL, QUEUE = "holdfast.lockfree.journal", "holdfast.lockfree.partition"


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Database]]:
    with asyncio.Runner() as runner:
        made: list[Database] = []

        def build(driver: str) -> Database:
            made.append(Database(driver, address_of(driver, request, tmp_path), runner))
            return made[-1]

        yield build
        for one in made:
            one.close()


def expect_failure(test: Callable[..., Any], *arguments: Any) -> None:
    try:
        test(*arguments)
    except (AssertionError, pytest.fail.Exception):
        return
    except holdfast.HoldfastError:
        return
    raise AssertionError(f"{test.__name__} does not notice the mistake")


# (driver, statement, what is replaced, by what, the test that must notice)
SQL_JOURNAL = [
    (
        "sqlite3",
        "append",
        "CASE WHEN :expected = (SELECT coalesce(max(version), 0) FROM holdfast_journal WHERE stream = :stream)",
        "CASE WHEN true",
        "gap",
    ),
    (
        "psycopg",
        "append",
        "OR before.version IS NOT NULL",
        "OR true",
        "gap",
    ),
    (
        "psycopg",
        "append",
        "GREATEST(CAST(CAST(pg_current_xact_id() AS text) AS bigint), before.xact)",
        "CAST(CAST(pg_current_xact_id() AS text) AS bigint)",
        "order",
    ),
    (
        "psycopg",
        "append_many",
        "GREATEST(CAST(CAST(pg_current_xact_id() AS text) AS bigint), before.xact)",
        "CAST(CAST(pg_current_xact_id() AS text) AS bigint)",
        "order of many",
    ),
    (
        "psycopg",
        "append_many",
        "item.data, head.xact",
        "item.data, CAST(CAST(pg_current_xact_id() AS text) AS bigint)",
        "order of many",
    ),
    (
        "psycopg",
        "log",
        "AND xact < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)",
        "",
        "late",
    ),
]
JOURNAL_TESTS: dict[str, Any] = {
    "gap": lambda database, events, stream: test_journal.test_an_append_beyond_the_end_would_leave_a_gap_and_is_refused(
        events, stream, 1
    ),
    "order": lambda database, events, stream: (
        test_journal.test_a_subscription_gives_one_streams_events_in_order_whoever_began_first(
            database, events, stream, 1
        )
    ),
    "order of many": lambda database, events, stream: (
        test_journal.test_a_subscription_gives_one_streams_events_in_order_whoever_began_first(
            database, events, stream, 3
        )
    ),
    "late": test_journal.test_an_event_that_commits_late_is_not_stepped_over,
    "conflict": lambda database, events, stream: (
        test_journal.test_of_two_appends_at_one_version_one_wins_and_the_other_is_told(events, stream)
    ),
}


@pytest.mark.parametrize(
    ("driver", "statement", "old", "new", "test"),
    [pytest.param(*one, marks=[SERVER] if one[0] != "sqlite3" else []) for one in SQL_JOURNAL],
)
def test_mistakes_in_the_journals_sql_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
    world: Callable[[str], Database],
    driver: str,
    statement: str,
    old: str,
    new: str,
    test: str,
) -> None:
    known = load("sqlite" if driver == "sqlite3" else "postgresql", JOURNAL)
    assert old in known[statement]
    monkeypatch.setitem(known, statement, known[statement].replace(old, new))
    database = world(driver)
    events = test_journal.journal_of(database)
    expect_failure(JOURNAL_TESTS[test], database, events, f"mutant:{time.time_ns()}")


@pytest.mark.server
def test_a_journal_that_does_not_ask_where_it_is_is_noticed(
    monkeypatch: pytest.MonkeyPatch, postgresql: str, tmp_path: Path
) -> None:
    for dialect in ("postgresql", "sqlite"):
        monkeypatch.setitem(load(dialect, JOURNAL), "astray", "SELECT 1 WHERE :first < 0")
    expect_failure(test_restored_journal.test_events_of_another_server_are_not_stepped_over, postgresql)
    expect_failure(test_restored_journal.test_an_older_copy_of_a_file_gives_no_position_twice_unheard, tmp_path)


@pytest.mark.server
@pytest.mark.parametrize("kind", ["loop", "subscription"])
def test_who_speaks_through_a_busy_connection_is_noticed(
    monkeypatch: pytest.MonkeyPatch, postgresql: str, kind: str
) -> None:
    monkeypatch.setattr(PostgresBell, "crowded", lambda self: False)
    if kind == "loop":
        loop = test_left_loops.test_a_loop_over_messages_that_is_left_gives_back_what_it_had
        expect_failure(loop, postgresql, test_left_loops.asyncpg, False)
    else:
        subscription = test_left_loops.test_a_subscription_that_is_left_is_in_nobodys_way
        expect_failure(subscription, postgresql, test_left_loops.asyncpg)


def mutate(monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    sound = scripts.lua

    def mutant(package: str, script: str) -> Script:
        text = sound(package, script).text
        if script != name:
            return sound(package, script)
        assert old in text
        return Script(text.replace(old, new))

    monkeypatch.setattr(scripts, "lua", mutant)


@pytest.mark.server
@pytest.mark.parametrize("test", ["conflict", "gap"])
def test_a_redis_journal_that_does_not_compare_versions_is_noticed(
    monkeypatch: pytest.MonkeyPatch, world: Callable[[str], Database], test: str
) -> None:
    mutate(monkeypatch, "append", "last ~= tonumber(ARGV[1])", "false")
    database = world("redis")
    expect_failure(JOURNAL_TESTS[test], database, test_journal.journal_of(database), f"mutant:{time.time_ns()}")


@pytest.mark.server
@pytest.mark.parametrize(
    ("statement", "old", "new", "test"),
    [
        ("ack", "AND token = :token", "AND token >= :token", test_queue.test_whoever_was_overtaken_cannot_acknowledge),
        (
            "take",
            "AND one.until <= clock_timestamp()",
            "",
            test_queue.test_a_partition_is_in_the_hands_of_one_at_a_time,
        ),
        ("take", "token = one.token + 1,", "", test_queue.test_a_partition_is_in_the_hands_of_one_at_a_time),
        ("release", "AND token = :token", "", test_queue.test_a_partition_is_in_the_hands_of_one_at_a_time),
        (
            "messages",
            "ORDER BY id",
            "ORDER BY id DESC",
            test_queue.test_messages_come_in_order_for_each_key_and_once_they_are_done_never_again,
        ),
    ],
)
def test_mistakes_in_the_queues_sql_are_noticed(
    monkeypatch: pytest.MonkeyPatch, world: Callable[[str], Database], statement: str, old: str, new: str, test: Any
) -> None:
    known = load("postgresql", QUEUE)
    assert old in known[statement]
    monkeypatch.setitem(known, statement, known[statement].replace(old, new))
    expect_failure(test, world("psycopg"), f"mutant:{time.time_ns()}")


@pytest.mark.server
@pytest.mark.parametrize(
    ("script", "old", "new", "test"),
    [
        ("ack", "seen ~= ARGV[2]", "false", test_queue.test_whoever_was_overtaken_cannot_acknowledge),
        ("take", "'-inf', now", "'-inf', '+inf'", test_queue.test_a_partition_is_in_the_hands_of_one_at_a_time),
        (
            "take",
            "'XRANGE', ARGV[1] .. partition, '-', '+'",
            "'XREVRANGE', ARGV[1] .. partition, '+', '-'",
            test_queue.test_a_partition_is_in_the_hands_of_one_at_a_time,
        ),
    ],
)
def test_mistakes_in_the_queues_scripts_are_noticed(
    monkeypatch: pytest.MonkeyPatch, world: Callable[[str], Database], script: str, old: str, new: str, test: Any
) -> None:
    mutate(monkeypatch, script, old, new)
    expect_failure(test, world("redis"), f"mutant:{time.time_ns()}")


def test_a_rebalance_that_does_not_wait_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enter = Member.enter

    def forgetful(self: Member, key: str) -> Any:
        partition, owned = enter(self, key)
        owned.in_hand = 0
        return partition, owned

    monkeypatch.setattr(Member, "enter", forgetful)
    monkeypatch.setattr(test_partition, "PATIENCE", 1.0)
    with holdfast.connect(f"memory://{tmp_path.name}") as locks:
        expect_failure(test_partition.test_a_rebalance_waits_for_what_is_in_hand, locks, "mutant")


def test_a_worker_that_takes_what_is_not_its_own_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Member, "_ours", lambda self, partition, ring: not self._leaving)
    monkeypatch.setattr(test_partition, "PATIENCE", 1.0)
    with holdfast.connect(f"memory://{tmp_path.name}") as locks:
        expect_failure(
            test_partition.test_workers_share_the_partitions_and_take_over_from_one_that_leaves, locks, "mutant"
        )


def test_an_actor_that_appends_wherever_the_end_is_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sound = Journaled._say

    async def careless(self: Journaled, what: Any, *args: Any, **kwargs: Any) -> Any:
        if "expected" in kwargs:
            kwargs["expected"] = None
        return await sound(self, what, *args, **kwargs)

    monkeypatch.setattr(Journaled, "_say", careless)
    import sqlite3

    from holdfast.lockfree import journal, mailbox

    connection = sqlite3.connect(tmp_path / "journal.db", isolation_level=None, check_same_thread=False)
    events = journal.Journal(connection)
    events.create_table()
    expect_failure(
        test_mailbox.test_an_actor_that_was_overtaken_catches_up_and_decides_again, mailbox.Mailboxes, (events, events)
    )
    connection.close()
