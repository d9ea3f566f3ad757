"""Workers that add their marks to one value, each mark once. Whoever was told that his is there must find it there."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from holdfast.lockfree import optimistic
from holdfast.lockfree.optimistic import Retry

from ..fire import SQL, Say, burn, sql_connection

PERSISTENT = Retry(attempts=1000, first=0.001, longest=0.02)
CREATE = "CREATE TABLE burning (id INTEGER PRIMARY KEY, marks TEXT, version BIGINT NOT NULL)"


class Sql:
    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.place = "?" if isinstance(connection, sqlite3.Connection) else "%s"

    def prepare(self) -> None:
        cursor = self.connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS burning")
        cursor.execute(CREATE)
        cursor.execute("INSERT INTO burning VALUES (1, '[]', 0)")

    def marks(self) -> Any:
        cursor = self.connection.cursor()
        cursor.execute("SELECT marks FROM burning WHERE id = 1")
        return json.loads(cursor.fetchone()[0])

    def add(self, mark: str) -> None:
        optimistic.update(
            self.connection, "burning", 1, lambda row: {"marks": with_mark(row["marks"], mark)}, retry=PERSISTENT
        )

    def add_naively(self, mark: str) -> None:
        marks = with_mark(json.dumps(self.marks()), mark)
        self.connection.cursor().execute(f"UPDATE burning SET marks = {self.place} WHERE id = 1", (marks,))  # noqa: S608


class Cells:
    """Redis, etcd, ZooKeeper."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        if kind == "redis":
            import redis

            self.client: Any = redis.Redis.from_url(url)
            self.store: Any = optimistic.Redis(self.client)
        elif kind == "etcd":
            import httpx

            self.client = httpx.Client(base_url=url, trust_env=False, verify=False, timeout=30)
            self.store = optimistic.Etcd(self.client)
        else:
            from kazoo.client import KazooClient

            self.client = KazooClient(url, timeout=30)
            self.client.start(30)
            self.store = optimistic.ZooKeeper(self.client)
        self.key = "/burning" if kind == "zookeeper" else "burning"

    def answer(self, marks: str) -> Any:
        return {"marks": marks} if self.kind == "redis" else marks.encode()

    def text(self, value: Any) -> str:
        return (value.get("marks", b"[]") if self.kind == "redis" else value or b"[]").decode()

    def prepare(self) -> None:
        self.store.update(self.key, lambda value: self.answer("[]"))

    def marks(self) -> Any:
        seen: list[str] = []
        self.store.update(self.key, lambda value: seen.append(self.text(value)))
        return json.loads(seen[0])

    def add(self, mark: str) -> None:
        self.store.update(self.key, lambda value: self.answer(with_mark(self.text(value), mark)), retry=PERSISTENT)

    def add_naively(self, mark: str) -> None:
        marks = with_mark(json.dumps(self.marks()), mark)
        if self.kind == "redis":
            self.client.hset(self.key, "marks", marks)
        elif self.kind == "etcd":
            from holdfast.databases.etcd import encode

            self.client.post("/v3/kv/put", json={"key": encode(self.key), "value": encode(marks)}).raise_for_status()
        else:
            self.client.set(self.key, marks.encode())


def with_mark(marks: str, mark: str) -> str:
    return json.dumps([*json.loads(marks), mark])


def connect(kind: str, url: str) -> Any:
    if kind in SQL:
        return Sql(sql_connection(kind, url))
    return Cells(kind, url)


def burning(kind: str, url: str, how: str, wanted: int, faults: int) -> dict[str, Any]:
    def work(number: int, over: Callable[[], bool], say: Say) -> None:
        board = connect(kind, url)
        for count in range(1_000_000):
            if over():
                return
            mark = f"{number}-{count}"
            (board.add if how == "optimistic" else board.add_naively)(mark)
            say({"mark": mark})
            time.sleep(0.002)

    import os

    if os.fork() == 0:  # so that the nursery has no connection of its own to hand down
        connect(kind, url).prepare()
        os._exit(0)
    assert os.wait()[1] == 0
    done = burn(work, wanted, faults)
    return {**done, "marks": connect(kind, url).marks()}
