"""Actors in another process: messages through a queue, handled by whoever has the partition."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import GaveUp, HoldfastError, Misuse
from holdfast.drivers.base import finish
from holdfast.lockfree import mailbox, partition

from .conftest import SERVER, Database
from .test_mailbox import Counter

pytestmark = [SERVER, pytest.mark.parametrize("database", ["psycopg", "redis"], indirect=True)]

_SERVER = """
import sys
from holdfast.lockfree import mailbox, partition
from tests.lockfree.conftest import Database
from tests.lockfree.test_mailbox import Counter
driver, address, name = sys.argv[1:]
queue = partition.Queue(Database(driver, address, None).connect(), name, partitions=4, ttl=2)
print("ready", flush=True)
mailbox.serve(queue, mailbox.Mailboxes(Counter, on_failure=lambda *_: None))
"""


class Hostile(Counter):
    """Says what cannot be written down."""

    def receive(self, message: Any) -> Any:
        odd: dict[Any, Any] = {"nan": float("nan"), "set": {1}, "long": "x" * 2_000_000, "well": "well"}
        return odd[message] if message in odd else super().receive(message)


@pytest.fixture
def queue(database: Database) -> partition.Queue:
    made = partition.Queue(database.connect(), f"post:{time.time_ns()}", partitions=4, ttl=2)
    made.create_table()
    return made


@pytest.fixture
def server(database: Database, queue: partition.Queue) -> Iterator[Any]:
    command = [sys.executable, "-c", _SERVER, database.driver, database.address, queue._line.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_an_actor_in_another_process_is_told_and_asked(queue: partition.Queue, server: Any) -> None:
    post = mailbox.Post(queue)
    post.tell("a", 5)
    assert post.ask("a", 1) == 6
    assert post.ask("b", 1) == 1
    with pytest.raises(HoldfastError, match="in another process, failed: RuntimeError: a could not"):
        post.ask("a", "fail")
    assert post.ask("a", 2) == 2  # it began anew
    deadline = time.monotonic() + 10
    while queue.waiting():  # the last is answered a moment before it is acknowledged
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_ask_that_nobody_handles_in_time_is_withdrawn(database: Database, queue: partition.Queue) -> None:
    post = mailbox.Post(queue)
    with pytest.raises(TimeoutError):
        post.ask("a", 100, timeout=0.05)
    post.tell("a", 1)
    with mailbox.Mailboxes(Counter) as boxes:
        assert mailbox.serve(queue, boxes, timeout=0) == 2
        assert boxes.ask("a", 0) == 1
    with pytest.raises(Misuse, match="needs a timeout"):
        post.ask("a", 1, timeout=None)  # type: ignore[arg-type]


def foreign(name: str) -> list[Any]:
    """Nobody's letters; the last ones would have the answer put elsewhere."""
    letter = {"message": 1, "reply_to": "", "until": 0.0}
    elsewhere = [
        5,
        ["x"],
        name,
        f"{name}/reply/",
        f"{name}/reply/{'g' * 16}",
        "/reply/0123456789abcdef",
        "other",
        "x" * 5000,
    ]
    shapes: list[Any] = ["no letter", None, 7, [], {}, {**letter, "until": "soon"}, {**letter, "until": 10**400}]
    return [*shapes, *({**letter, "until": time.time() + 60, "reply_to": to} for to in elsewhere)]


def test_a_letter_of_nobodys_does_not_end_the_serving_of_all(database: Database, queue: partition.Queue) -> None:
    """It would come again, wherever the queue is served next, and end that too."""
    failed: list[Any] = []
    letters = foreign(queue._line.name)
    for one in letters:
        queue.put("a", one)
    mailbox.Post(queue).tell("a", 1)
    with mailbox.Mailboxes(Counter, on_failure=lambda *told: failed.append(told)) as boxes:
        assert mailbox.serve(queue, boxes, timeout=0) == len(letters) + 1
        assert boxes.ask("a", 0) == 1
    assert [(key, data, type(error)) for key, data, error in failed] == [("a", one, Misuse) for one in letters]
    assert queue.waiting() == 0


