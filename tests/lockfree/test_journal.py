"""The journal's promises, on every driver, in threads and in asyncio."""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from typing import Any

import pytest

from holdfast import Conflict, Misuse
from holdfast.lockfree import journal

from .conftest import DRIVERS, Database

NUMBERS = itertools.count(1)

pytestmark = pytest.mark.parametrize("database", DRIVERS, indirect=True)


def journal_of(database: Database, **options: Any) -> Any:
    kind: Any = journal.aio.Journal if database.asynchronous else journal.Journal
    made = database.use(kind(database.connect(), **options))
    made.create_table()
    return made


@pytest.fixture
def events(database: Database) -> Any:
    return journal_of(database)


@pytest.fixture
def stream() -> str:
    """A name that no other test has used: servers are shared."""
    return f"account:{next(NUMBERS)}:ü'\"%s:{time.time_ns()}"


def test_what_was_appended_is_read_in_order_with_versions_from_1(events: Any, stream: str) -> None:
    assert events.version(stream) == 0
    assert events.append(stream, {"opened": "Zoë"}, expected=0) == 1
    assert events.append(stream, {"cents": 10}, ["a", None, 1.5], expected=1) == 3
    read = list(events.read(stream))
    assert [(one.stream, one.version) for one in read] == [(stream, 1), (stream, 2), (stream, 3)]
    assert [one.data for one in read] == [{"opened": "Zoë"}, {"cents": 10}, ["a", None, 1.5]]
    assert [one.version for one in events.read(stream, after=2)] == [3]
    assert events.version(stream) == 3


def test_of_two_appends_at_one_version_one_wins_and_the_other_is_told(events: Any, stream: str) -> None:
    events.append(stream, "first", expected=0)
    with pytest.raises(Conflict, match="is at version 1, not at 0") as told:
        events.append(stream, "second", "third", expected=0)
    assert (told.value.resource, told.value.expected, told.value.found) == (stream, 0, 1)
    assert [one.data for one in events.read(stream)] == ["first"]


@pytest.mark.parametrize("count", [1, 2])
def test_an_append_beyond_the_end_would_leave_a_gap_and_is_refused(events: Any, stream: str, count: int) -> None:
    with pytest.raises(Conflict, match="there never was that version"):
        events.append(stream, *["late"] * count, expected=5)
    assert events.version(stream) == 0


def test_an_append_that_expects_nothing_goes_to_the_end(events: Any, stream: str) -> None:
    assert events.append(stream, 1, expected=None) == 1
    assert events.append(stream, 2, 3, expected=None) == 3
    assert [one.data for one in events.read(stream)] == [1, 2, 3]


def test_a_conflict_crosses_process_pools_whole(events: Any, stream: str) -> None:
    with pytest.raises(Conflict) as told:
        events.append(stream, 1, expected=7)
    again = pickle.loads(pickle.dumps(told.value))
    assert (again.resource, again.expected, again.found) == (stream, 7, 0)


def test_long_streams_are_read_whole(events: Any, stream: str) -> None:
    for start in range(0, 1100, 100):
        events.append(stream, *range(start, start + 100), expected=start)
    assert [one.data for one in events.read(stream)] == list(range(1100))
    assert events.replay(stream, lambda total, one: total + one, 0) == (sum(range(1100)), 1100)


def test_a_replay_begins_at_the_last_snapshot(events: Any, stream: str) -> None:
    applied: list[int] = []

    def apply(total: int, one: int) -> int:
        applied.append(one)
        return total + one

    events.append(stream, 1, 2, 3, expected=0)
    events.snapshot(stream, 2, 3)
    assert events.replay(stream, apply, 0) == (6, 3)
    assert applied == [3]
    events.snapshot(stream, 1, 1)  # older: it changes nothing
    applied.clear()
    assert events.replay(stream, apply, 0) == (6, 3)
    assert applied == [3]


def test_a_snapshot_of_what_has_not_happened_is_refused(events: Any, stream: str) -> None:
    with pytest.raises(Conflict):
        events.snapshot(stream, 1, "future")
    assert events.replay(stream, lambda state, _: state, "initial") == ("initial", 0)


def test_a_subscription_gives_all_in_order_goes_on_from_a_position_and_ends_in_time(events: Any, stream: str) -> None:
    events.append(stream + "a", 1, 2, expected=0)
    events.append(stream + "b", 3, expected=0)
    events.append("else" + stream, "not ours", expected=0)
    events.append(stream + "a", 4, expected=2)
    started = time.monotonic()
    seen = list(events.subscribe(prefix=stream, timeout=0.2))
    assert [(one.stream[-1], one.version, one.data) for one in seen] == [
        ("a", 1, 1),
        ("a", 2, 2),
        ("b", 1, 3),
        ("a", 3, 4),
    ]
    assert time.monotonic() - started >= 0.2
    rest = list(events.subscribe(after=seen[1].position, prefix=stream, timeout=0))
    assert [one.data for one in rest] == [3, 4]
    assert next(iter(events.read(stream + "a", after=2))).position == seen[3].position


