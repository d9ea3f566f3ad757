"""What fencing costs: the same work with and without it, on real servers, in one run."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast import fenced
from holdfast.fenced import aio
from holdfast.fenced.http.asgi import FencingMiddleware
from holdfast.testing import servers

from .measure import Verdict, interleaved, ratio, report

LEASE = ("account:42", 1_753_900_000_000_000)
SQL_BAR, REDIS_BAR, ASGI_BAR = 1.35, 1.3, 1.10
CREATE = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)"
INSERT = "INSERT INTO account VALUES (42, 0)"
SELECT = "SELECT balance FROM account WHERE id = 42"
UPDATE = "UPDATE account SET balance = balance + 1 WHERE id = 42"


def verdict(
    what: str, ours: Callable[[], object], floor: Callable[[], object], bar: float, each: int = 1, **often: int
) -> Verdict:
    """`each`: how many times a call does it."""
    tasks = {"ours": ours, "floor": floor}
    taken = interleaved(tasks, rounds=5, batch=often.get("batch", 20))
    detail = f"{taken['ours'] / each * 1e6:.0f} µs against {taken['floor'] / each * 1e6:.0f} µs"
    return Verdict(what, ratio(tasks, "ours", "floor", **often), bar, detail=detail)


def sqlite(folder: Path) -> Verdict:
    """As an application has it: write-ahead logging, everything flushed at commit."""
    db = sqlite3.connect(folder / "fenced.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(CREATE)
    db.execute(INSERT)
    fenced.create_table(db)

    def ours() -> None:
        with fenced.transaction(db, LEASE) as tx:
            tx.execute(SELECT).fetchone()
            tx.execute(UPDATE)

    def floor() -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute(SELECT).fetchone()
        db.execute(UPDATE)
        db.execute("COMMIT")

    return verdict("sqlite3: fenced transaction / the same unfenced", ours, floor, SQL_BAR, rounds=40, batch=20)


def psycopg(url: str) -> Verdict:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS account")
        db.execute(CREATE)
        db.execute(INSERT)
        fenced.create_table(db)

        def ours() -> None:
            with fenced.transaction(db, LEASE) as tx:
                tx.execute(SELECT).fetchone()
                tx.execute(UPDATE)

        def floor() -> None:
            with db.transaction():
                db.execute(SELECT).fetchone()
                db.execute(UPDATE)

        return verdict("psycopg: fenced transaction / the same unfenced", ours, floor, SQL_BAR, rounds=40, batch=20)


def asyncpg(url: str) -> Verdict:
    import asyncpg

    with asyncio.Runner() as runner:
        db = runner.run(asyncpg.connect(url))

        async def ours() -> None:
            async with aio.transaction(db, LEASE) as tx:
                await tx.fetchrow(SELECT)
                await tx.execute(UPDATE)

        async def floor() -> None:
            async with db.transaction():
                await db.fetchrow(SELECT)
                await db.execute(UPDATE)

        measured = verdict(
            "asyncpg: fenced transaction / the same unfenced",
            lambda: runner.run(_often(ours)),
            lambda: runner.run(_often(floor)),
            SQL_BAR,
            each=5,
            rounds=40,
            batch=4,
        )
        runner.run(db.close())
        return measured


def pymysql(url: str) -> Verdict:
    import pymysql

    parts = urlsplit(url)
    db = pymysql.connect(host=parts.hostname, port=parts.port or 0, user="root", database="holdfast", autocommit=True)
    cursor = db.cursor()
    for statement in (CREATE, INSERT):
        cursor.execute(statement)
    fenced.create_table(db)

    def work() -> None:
        cursor.execute(SELECT)
        cursor.fetchone()
        cursor.execute(UPDATE)

    def ours() -> None:
        with fenced.transaction(db, LEASE):
            work()

    def floor() -> None:
        db.begin()
        work()
        db.commit()

    measured = verdict("PyMySQL: fenced transaction / the same unfenced", ours, floor, SQL_BAR, rounds=40, batch=20)
    db.close()
    return measured


def redis(url: str) -> Verdict:
    import redis

    client: Any = redis.Redis.from_url(url)
    guard = fenced.Redis(client, LEASE)
    measured = verdict(
        "Redis: guarded SET / SET",
        lambda: guard.set("balance", 1),
        lambda: client.set("balance", 1),
        REDIS_BAR,
        rounds=60,
        batch=100,
    )
    client.close()
    return measured


def asgi() -> Verdict:
    """The application alone, without a server: the hardest comparison there is."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def handler(request: Any) -> PlainTextResponse:
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/", handler, methods=["PUT"])])
    guarded = FencingMiddleware(app)
    tokens = itertools.count(1)
    usual = [(b"host", b"localhost"), (b"user-agent", b"benchmark"), (b"accept", b"*/*"), (b"content-length", b"0")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        return

    def request(application: Any, *headers: tuple[bytes, bytes]) -> Coroutine[Any, Any, None]:
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "PUT",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("localhost", 80),
            "client": ("localhost", 1),
            "headers": [*usual, *headers],
        }
        work: Coroutine[Any, Any, None] = application(scope, receive, send)
        return work

    with asyncio.Runner() as runner:
        fence = (b"fencing-resource", b"account%3A42")

        async def ours() -> None:
            await request(guarded, (b"fencing-token", b"%d" % (1_753_900_000_000_000 + next(tokens) // 100)), fence)

        async def floor() -> None:
            await request(app, (b"x-request", b"%d" % (1_753_900_000_000_000 + next(tokens) // 100)), fence)

        return verdict(
            "ASGI: guarded Starlette request / the same unguarded",
            lambda: runner.run(_often(ours, 50)),
            lambda: runner.run(_often(floor, 50)),
            ASGI_BAR,
            each=50,
            rounds=100,
            batch=4,
        )


async def _often(work: Callable[[], Coroutine[Any, Any, None]], times: int = 5) -> None:
    for _ in range(times):
        await work()


def main() -> bool:
    with tempfile.TemporaryDirectory() as temporary:
        verdicts = [sqlite(Path(temporary))]
    with servers.start("postgresql") as postgresql:
        verdicts += [psycopg(postgresql.url), asyncpg(postgresql.url)]
    with servers.start("mariadb") as mariadb:
        verdicts.append(pymysql(mariadb.url))
    with servers.start("redis") as server:
        verdicts.append(redis(server.url))
    verdicts.append(asgi())
    return report("Fenced storage", verdicts)


if __name__ == "__main__":
    sys.exit(not main())