def test_nor_does_an_answer_that_cannot_be_written_down(database: Database, queue: partition.Queue) -> None:
    def serve() -> None:
        mine = Database(database.driver, database.address, database.runner)
        with mailbox.Mailboxes(Hostile) as boxes:
            mailbox.serve(partition.Queue(mine.connect(), queue._line.name, partitions=4, ttl=2), boxes, timeout=2)
        mine.close()

    serving = threading.Thread(target=serve)
    serving.start()
    post = mailbox.Post(queue)
    for message in ("nan", "set", "long"):
        with pytest.raises(HoldfastError, match="in another process, failed: Misuse"):
            post.ask("a", message)
    assert post.ask("a", "well") == "well"
    serving.join(30)
    assert not serving.is_alive()


def test_in_asyncio_with_the_same_names(database: Database, queue: partition.Queue) -> None:
    name = queue._line.name

    async def main() -> None:
        other = Database(f"{database.driver}-async", database.address, database.runner)
        connections = [await _connect(other) for _ in range(2)]
        asking, serving = (partition.aio.Queue(one, name, partitions=4, ttl=2) for one in connections)
        async with mailbox.aio.Mailboxes(Hostile, on_failure=lambda *_: None) as boxes:
            task = asyncio.ensure_future(mailbox.aio.serve(serving, boxes, timeout=1))
            post = mailbox.aio.Post(asking)
            await post.tell("a", 5)
            assert await post.ask("a", 1) == 6
            with pytest.raises(HoldfastError, match="RuntimeError"):
                await post.ask("a", "fail")
            await asking.put("a", "no letter")
            with pytest.raises(HoldfastError, match="failed: Misuse"):
                await post.ask("a", "nan")
            assert await task == 5
        for one in connections:
            await (one.aclose() if hasattr(one, "aclose") else one.close())

    asyncio.run(main())


async def _connect(database: Database) -> Any:
    if database.driver == "psycopg-async":
        import psycopg

        return await psycopg.AsyncConnection.connect(database.address, autocommit=True)
    return database._connect()


