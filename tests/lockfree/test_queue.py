"""Queues on PostgreSQL and Redis: in order for each key, at least once, and acknowledged under a token."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from holdfast import Misuse, StaleToken, fenced
from holdfast.lockfree import partition

from .conftest import SERVER, Database

NUMBERS = itertools.count(1)
TTL = 0.4

pytestmark = [
    SERVER,
    pytest.mark.parametrize("database", ["psycopg", "psycopg-async", "asyncpg", "redis", "redis-async"], indirect=True),
]


@pytest.fixture
def name() -> str:
    return f"orders:{{{next(NUMBERS)}}}:ü:{time.time_ns()}"


def queue_of(database: Database, name: str, **options: Any) -> Any:
    kind: Any = partition.aio.Queue if database.asynchronous else partition.Queue
    made = database.use(kind(database.connect(), name, **{"partitions": 4, **options}))
    made.create_table()
    return made


def test_messages_come_in_order_for_each_key_and_once_they_are_done_never_again(database: Database, name: str) -> None:
    queue = queue_of(database, name)
    for number in range(30):
        queue.put("abc"[number % 3], {"number": number})
    assert queue.waiting() == 30
    seen: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for message in queue.consume(timeout=0):
        seen[message.key].append(message.data["number"])
    assert seen == {key: list(range(start, 30, 3)) for start, key in enumerate("abc")}
    assert queue.waiting() == 0
    assert queue.take() is None


def test_a_partition_is_in_the_hands_of_one_at_a_time(database: Database, name: str) -> None:
    one, two = queue_of(database, name, partitions=1), queue_of(database, name, partitions=1)
    for number in range(3):
        one.put("a", number)
    batch = one.take()
    assert [message.data for message in batch.messages] == [0, 1, 2]
    assert two.take() is None
    assert one.ack(batch, batch.messages[0]) is True
    assert one.ack(batch, batch.messages[0]) is False
    assert one.release(batch) is True
    again = two.take()
    assert [message.data for message in again.messages] == [1, 2]
    assert again.token > batch.token
    assert one.release(batch) is False


def test_whoever_was_overtaken_cannot_acknowledge(database: Database, name: str) -> None:
    slow, fast = queue_of(database, name, partitions=1, ttl=TTL), queue_of(database, name, partitions=1, ttl=30)
    slow.put("a", 1)
    late = slow.take()
    give_up = time.monotonic() + 20
    while (batch := fast.take(timeout=5)) is None:  # as soon as the lease of the slow one is over
        assert time.monotonic() < give_up
    assert [message.data for message in batch.messages] == [1]  # again: at least once
    with pytest.raises(StaleToken, match="somebody else was given") as told:
        slow.ack(late, late.messages[0])
    assert (told.value.seen, told.value.presented) == (batch.token, late.token)
    assert fast.waiting() == 1
    assert fast.ack(batch, batch.messages[0])


def test_a_late_lease_that_nobody_took_is_still_good(database: Database, name: str) -> None:
    queue = queue_of(database, name, ttl=0.1)
    queue.put("a", 1)
    batch = queue.take()
    time.sleep(0.15)
    assert queue.ack(batch, batch.messages[0])


def test_a_batch_is_a_ticket_for_fenced_storage(database: Database, name: str) -> None:
    queue = queue_of(database, name, partitions=1)
    storage: fenced.Memory[int] = fenced.Memory()
    queue.put("a", 1)
    first = queue.take()
    storage.write(first.messages[0].ticket, 1)
    queue.release(first)
    second = queue.take()
    storage.write((second.name, second.token), 2)
    with pytest.raises(StaleToken):
        storage.write(first.messages[0].ticket, 3)


def test_what_a_loop_leaves_by_an_error_comes_again(database: Database, name: str) -> None:
    queue = queue_of(database, name, partitions=1)
    for number in range(3):
        queue.put("a", number)
    messages = queue.consume(timeout=0)
    assert next(messages).data == 0
    assert next(messages).data == 1  # the first is acknowledged by now
    messages.close()
    assert [message.data for message in queue.consume(timeout=0)] == [1, 2]


def test_a_taker_is_woken_by_what_comes(database: Database, name: str) -> None:
    queue = queue_of(database, name)
    blocking = {"psycopg-async": "psycopg", "asyncpg": "psycopg", "redis-async": "redis"}
    other = Database(blocking.get(database.driver, database.driver), database.address, database.runner)
    writer = threading.Timer(0.2, lambda: partition.Queue(other.connect(), name, partitions=4).put("a", "late"))
    writer.start()
    started = time.monotonic()
    batch = queue.take(timeout=20)
    assert batch.messages[0].data == "late"
    assert time.monotonic() - started < 10
    writer.join()
    other.close()
    started = time.monotonic()
    assert queue.take(timeout=0.1) is None
    assert time.monotonic() - started >= 0.1


def test_consumers_at_once_lose_nothing_and_keep_the_order(database: Database, name: str) -> None:
    if database.asynchronous:
        return  # the same statements as in threads
    queue = queue_of(database, name, partitions=8)
    for number in range(200):
        queue.put(f"key{number % 20}", number)
    seen: list[tuple[str, int]] = []

    def work() -> None:
        mine = Database(database.driver, database.address, database.runner)
        for message in partition.Queue(mine.connect(), name, partitions=8).consume(timeout=0):
            seen.append((message.key, message.data))  # noqa: PERF401
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(number for _, number in seen) == list(range(200))
    for key in range(20):
        assert [number for who, number in seen if who == f"key{key}"] == list(range(key, 200, 20))


@pytest.mark.parametrize("first", ["put", "take"])
def test_whoever_counts_partitions_otherwise_is_refused_so_that_no_key_is_in_two_hands(
    database: Database, name: str, first: str
) -> None:
    old, new = queue_of(database, name, partitions=64), queue_of(database, name, partitions=32)
    old.put("a", 1)
    batch = old.take()
    for _ in range(2):
        with pytest.raises(Misuse, match="has 64 partitions, and this one counts 32"):
            new.put("a", 2) if first == "put" else new.take()
    assert old.waiting() == 1
    assert old.ack(batch, batch.messages[0]) is True
    old.put("a", 3)
    assert queue_of(database, name, partitions=64).waiting() == 1
    with pytest.raises(Misuse, match="has 64 partitions"):
        new.take()


def test_a_count_that_was_rolled_back_binds_nobody(database: Database, name: str) -> None:
    if database.driver != "psycopg":
        return
    connection = database.connect()
    undone = partition.Queue(connection, name, partitions=64)
    with pytest.raises(ZeroDivisionError), connection.transaction():
        undone.put("a", 1)
        undone.put("a", 2)
        raise ZeroDivisionError
    queue_of(database, name, partitions=32).put("a", 3)
    with pytest.raises(Misuse, match="has 32 partitions, and this one counts 64"):
        undone.put("a", 4)


@pytest.mark.parametrize(
    "options", [{"partitions": 0}, {"ttl": 0}, {"max_bytes": 0}, {"name": ""}, {"name": "x" * 512}]
)
def test_a_queue_that_makes_no_sense_is_refused(database: Database, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        queue_of(database, **{"name": name, **options})


def test_messages_that_make_no_sense_are_refused_and_nothing_is_put(database: Database, name: str) -> None:
    queue = queue_of(database, name, max_bytes=50)
    for key, data in (("", 1), ("a", object()), ("a", float("nan")), ("a", "x" * 60)):
        with pytest.raises(Misuse):
            queue.put(key, data)
    with pytest.raises(Misuse):
        queue.take(0)
    assert queue.waiting() == 0
    queue.put("a", 1)
    queue.put("a", 2)
    batch = queue.take()
    other = queue_of(database, name + "2")
    with pytest.raises(Misuse, match="a batch that was taken from"):
        other.ack(batch, batch.messages[0])
    queue.release(batch)
    again = queue.take()
    with pytest.raises(Misuse, match="not taken in that batch"):
        queue.ack(again, batch.messages[0])


def test_what_a_message_changed_and_that_it_is_done_can_be_one_transaction(database: Database, name: str) -> None:
    if database.driver != "psycopg":
        return
    connection = database.connect()
    queue = partition.Queue(connection, name, partitions=1)
    queue.create_table()
    connection.execute("CREATE TABLE IF NOT EXISTS effects (name text, number int)")
    queue.put("a", 1)
    batch = queue.take()
    assert batch
    with pytest.raises(ZeroDivisionError), connection.transaction():
        connection.execute("INSERT INTO effects VALUES (%s, 1)", (name,))
        queue.ack(batch, batch.messages[0])
        raise ZeroDivisionError
    assert queue.waiting() == 1
    with connection.transaction():
        connection.execute("INSERT INTO effects VALUES (%s, 1)", (name,))
        queue.ack(batch, batch.messages[0])
    assert queue.waiting() == 0
    row = connection.execute("SELECT count(*) FROM effects WHERE name = %s", (name,)).fetchone()
    assert row == (1,)
    with connection.transaction(), pytest.raises(Misuse, match="a transaction is open"):
        queue.take()


def test_the_other_world_and_other_databases_are_refused(database: Database, name: str) -> None:
    wrong: Any = partition.Queue if database.asynchronous else partition.aio.Queue
    with pytest.raises(Misuse, match=r"for (threads|asyncio)"):
        wrong(database.connect(), name)
    import sqlite3

    connection = sqlite3.connect(":memory:")
    with pytest.raises(Misuse, match="PostgreSQL or Redis, not in sqlite"):
        partition.Queue(connection, name)
    connection.close()