def test_a_subscription_is_woken_by_what_comes(database: Database, events: Any, stream: str) -> None:
    other = Database(database.driver.replace("-async", ""), database.address, database.runner)
    if database.driver in ("aiosqlite", "asyncpg"):
        other = Database(
            {"aiosqlite": "sqlite3", "asyncpg": "psycopg"}[database.driver], database.address, other.runner
        )
    events.append(stream, "before", expected=0)
    heard = events.subscribe(prefix=stream, timeout=20)
    assert next(heard).data == "before"

    def write() -> None:
        journal.Journal(
            other.connect(check_same_thread=False) if other.driver == "sqlite3" else other.connect()
        ).append(stream, "later", expected=1)

    writer = threading.Timer(0.3, write)
    writer.start()
    assert next(heard).data == "later"
    writer.join()
    heard.close()
    other.close()


NAN = float("nan")
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "bad", [object(), {1, 2}, NAN, b"bytes", CIRCLE], ids=["object", "set", "nan", "bytes", "circle"]
)
def test_an_event_that_cannot_be_written_down_is_refused_and_nothing_is_appended(
    events: Any, stream: str, bad: object
) -> None:
    with pytest.raises(Misuse, match=r"event 2 for .* cannot be written down"):
        events.append(stream, "good", bad, expected=0)
    assert events.version(stream) == 0


def test_an_event_over_the_limit_is_refused(database: Database, stream: str) -> None:
    events = journal_of(database, max_bytes=100)
    with pytest.raises(Misuse, match=r"has 105 bytes, and 100 are allowed"):
        events.append(stream, "x" * 103, expected=0)
    assert events.append(stream, "x" * 98, expected=0) == 1
    with pytest.raises(Misuse, match="bytes"):
        events.snapshot(stream, 1, "x" * 103)


@pytest.mark.parametrize("expected", [-1, 1.0, True, "1", 2**60, -(10**40)])
def test_a_version_that_cannot_be_one_is_refused(events: Any, stream: str, expected: Any) -> None:
    with pytest.raises(Misuse, match="the expected version must be"):
        events.append(stream, 1, expected=expected)
    with pytest.raises(Misuse):
        list(events.read(stream, after=expected))


@pytest.mark.parametrize("name", ["", "x" * 513, "a\0b", 5])
def test_a_stream_needs_a_name(events: Any, name: Any) -> None:
    with pytest.raises(Misuse, match="stream"):
        events.append(name, 1, expected=0)
    with pytest.raises(Misuse, match="stream"):
        events.version(name)


def test_nothing_and_far_too_much_are_no_append(events: Any, stream: str) -> None:
    with pytest.raises(Misuse, match="nothing to append"):
        events.append(stream, expected=0)
    with pytest.raises(Misuse, match="1001 events at once"):
        events.append(stream, *range(1001), expected=0)
    with pytest.raises(Misuse, match="is no position of this journal"):
        next(iter(events.subscribe(after="yesterday", timeout=0)), None)


def test_text_with_every_kind_of_letter_comes_back_as_it_was(events: Any, stream: str) -> None:
    odd = ["\0", "\ud800", "💣", "\u2028", "%s :name {slot} \\:", "'; DROP TABLE holdfast_journal"]
    events.append(stream, *odd, expected=0)
    assert [one.data for one in events.read(stream)] == odd


def test_a_connection_of_the_other_world_is_refused_at_once(database: Database) -> None:
    wrong: Any = journal.Journal if database.asynchronous else journal.aio.Journal
    with pytest.raises(Misuse, match=r"for (threads|asyncio)"):
        wrong(database.connect())


def test_threads_that_race_leave_no_gap_and_lose_nothing(database: Database, events: Any, stream: str) -> None:
    """Each counts up from what it read: with 4 at once, most appends meet a conflict, and none is lost."""
    if database.asynchronous:
        return  # the same statements as in threads
    done: list[int] = []

    def work() -> None:
        connection = Database(database.driver, database.address, database.runner).connect()
        mine = journal.Journal(connection)
        for _ in range(15):
            while True:
                total, version = mine.replay(stream, lambda _, one: one, 0)
                try:
                    mine.append(stream, total + 1, expected=version)
                except Conflict:
                    continue
                done.append(total + 1)
                break
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == list(range(1, 61))
    assert [one.data for one in events.read(stream)] == list(range(1, 61))


