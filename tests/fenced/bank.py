"""One balance in every kind of storage, read and written with and without the guard.

Run as a program, it is the unlucky holder: it takes the lock, reads, stops itself (SIGSTOP), and when it is woken, long
after its ttl, writes what it had computed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

import holdfast
from holdfast import fenced
from holdfast.fenced.objects import content_of
from holdfast.testing.stopping import stop_myself

NAME = "account:42"
TTL = 0.2
SELECT = "SELECT balance FROM account WHERE id = 42"
UPDATE = "UPDATE account SET balance = {} WHERE id = 42"


class Bank(Protocol):
    def read(self, lease: Any) -> int:
        """With a lease, through the guard; with None, past it."""

    def write(self, lease: Any, balance: int) -> None: ...


class SqlBank:
    """Reads in one transaction and writes in another, as a service does that computes in between."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance BIGINT)")
        cursor.execute("SELECT COUNT(*) FROM account")
        if cursor.fetchone()[0] == 0:
            cursor.execute("INSERT INTO account VALUES (42, 0)")
        connection.commit()
        fenced.create_table(connection)

    def read(self, lease: Any) -> int:
        if lease is None:
            return self._select()
        with fenced.transaction(self.connection, lease):
            return self._select()

    def write(self, lease: Any, balance: int) -> None:
        if lease is None:
            self._update(balance)
            self.connection.commit()
            return
        with fenced.transaction(self.connection, lease):
            self._update(balance)

    def _select(self) -> int:
        cursor = self.connection.cursor()
        cursor.execute(SELECT)
        return int(cursor.fetchone()[0])

    def _update(self, balance: int) -> None:
        self.connection.cursor().execute(UPDATE.format(int(balance)))


class RedisBank:
    def __init__(self, url: str) -> None:
        import redis

        self.client: Any = redis.Redis.from_url(url)

    def read(self, lease: Any) -> int:
        return int((self.client if lease is None else fenced.Redis(self.client, lease)).get("balance") or 0)

    def write(self, lease: Any, balance: int) -> None:
        (self.client if lease is None else fenced.Redis(self.client, lease)).set("balance", balance)


class FileBank:
    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, lease: Any) -> int:
        if lease is not None:
            return int(fenced.File(self.path, lease).read() or 0)
        try:
            with open(self.path, "rb") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0

    def write(self, lease: Any, balance: int) -> None:
        if lease is not None:
            fenced.File(self.path, lease).write(b"%d" % balance)
            return
        with open(self.path, "wb") as file:
            file.write(b"%d" % balance)


class EtcdBank:
    def __init__(self, url: str) -> None:
        import httpx

        self.client = httpx.Client(base_url=url, trust_env=False, timeout=30)

    def ask(self, path: str, body: Any) -> Any:
        return self.client.post(path, json=body).json()

    def read(self, lease: Any) -> int:
        if lease is not None:
            return int(fenced.Etcd(self.client, lease).get("balance") or 0)
        found = self.ask("/v3/kv/range", {"key": b64encode(b"balance").decode()}).get("kvs")
        return int(b64decode(found[0]["value"])) if found else 0

    def write(self, lease: Any, balance: int) -> None:
        if lease is not None:
            fenced.Etcd(self.client, lease).put("balance", str(balance))
            return
        value = b64encode(b"%d" % balance).decode()
        self.ask("/v3/kv/put", {"key": b64encode(b"balance").decode(), "value": value})


class ZooKeeperBank:
    def __init__(self, hosts: str) -> None:
        from kazoo.client import KazooClient

        self.client: Any = KazooClient(hosts, timeout=30)
        self.client.start(30)
        self.client.ensure_path("/balance")

    def read(self, lease: Any) -> int:
        if lease is not None:
            return int(fenced.ZooKeeper(self.client, lease).get("/balance") or 0)
        return int(self.client.get("/balance")[0] or 0)

    def write(self, lease: Any, balance: int) -> None:
        (self.client if lease is None else fenced.ZooKeeper(self.client, lease)).set("/balance", b"%d" % balance)


class ObjectBank:
    def __init__(self, url: str) -> None:
        import boto3

        keys = {"aws_access_key_id": "holdfast", "aws_secret_access_key": "holdfast", "region_name": "us-east-1"}
        self.client: Any = boto3.client("s3", endpoint_url=url, **keys)
        known = self.client.exceptions
        with contextlib.suppress(known.BucketAlreadyExists, known.BucketAlreadyOwnedByYou):
            self.client.create_bucket(Bucket="balances")
        self.where = {"Bucket": "balances", "Key": "balance"}

    def read(self, lease: Any) -> int:
        if lease is not None:
            return int(fenced.Object(self.client, "balances", "balance", lease).read() or 0)
        try:
            return int(content_of(self.client.get_object(**self.where)["Body"].read()))
        except self.client.exceptions.NoSuchKey:
            return 0

    def write(self, lease: Any, balance: int) -> None:
        if lease is not None:
            fenced.Object(self.client, "balances", "balance", lease).write(b"%d" % balance)
        else:
            self.client.put_object(**self.where, Body=b"%d" % balance)


class HttpBank:
    """A service whose path /unguarded lets everybody in."""

    def __init__(self, url: str) -> None:
        import httpx

        self.url = url
        self.client = httpx.Client(trust_env=False)

    def ask(self, lease: Any, **options: Any) -> int:
        from holdfast.fenced.http import FencingAuth, raise_if_stale

        if lease is None:
            response = self.client.request(url=f"{self.url}unguarded", **options)
        else:
            response = self.client.request(url=self.url, auth=FencingAuth(lease), **options)
        raise_if_stale(response)
        response.raise_for_status()
        return int(response.text)

    def read(self, lease: Any) -> int:
        return self.ask(lease, method="GET")

    def write(self, lease: Any, balance: int) -> None:
        self.ask(lease, method="PUT", content=str(balance).encode())


def open_bank(kind: str, url: str) -> Bank:
    if kind == "sqlite":
        return SqlBank(sqlite3.connect(url, timeout=30, isolation_level=None))
    if kind == "postgresql":
        import psycopg

        return SqlBank(psycopg.connect(url, autocommit=True))
    if kind == "mariadb":
        import pymysql

        parts = urlsplit(url)
        return SqlBank(
            pymysql.connect(
                host=parts.hostname, port=parts.port or 0, user="root", database="holdfast", autocommit=True
            )
        )
    if kind == "redis":
        return RedisBank(url)
    others: dict[str, Callable[[str], Bank]] = {
        "file": FileBank,
        "http": HttpBank,
        "etcd": EtcdBank,
        "zookeeper": ZooKeeperBank,
        "seaweedfs": ObjectBank,
    }
    return others[kind](url)


def unlucky_holder(locks_url: str, kind: str, url: str) -> None:
    """Each line of input is a round: `fenced` or `unfenced`. Each answer is `written` or `refused`."""
    bank = open_bank(kind, url)
    locks = holdfast.connect(locks_url)
    for line in sys.stdin:
        lease = locks.lock(NAME, ttl=TTL).acquire(timeout=30)
        shown = lease if line.strip() == "fenced" else None
        balance = bank.read(shown)
        stop_myself()
        try:
            bank.write(shown, balance + 1)
            answer = "written"
        except holdfast.StaleToken:
            answer = "refused"
        with contextlib.suppress(holdfast.HoldfastError):  # of course it is lost
            lease.release()
        print(answer, flush=True)


if __name__ == "__main__":
    unlucky_holder(*sys.argv[1:])
