"""What partition, journal and mailbox cost, against the bare thing, in one run."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.lockfree import journal, mailbox, partition
from holdfast.testing import servers

from .measure import Verdict, interleaved, ratio, report

LOOKUP_BAR, APPEND_BAR, MAILBOX_BAR = 5.0, 1.3, 0.5
EVENT = {"type": "deposited", "cents": 1000, "by": "customer:42"}
MESSAGES = 20_000


def lookup() -> Verdict:
    """Among 100 workers, each key looked up before, as most are."""
    ring = partition.Ring(f"worker-{number}" for number in range(100))
    keys = [f"customer:{number}" for number in range(1000)]
    known = {key: ring.owner(key) for key in keys}
    owner = ring.owner

    def ours() -> None:
        for key in keys:
            owner(key)

    def floor() -> None:
        for key in keys:
            known[key]

    tasks = {"ours": ours, "floor": floor}
    taken = interleaved(tasks, rounds=5, batch=20)
    fresh = partition.Ring(f"worker-{number}" for number in range(100))
    start = time.perf_counter()
    for key in keys[:200]:
        fresh.owner(key)
    first = (time.perf_counter() - start) / 200
    detail = f"{taken['ours'] * 1e6:.0f} ns against {taken['floor'] * 1e6:.0f} ns; the first time {first * 1e6:.0f} µs"
    return Verdict(
        "cached partition lookup, 100 workers / dict lookup",
        ratio(tasks, "ours", "floor", rounds=60, batch=10),
        LOOKUP_BAR,
        detail=detail,
    )


def append(what: str, ours: Callable[[], object], floor: Callable[[], object], **often: int) -> Verdict:
    tasks = {"ours": ours, "floor": floor}
    taken = interleaved(tasks, rounds=5, batch=20)
    detail = f"{taken['ours'] * 1e6:.0f} µs against {taken['floor'] * 1e6:.0f} µs"
    return Verdict(
        f"{what}: journal append / bare INSERT", ratio(tasks, "ours", "floor", **often), APPEND_BAR, detail=detail
    )


class Appending:
    """The next event, at the version that the last one left."""

    def __init__(self, events: journal.Journal) -> None:
        self._events = events
        self._version = 0

    def __call__(self) -> None:
        self._version = self._events.append("account:42", EVENT, expected=self._version)


class Inserting:
    """The same event into the same table, by json.dumps and a plain INSERT of a row that is known to be new."""

    def __init__(self, execute: Callable[[str, tuple[object, ...]], Any], statement: str) -> None:
        self._execute = execute
        self._statement = statement
        self._version = 0

    def __call__(self) -> None:
        self._version += 1
        self._execute(self._statement, ("account:43", self._version, json.dumps(EVENT)))


def sqlite(folder: Path) -> Verdict:
    """As an application has it: write-ahead logging, everything flushed at commit."""
    db = sqlite3.connect(folder / "journal.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    events = journal.Journal(db)
    events.create_table()
    floor = Inserting(db.execute, "INSERT INTO holdfast_journal (stream, version, data) VALUES (?, ?, ?)")
    measured = append("sqlite3", Appending(events), floor, rounds=150, batch=5)
    db.close()
    return measured


def postgresql(url: str) -> Verdict:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        events = journal.Journal(db)
        events.create_table()
        floor = Inserting(db.execute, "INSERT INTO holdfast_journal (stream, version, data) VALUES (%s, %s, %s)")
        return append("psycopg", Appending(events), floor, rounds=150, batch=5)


def redis(url: str) -> Verdict:
    """Against a bare XADD to one stream; ours compares the version and writes the log of all streams as well."""
    import redis

    client: Any = redis.Redis.from_url(url)
    measured = append(
        "Redis",
        Appending(journal.Journal(client)),
        lambda: client.xadd("bare", {"d": json.dumps(EVENT)}),
        rounds=60,
        batch=50,
    )
    client.close()
    return measured._replace(what="Redis: journal append / bare XADD", bar=2.0)


def mailboxes() -> Verdict:
    """Messages a second: told to an actor, against put into an asyncio.Queue that another task gets them from."""

    class Counter:
        def __init__(self, key: str) -> None:
            self.count = 0

        def receive(self, message: int) -> None:
            self.count += 1

    async def ours() -> float:
        async with mailbox.aio.Mailboxes(Counter) as boxes:
            start = time.perf_counter()
            for number in range(MESSAGES):
                await boxes.tell("a", number)
            await boxes.close()
            return MESSAGES / (time.perf_counter() - start)

    async def floor() -> float:
        queue: asyncio.Queue[int | None] = asyncio.Queue(1000)
        counter = Counter("a")

        async def consume() -> None:
            while (message := await queue.get()) is not None:
                counter.receive(message)

        consumer = asyncio.ensure_future(consume())
        start = time.perf_counter()
        for number in range(MESSAGES):
            await queue.put(number)
        await queue.put(None)
        await consumer
        return MESSAGES / (time.perf_counter() - start)

    pairs = [(asyncio.run(ours()), asyncio.run(floor())) for _ in range(15)]
    rates = [statistics.median(rates) for rates in zip(*pairs, strict=True)]
    return Verdict(
        "mailbox tells / bare asyncio.Queue, messages a second",
        statistics.median(one / other for one, other in pairs),
        MAILBOX_BAR,
        at_least=True,
        detail=f"{rates[0]:,.0f} against {rates[1]:,.0f}",
    )


def verdicts() -> list[Verdict]:
    found = [lookup(), mailboxes()]
    with tempfile.TemporaryDirectory() as temporary:
        found.append(sqlite(Path(temporary)))
    with servers.start("postgresql") as server:
        found.append(postgresql(server.url))
    with servers.start("redis") as server:
        found.append(redis(server.url))
    return found


def main() -> bool:
    return report("Partition, journal, mailbox", verdicts())


if __name__ == "__main__":
    sys.exit(not main())
