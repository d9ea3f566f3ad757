"""Redis behind a link that loses an answer: the client sends again by itself, and what it sent must be done once."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.lockfree import journal, mailbox, partition

from .conftest import SERVER, Database

pytestmark = [SERVER, pytest.mark.parametrize("database", ["redis", "redis-async"], indirect=True)]


class Link:
    """Between client and server; `lose_next()` lets one script reach the server, and not its answer the client."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._meanwhile: Callable[[], object] | None = None
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def lose_next(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """`meanwhile` is done before the client learns that there is no answer."""
        self._meanwhile = meanwhile

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        assert self._server.hostname
        assert self._server.port
        far = self._server.hostname, self._server.port
        with client, socket.create_connection(far) as server, contextlib.suppress(OSError):
            while said := client.recv(65536):
                server.sendall(said)
                answer = server.recv(65536)
                meanwhile = self._meanwhile
                if meanwhile and b"EVALSHA" in said and not answer.startswith(b"-NOSCRIPT"):
                    self._meanwhile = None
                    self.lost += 1
                    meanwhile()
                    return
                client.sendall(answer)


@pytest.fixture
def link(redis_url: str) -> Iterator[Link]:
    made = Link(redis_url)
    yield made
    made.close()


class Far(Database):
    """Its clients send again, as redis-py's do unless they are told otherwise (or made by `from_url`)."""

    def _connect(self, **options: Any) -> Any:
        import redis

        kind: Any = redis.asyncio.Redis if self.asynchronous else redis.Redis
        return kind(host="127.0.0.1", port=urlsplit(self.address).port)


@pytest.fixture
def far(database: Database, link: Link) -> Iterator[Database]:
    made = Far(database.driver, link.url, database.runner)
    yield made
    made.close()


def journal_of(database: Database) -> Any:
    kind: Any = journal.aio.Journal if database.asynchronous else journal.Journal
    return database.use(kind(database.connect()))


def queue_of(database: Database, name: str) -> Any:
    kind: Any = partition.aio.Queue if database.asynchronous else partition.Queue
    return database.use(kind(database.connect(), name, partitions=4))


@pytest.mark.parametrize("expected", [0, None])
@pytest.mark.parametrize("count", [1, 3])
def test_an_event_is_appended_once(
    database: Database, far: Database, link: Link, expected: int | None, count: int
) -> None:
    stream = f"account:{time.time_ns()}"
    events = journal_of(far)
    events.append(f"{stream} known", "the script", expected=0)
    link.lose_next()
    assert events.append(stream, *range(count), expected=expected) == count
    assert link.lost == 1
    near = journal_of(database)
    assert [one.data for one in near.read(stream)] == list(range(count))
    assert [one.data for one in near.subscribe(prefix=stream, timeout=0)] == ["the script", *range(count)]


def test_an_append_whose_answer_is_lost_while_others_append_is_still_ones_own(
    database: Database, far: Database, link: Link
) -> None:
    stream = f"account:{time.time_ns()}"
    events = journal_of(far)
    events.append(f"{stream} known", "the script", expected=0)
    import redis

    near = redis.Redis.from_url(database.address)
    link.lose_next(lambda: journal.Journal(near).append(stream, "theirs", expected=1))
    assert events.append(stream, "mine", expected=0) == 1
    assert [one.data for one in journal.Journal(near).read(stream)] == ["mine", "theirs"]
    near.close()


def test_a_message_is_put_once_even_if_it_is_done_and_gone_before_it_is_sent_again(
    database: Database, far: Database, link: Link
) -> None:
    import redis

    name = f"orders:{time.time_ns()}"
    near = redis.Redis.from_url(database.address)
    consumer = partition.Queue(near, name, partitions=4)
    queue = queue_of(far, name)
    queue.put("a", "the script")
    assert [message.data for message in consumer.consume(timeout=0)] == ["the script"]
    link.lose_next()
    queue.put("a", 1)
    assert consumer.waiting() == 1
    done: list[Any] = []
    link.lose_next(lambda: done.extend(message.data for message in consumer.consume(timeout=0)))
    queue.put("a", 2)
    assert (link.lost, done, consumer.waiting()) == (2, [1, 2], 0)
    queue.put("a", 2)  # the same again is another message
    assert consumer.waiting() == 1
    near.close()


class Account:
    def __init__(self, key: str) -> None:
        self.balance = 0

    def receive(self, cents: int) -> Any:
        return mailbox.Record({"cents": cents}, reply=self.balance + cents)

    def apply(self, event: Any) -> None:
        self.balance += event["cents"]


def test_an_actor_with_a_journal_does_a_message_once(database: Database, far: Database, link: Link) -> None:
    if database.asynchronous:
        return
    prefix = f"account:{time.time_ns()}:"
    events = journal.Journal(far.connect())
    events.append(f"{prefix} known", "the script", expected=0)
    with mailbox.Mailboxes(Account, journal=events, prefix=prefix) as accounts:
        link.lose_next()
        assert accounts.ask("alice", 100) == 100
        assert accounts.ask("alice", 1) == 101
    assert [one.data for one in events.read(f"{prefix}alice")] == [{"cents": 100}, {"cents": 1}]