def test_each_asker_gets_its_own_answer(database: Database, queue: partition.Queue, server: Any) -> None:
    found: list[Any] = []

    def ask(key: str) -> None:
        mine = Database(database.driver, database.address, database.runner)
        post = mailbox.Post(partition.Queue(mine.connect(), queue._line.name, partitions=4, ttl=2))
        found.append((key, [post.ask(key, 1) for _ in range(5)]))
        mine.close()

    threads = [threading.Thread(target=ask, args=(key,)) for key in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [(key, [1, 2, 3, 4, 5]) for key in "abc"]


class Ailing(Counter):
    """Fails at everything while its database is away."""

    down = True

    def receive(self, message: Any) -> Any:
        if self.down:
            raise RuntimeError("the database is away")
        return super().receive(message)


@pytest.fixture
def ailing(monkeypatch: pytest.MonkeyPatch) -> type[Ailing]:
    monkeypatch.setattr(Ailing, "down", True)
    return Ailing


def only_partition(database: Database, name: str, asynchronous: bool = False, ttl: float = 1.0) -> Any:
    kind: Any = partition.aio.Queue if asynchronous else partition.Queue
    return kind(database.connect(), name, partitions=1, ttl=ttl)


def test_messages_of_a_key_that_was_given_up_stay_in_the_queue(database: Database, ailing: type[Ailing]) -> None:
    name = f"post:{time.time_ns()}"
    queue = only_partition(database, name)
    queue.create_table()
    for number in range(10):
        mailbox.Post(queue).tell("a", number)
    failed: list[Any] = []
    with mailbox.Mailboxes(ailing, restarts=2, on_failure=lambda key, message, error: failed.append(message)) as boxes:
        assert mailbox.serve(queue, boxes, timeout=0) == 3  # failed at, told of, and so acknowledged
        assert (failed, queue.waiting()) == ([0, 1, 2], 7)
        ailing.down = False
        assert boxes.revive("a")
        assert mailbox.serve(queue, boxes, timeout=4) >= 7  # after the ttl, and in order
        assert boxes.ask("a", 0) == sum(range(3, 10))
    assert queue.waiting() == 0


def test_messages_of_keys_that_are_too_many_stay_in_the_queue(database: Database) -> None:
    queue = only_partition(database, f"post:{time.time_ns()}")
    queue.create_table()
    for number in range(5):
        mailbox.Post(queue).tell(f"k{number}", 1)
    with mailbox.Mailboxes(Counter, most_keys=2) as boxes:
        assert mailbox.serve(queue, boxes, timeout=0) == 2
        assert queue.waiting() == 3
    with mailbox.Mailboxes(Counter) as boxes:
        assert mailbox.serve(queue, boxes, timeout=4) == 3


def test_whoever_asks_is_told_that_the_key_was_given_up(database: Database, ailing: type[Ailing]) -> None:
    name = f"post:{time.time_ns()}"
    queue = only_partition(database, name)
    queue.create_table()
    mailbox.Post(queue).tell("a", 1)
    with mailbox.Mailboxes(ailing, restarts=0, on_failure=lambda *_: None) as boxes:
        assert mailbox.serve(queue, boxes, timeout=0) == 1
        thread = threading.Thread(target=mailbox.serve, args=(queue, boxes), kwargs={"timeout": 3})
        thread.start()
        mine = Database(database.driver, database.address, database.runner)
        with pytest.raises(HoldfastError, match="GaveUp"):
            mailbox.Post(only_partition(mine, name)).ask("a", 1)
        mine.close()
        thread.join(60)
    assert queue.waiting() == 0


def test_closed_mailboxes_take_nothing_from_the_queue(database: Database) -> None:
    queue = only_partition(database, f"post:{time.time_ns()}")
    queue.create_table()
    mailbox.Post(queue).tell("a", 1)
    boxes = mailbox.Mailboxes(Counter)
    boxes.close()
    with pytest.raises(Misuse, match="closed"):
        mailbox.serve(queue, boxes, timeout=0)
    assert queue.waiting() == 1
    assert queue.take() is not None  # given back


def test_in_asyncio_nothing_that_nobody_handled_is_acknowledged_either(
    database: Database, ailing: type[Ailing]
) -> None:
    name = f"post:{time.time_ns()}"
    only_partition(database, name).create_table()

    class Asking(Counter):
        """Its own failure looks like a refusal, and is none: it has begun."""

        def receive(self, message: Any) -> Any:
            raise GaveUp("of another actor")

    async def main() -> None:
        other = Database(f"{database.driver}-async", database.address, database.runner)
        connection = await _connect(other)
        queue = partition.aio.Queue(connection, name, partitions=1, ttl=1)
        for number in range(10):
            await mailbox.aio.Post(queue).tell("a", number)
        async with mailbox.aio.Mailboxes(ailing, restarts=2, on_failure=lambda *_: None) as boxes:
            assert await mailbox.aio.serve(queue, boxes, timeout=0) == 3
            assert await queue.waiting() == 7
        async with mailbox.aio.Mailboxes(Asking, restarts=100, on_failure=lambda *_: None) as boxes:
            assert await mailbox.aio.serve(queue, boxes, timeout=4) == 7
        await mailbox.aio.Post(queue).tell("a", 1)
        with pytest.raises(Misuse, match="closed"):
            await mailbox.aio.serve(queue, boxes, timeout=0)
        await (connection.aclose() if hasattr(connection, "aclose") else connection.close())

    asyncio.run(main())


def test_an_answer_that_nobody_takes_goes_by_itself_and_messages_do_not(
    database: Database, queue: partition.Queue
) -> None:
    """Who asked was killed, say. (PostgreSQL keeps two rows of it.)"""
    if database.driver != "redis":
        return
    client: Any = database.connect()
    before, now = set(client.keys()), client.keys
    finish(queue._line.replies(f"{queue._line.name}/reply/{'0' * 16}").put("a", {"answer": 1}))
    left = {key: client.pttl(key) for key in now() if key not in before}
    assert len(left) == 5
    assert all(0 < ttl <= 86_400_000 for ttl in left.values()), left
    before |= set(left)
    queue.put("a", 1)
    kept = [key for key in now() if key not in before and b":sent:" not in key]
    assert len(kept) == 4
    assert {client.pttl(key) for key in kept} == {-1}
