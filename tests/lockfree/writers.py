"""What each of eight processes does until it is killed: `writers.py TOOL BACKEND ADDRESS LOCKS ACKS`.

It writes down what it was told is done ("key value") after it was told: what is written there must have happened.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast import Conflict, LeaseLost, NotOwner, StaleToken, fenced
from holdfast.lockfree import journal, mailbox, partition

KEYS = [f"key{number}" for number in range(3)]
TTL = 0.5
PARTITIONS = 4

Ack = Callable[[str, int], None]


def connect(backend: str, address: str) -> Any:
    if backend == "sqlite":
        return sqlite3.connect(address, isolation_level=None, timeout=60, check_same_thread=False)
    if backend == "postgresql":
        import psycopg

        return psycopg.connect(address, autocommit=True)
    import redis

    return redis.Redis.from_url(address)


def prepare(backend: str, address: str) -> None:
    """Once, before the eight begin."""
    db = connect(backend, address)
    if backend == "redis":
        db.flushall()
    else:
        journal.Journal(db).create_table()
        fenced.create_table(db)
        number = "SERIAL" if backend == "postgresql" else "INTEGER"
        for statement in (
            "CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER)",
            "CREATE TABLE IF NOT EXISTS naive (name TEXT, value INTEGER)",
            f"CREATE TABLE IF NOT EXISTS effect (number {number}, name TEXT, value INTEGER)",
        ):
            db.execute(statement)
        for table in ("counter", "naive", "effect", "holdfast_journal", "holdfast_journal_snapshots"):
            db.execute(f"DELETE FROM {table}")  # noqa: S608
        for key in KEYS:
            db.execute(f"INSERT INTO counter VALUES ('{key}', 0)")  # noqa: S608
    db.close()


def place(backend: str) -> str:
    return "%s" if backend == "postgresql" else "?"


def append(backend: str, db: Any, _: str, ack: Ack) -> None:
    events = journal.Journal(db)
    while True:
        key = random.choice(KEYS)
        version = events.version(key)
        try:
            ack(key, events.append(key, {"by": os.getpid()}, expected=version))
        except Conflict:
            continue


def append_naively(backend: str, db: Any, _: str, ack: Ack) -> None:
    """As it is written at first: look for the last version, write the next one."""
    while True:
        key = random.choice(KEYS)
        if backend == "redis":
            version = db.llen(f"naive:{key}") + 1
            time.sleep(0.001)
            db.rpush(f"naive:{key}", version)
        else:
            found = db.execute(f"SELECT count(*) FROM naive WHERE name = {place(backend)}", (key,)).fetchone()  # noqa: S608
            version = found[0] + 1
            time.sleep(0.001)
            db.execute(f"INSERT INTO naive VALUES ({place(backend)}, {place(backend)})", (key, version))  # noqa: S608
        ack(key, version)


def own(backend: str, db: Any, locks: str, ack: Ack) -> None:
    """Count up, each key by its owner alone; what an owner writes late is fenced."""
    worker = partition.Group(holdfast.connect(locks), "fire", partitions=PARTITIONS, ttl=TTL, drain=0.1).join()
    while True:
        for key in KEYS:
            try:
                with worker.working(key) as lease:
                    ack(key, count_up(backend, db, lease, key))
            except (NotOwner, StaleToken, LeaseLost):
                time.sleep(0.005)


def count_up(backend: str, db: Any, lease: Any, key: str) -> int:
    if backend == "redis":
        guard = fenced.Redis(db, lease)
        value = int(guard.get(f"counter:{key}") or 0) + 1
        time.sleep(0.002)
        guard.set(f"counter:{key}", value)
        return value
    with fenced.transaction(db, lease) as tx:
        value = tx.execute(f"SELECT value FROM counter WHERE name = '{key}'").fetchone()[0] + 1  # noqa: S608
        tx.execute(f"UPDATE counter SET value = {value} WHERE name = '{key}'")  # noqa: S608
    return int(value)


def own_naively(backend: str, db: Any, locks: str, ack: Ack) -> None:
    """Everybody counts up, and hopes."""
    while True:
        key = random.choice(KEYS)
        if backend == "redis":
            value = int(db.get(f"counter:{key}") or 0) + 1
            time.sleep(0.002)
            db.set(f"counter:{key}", value)
        else:
            value = db.execute(f"SELECT value FROM counter WHERE name = '{key}'").fetchone()[0] + 1  # noqa: S608
            time.sleep(0.002)
            db.execute(f"UPDATE counter SET value = {value} WHERE name = '{key}'")  # noqa: S608
        ack(key, value)


class Counter:
    """Its state is in the journal, so it may be in several processes at once, as after a rebalance that went wrong."""

    def __init__(self, key: str) -> None:
        self.value = 0

    def receive(self, _: None) -> mailbox.Record:
        return mailbox.Record(1, reply=self.value + 1)

    def apply(self, step: int) -> None:
        self.value += step

    def snapshot(self) -> int:
        return self.value

    def restore(self, value: int) -> None:
        self.value = value


def post(backend: str, db: Any, _: str, ack: Ack) -> None:
    boxes = mailbox.Mailboxes(
        Counter, journal=journal.Journal(db), snapshot_every=10, restarts=10_000, on_failure=lambda *_: None
    )
    while True:
        key = random.choice(KEYS)
        try:
            ack(key, boxes.ask(key, None))
        except Conflict:
            continue


def consume(backend: str, db: Any, _: str, ack: Ack) -> None:
    queue = partition.Queue(db, "fire", partitions=PARTITIONS, ttl=TTL)
    for message in queue.consume():
        try:
            if backend == "redis":
                fenced.Redis(db, message.ticket).execute("RPUSH", f"effect:{message.key}", message.data, keys=[])
            else:
                with fenced.transaction(db, message.ticket) as tx:
                    tx.execute("INSERT INTO effect (name, value) VALUES (%s, %s)", (message.key, message.data))
        except StaleToken:
            continue  # the acknowledgement will be refused as well
        ack(message.key, message.data)


TOOLS: dict[str, Callable[[str, Any, str, Ack], None]] = {
    "journal": append,
    "naive journal": append_naively,
    "partition": own,
    "naive partition": own_naively,
    "mailbox": post,
    "queue": consume,
}


def main() -> None:
    tool, backend, address, locks, acks = sys.argv[1:]
    file = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    TOOLS[tool](backend, connect(backend, address), locks, lambda key, value: _note(file, key, value))


def _note(file: int, key: str, value: int) -> None:
    os.write(file, f"{key} {value}\n".encode())


if __name__ == "__main__":
    main()
