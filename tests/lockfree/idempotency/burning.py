"""Workers that all want the same keys done, in the same order. Each run has an effect, and a result that no other has."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast import fenced
from holdfast.lockfree import idempotency

from ..fire import SQL, Say, burn, sql_connection

TTL = 0.1  # shorter than a worker is stopped for: it will be taken over
EFFECTS = "CREATE TABLE effects (name VARCHAR(100), result VARCHAR(100))"


class Sql:
    """The effect is a row, written in the transaction that keeps the result."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.place = "?" if isinstance(connection, sqlite3.Connection) else "%s"
        self.keys = idempotency.Keys(connection, ttl=TTL)

    def execute(self, statement: str, *values: str) -> Any:
        cursor = self.connection.cursor()
        cursor.execute(statement.replace("?", self.place), values)
        return cursor

    def prepare(self) -> None:
        for statement in ("DROP TABLE IF EXISTS effects", EFFECTS, "DROP TABLE IF EXISTS holdfast_idempotency"):
            self.execute(statement)
        self.keys.create_table()

    def effect(self, run: Any, key: str, result: str) -> None:
        self.execute("INSERT INTO effects VALUES (?, ?)", key, result)

    def naively(self, key: str, result: str) -> str:
        """Look, work, write: as in many a guide."""
        found = self.execute("SELECT result FROM effects WHERE name = ?", key).fetchone()
        if found is not None:
            return str(found[0])
        time.sleep(0.001)
        self.execute("INSERT INTO effects VALUES (?, ?)", key, result)
        return result

    def effects(self) -> list[tuple[str, str]]:
        return [(name, result) for name, result in self.execute("SELECT name, result FROM effects").fetchall()]


class Redis:
    """The effect is elsewhere, so it is guarded by the run's token: whoever was taken over is refused there as well."""

    def __init__(self, url: str) -> None:
        import redis

        self.client: Any = redis.Redis.from_url(url)
        self.keys = idempotency.Keys(self.client, ttl=TTL)

    def prepare(self) -> None:
        self.client.flushall()

    def effect(self, run: Any, key: str, result: str) -> None:
        fenced.Redis(self.client, (f"effect {key}", run.token)).set(f"effect:{key}", result)

    def naively(self, key: str, result: str) -> str:
        found = self.client.get(f"naive:{key}")
        if found is not None:
            return str(json.loads(found))
        time.sleep(0.001)
        self.client.rpush("naive effects", json.dumps([key, result]))
        self.client.set(f"naive:{key}", json.dumps(result))
        return result

    def effects(self) -> list[tuple[str, str]]:
        naive = [tuple(json.loads(one)) for one in self.client.lrange("naive effects", 0, -1)]
        names = self.client.keys("effect:*")
        return [*naive, *((name.decode().removeprefix("effect:"), self.client.get(name).decode()) for name in names)]


def connect(kind: str, url: str) -> Any:
    if kind in SQL:
        return Sql(sql_connection(kind, url))
    return Redis(url)


def burning(kind: str, url: str, how: str, wanted: int, faults: int) -> dict[str, Any]:
    begun = time.monotonic()

    def work(number: int, over: Callable[[], bool], say: Say) -> None:
        store = connect(kind, url)
        for count in range(1_000_000):
            if over():
                return
            key = f"key {int((time.monotonic() - begun) / 0.03)}"  # all want the same one at the same time
            result = f"{number}-{count}"
            if how == "naive":
                say({"key": key, "result": store.naively(key, result)})
                time.sleep(0.002)
                continue
            try:
                with store.keys.once(key) as run:
                    if run.first:
                        store.effect(run, key, result)
                        time.sleep(0.002)
                        run.result = result
                say({"key": key, "result": run.result})
            except holdfast.StaleToken:
                say({"stale": key})

    if os.fork() == 0:  # so that the nursery has no connection of its own to hand down
        connect(kind, url).prepare()
        os._exit(0)
    assert os.wait()[1] == 0
    done = burn(work, wanted, faults)
    return {**done, "effects": connect(kind, url).effects()}
