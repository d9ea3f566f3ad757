"""What optimistic updates and idempotency keys cost: against the same statements written by hand, on real servers, in one run."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.lockfree import idempotency, optimistic
from holdfast.lockfree.optimistic import aio
from holdfast.testing import servers

from .measure import Verdict, interleaved, ratio, report

UPDATE_BAR, HIT_BAR = 1.2, 1.5
CREATE = "CREATE TABLE wallet (id INTEGER PRIMARY KEY, balance INTEGER, version BIGINT NOT NULL)"
INSERT = "INSERT INTO wallet VALUES (42, 100, 0)"
KEY = "charge:42"
RESULT = {"receipt": "2027-0042", "amount": 1999, "currency": "EUR"}
# What one writes by hand for a kept result; the table is ours, so that both read the same row.
KEPT = "SELECT result FROM holdfast_idempotency WHERE name = "


def verdict(what: str, ours: Callable[[], object], floor: Callable[[], object], bar: float, **options: Any) -> Verdict:
    tasks = {"ours": ours, "floor": floor}
    ours(), floor()
    taken = interleaved(tasks, rounds=10, batch=options.get("batch", 5))
    each = options.pop("each", 1)
    detail = f"{taken['ours'] / each * 1e6:.3g} µs against {taken['floor'] / each * 1e6:.3g} µs"
    return Verdict(what, ratio(tasks, "ours", "floor", **options), bar, detail=detail)


def spend(row: dict[str, Any]) -> dict[str, Any]:
    return {"balance": row["balance"] - 1}


def by_hand(db: Any, place: str) -> Callable[[], None]:
    """The two statements, and the check that makes them safe."""
    select = f"SELECT * FROM wallet WHERE id = {place}"  # noqa: S608
    update = f"UPDATE wallet SET balance = {place}, version = version + 1 WHERE id = {place} AND version = {place}"  # noqa: S608

    def floor() -> None:
        cursor = db.cursor()
        cursor.execute(select, (42,))
        key, balance, version = cursor.fetchone()
        cursor.execute(update, (balance - 1, key, version))
        assert cursor.rowcount == 1
        cursor.close()

    return floor


def prepare(db: Any) -> None:
    cursor = db.cursor()
    cursor.execute(CREATE)
    cursor.execute(INSERT)
    cursor.close()


def update(name: str, db: Any, place: str, **options: Any) -> Verdict:
    return verdict(
        f"{name}: optimistic update / the two statements by hand",
        lambda: optimistic.update(db, "wallet", 42, spend),
        by_hand(db, place),
        UPDATE_BAR,
        **options,
    )


def hit(name: str, db: Any, place: str, **options: Any) -> Verdict:
    keys = idempotency.Keys(db)
    keys.create_table()
    with keys.once(KEY) as run:
        run.result = RESULT

    @keys.idempotent(key=lambda order: f"charge:{order}")
    def charge(order: int) -> Any:
        raise AssertionError("it was done before")

    select = f"{KEPT}{place}"

    def one_select() -> None:
        cursor = db.cursor()
        cursor.execute(select, (KEY,))
        cursor.fetchone()
        cursor.close()

    return verdict(f"{name}: idempotent hit / one SELECT", lambda: charge(42), one_select, HIT_BAR, **options)


def sqlite(folder: Path) -> list[Verdict]:
    """A file in the journal mode that it comes with: every commit waits for the disk. A SELECT there is no conversation with a
    server but a function call of a few µs, which makes the bar of a hit a hard one: see docs/lockfree/idempotency.md."""
    db = sqlite3.connect(folder / "bench.db", isolation_level=None)
    prepare(db)
    try:
        return [update("SQLite", db, "?", rounds=60, batch=10), hit("SQLite", db, "?", rounds=200, batch=50)]
    finally:
        db.close()


def psycopg(url: str) -> list[Verdict]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        prepare(db)
        return [
            update("psycopg", db, "%s", rounds=150, batch=10),
            hit("psycopg", db, "%s", rounds=200, batch=20),
        ]


def asyncpg(url: str) -> list[Verdict]:
    import asyncpg

    with asyncio.Runner() as runner:
        db = runner.run(asyncpg.connect(url))

        async def ours() -> None:
            await aio.update(db, "wallet", 42, spend)

        async def floor() -> None:
            row = await db.fetchrow("SELECT * FROM wallet WHERE id = $1", 42)
            status = await db.execute(
                "UPDATE wallet SET balance = $1, version = version + 1 WHERE id = $2 AND version = $3",
                row["balance"] - 1,
                42,
                row["version"],
            )
            assert status == "UPDATE 1"

        try:
            return [
                verdict(
                    "asyncpg: optimistic update / the two statements by hand",
                    lambda: runner.run(_often(ours)),
                    lambda: runner.run(_often(floor)),
                    UPDATE_BAR,
                    each=10,
                    rounds=150,
                    batch=1,
                )
            ]
        finally:
            runner.run(db.close())


async def _often(work: Callable[[], Coroutine[Any, Any, None]], times: int = 10) -> None:
    for _ in range(times):
        await work()


def pymysql(url: str) -> list[Verdict]:
    import pymysql

    parts = urlsplit(url)
    db = pymysql.connect(host=parts.hostname, port=parts.port or 0, user="root", database="holdfast", autocommit=True)
    prepare(db)
    try:
        return [update("PyMySQL", db, "%s", rounds=150, batch=10), hit("PyMySQL", db, "%s", rounds=200, batch=20)]
    finally:
        db.close()


BY_HAND = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'balance', ARGV[2], 'version', ARGV[1] + 1)
return 1
"""


def redis(url: str) -> list[Verdict]:
    import redis

    client: Any = redis.Redis.from_url(url)
    wallets = optimistic.Redis(client)
    wallets.update("wallet", lambda row: {"balance": 100_000_000})
    client.hset("by hand", mapping={"balance": 100_000_000, "version": 1})
    script = client.register_script(BY_HAND)
    keys = idempotency.Keys(client)
    with keys.once(KEY) as run:
        run.result = RESULT

    def floor() -> None:
        row = client.hgetall("by hand")
        assert script(keys=["by hand"], args=[row[b"version"], int(row[b"balance"]) - 1]) == 1

    def hit() -> None:
        with keys.once(KEY) as run:
            assert not run.first

    try:
        return [
            verdict(
                "Redis: optimistic update / HGETALL and a script by hand",
                lambda: wallets.update("wallet", lambda row: {"balance": int(row["balance"]) - 1}),
                floor,
                UPDATE_BAR,
                rounds=100,
                batch=20,
            ),
            verdict(
                "Redis: idempotent hit / one GET",
                hit,
                lambda: client.get("kept"),
                HIT_BAR,
                rounds=100,
                batch=20,
            ),
        ]
    finally:
        client.close()


def verdicts() -> list[Verdict]:
    with tempfile.TemporaryDirectory() as folder:
        found = sqlite(Path(folder))
    with servers.start("postgresql") as postgresql:
        found += psycopg(postgresql.url)
        found += asyncpg(postgresql.url)
    with servers.start("mariadb") as mariadb:
        found += pymysql(mariadb.url)
    with servers.start("redis") as server:
        found += redis(server.url)
    return found


def main() -> bool:
    return report("Optimistic updates and idempotency keys", verdicts())


if __name__ == "__main__":
    sys.exit(not main())