def test_an_append_in_an_open_transaction_is_the_users_to_commit(database: Database, events: Any, stream: str) -> None:
    if database.driver not in ("sqlite3", "psycopg"):
        return  # one driver a database
    connection = database.connect()
    mine = journal.Journal(connection)
    connection.execute("BEGIN")
    mine.append(stream, "undone", expected=0)
    assert mine.version(stream) == 1
    connection.execute("ROLLBACK")
    assert events.version(stream) == 0
    connection.execute("BEGIN")
    mine.append(stream, "done", expected=0)
    with pytest.raises(Conflict):
        mine.append(stream, "not done", expected=0)  # it does not break the transaction
    connection.execute("COMMIT")
    assert [one.data for one in events.read(stream)] == ["done"]


def test_without_autocommit_an_append_still_commits_by_itself(database: Database, events: Any, stream: str) -> None:
    if database.driver not in ("sqlite3", "psycopg"):
        return  # one driver a database
    options: Any = {"isolation_level": "DEFERRED"} if database.driver == "sqlite3" else {"autocommit": False}
    mine = journal.Journal(database.connect(**options))
    mine.append(stream, 1, expected=0)
    assert mine.version(stream) == events.version(stream) == 1
    assert [one.data for one in mine.subscribe(prefix=stream, timeout=0.05)] == [1]


def test_without_a_table_it_says_so(database: Database, tmp_path: Any) -> None:
    if database.driver != "sqlite3":
        return  # the others share a server
    import sqlite3

    connection = sqlite3.connect(tmp_path / "empty.db")
    with pytest.raises(Misuse, match=r"create_table\(\)"):
        journal.Journal(connection).append("x", 1, expected=0)
    connection.close()


@pytest.mark.parametrize("count", [1, 3])
def test_a_subscription_gives_one_streams_events_in_order_whoever_began_first(
    database: Database, events: Any, stream: str, count: int
) -> None:
    """A transaction that has done something before, of whatever kind, is older than what it appends to."""
    if database.driver not in ("psycopg", "psycopg-async", "asyncpg"):
        return  # elsewhere no two writers are at work at once
    connection = database.connect()
    mine = database.use(type(getattr(events, "inner", events))(connection))
    older = database.use(connection)
    older.execute("BEGIN")
    older.execute("SELECT pg_current_xact_id()")
    events.append(stream, *["by the younger"] * count, expected=0)
    mine.append(stream, *["by the older"] * count, expected=count)
    assert list(events.subscribe(prefix=stream, timeout=0)) == []
    older.execute("COMMIT")
    heard = events.subscribe(prefix=stream, timeout=20)
    found = [next(heard) for _ in range(2 * count)]
    heard.close()
    assert [one.version for one in found] == list(range(1, 2 * count + 1))
    # And whoever goes on from one of them misses none.
    rest = events.subscribe(after=found[0].position, prefix=stream, timeout=0)
    assert [one.version for one in rest] == list(range(2, 2 * count + 1))


def test_in_a_pipeline_of_psycopg_a_lost_event_is_told(database: Database, events: Any, stream: str) -> None:
    """There a row count is -1, which is neither one nor none, until the answers are asked for."""
    if database.driver not in ("psycopg", "psycopg-async"):
        return
    connection = database.connect()
    mine = type(getattr(events, "inner", events))(connection)
    events.append(stream, "first", expected=0)
    if database.driver == "psycopg":
        with connection.pipeline():
            with pytest.raises(Conflict):
                mine.append(stream, "lost", expected=0)
            assert mine.append(stream, "second", expected=1) == 2
    else:

        async def work() -> None:
            async with connection.pipeline():
                with pytest.raises(Conflict):
                    await mine.append(stream, "lost", expected=0)
                assert await mine.append(stream, "second", expected=1) == 2

        database.runner.run(work())
    assert [one.data for one in events.read(stream)] == ["first", "second"]


def test_an_event_that_commits_late_is_not_stepped_over(database: Database, events: Any, stream: str) -> None:
    """By a sequence alone, the subscriber would be past the first when it appears: an event lost without a trace."""
    if database.driver == "psycopg":
        slow, fast = database.connect(), database.connect()
        slow.execute("BEGIN")
        journal.Journal(slow).append(stream + "slow", "began first", expected=0)
        journal.Journal(fast).append(stream + "fast", "committed first", expected=0)
        early = list(events.subscribe(prefix=stream, timeout=0))
        assert early == []  # not before it is certain that nothing comes before
        naive = "SELECT data FROM holdfast_journal WHERE starts_with(stream, %s) ORDER BY seq"
        assert len(fast.execute(naive, (stream,)).fetchall()) == 1  # this one would have taken it, and gone on
        slow.execute("COMMIT")
        heard = events.subscribe(prefix=stream, timeout=20)
        assert [next(heard).data, next(heard).data] == ["began first", "committed first"]
        heard.close()
