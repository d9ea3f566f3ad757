"""What fencing costs: the same work with and without it, on real servers, in one run."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
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

    return verdict("sqlite3: fenced transaction / the same unfenced", ours, floor, SQL_BAR, rounds=200, batch=5)


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

        return verdict("psycopg: fenced transaction / the same unfenced", ours, floor, SQL_BAR, rounds=200, batch=5)


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
            rounds=200,
            batch=1,
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

    measured = verdict("PyMySQL: fenced transaction / the same unfenced", ours, floor, SQL_BAR, rounds=200, batch=5)
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
    """A minimal request as it is served: by uvicorn, over a connection that is kept. In detail: the application alone."""
    with Served(_app()) as plain, Served(FencingMiddleware(_app())) as guarded:
        alone = _asgi_alone()
        measured = verdict(
            "ASGI: guarded Starlette request / the same unguarded",
            guarded.ask,
            plain.ask,
            ASGI_BAR,
            rounds=60,
            batch=100,
        )
    return measured._replace(detail=f"{measured.detail}; without the server: {alone}")


def _app() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def handler(request: Any) -> PlainTextResponse:
        return PlainTextResponse("done")

    return Starlette(routes=[Route("/", handler, methods=["PUT"])])


class Served:
    """An application behind uvicorn in a process of its own, and one connection to it."""

    REQUEST = (
        b"PUT / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n"
        b"fencing-token: 1753900000000000\r\nfencing-resource: account%3A42\r\n\r\n"
    )

    def __init__(self, app: Any) -> None:
        self._app = app

    def __enter__(self) -> Served:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pid = os.fork()
        if self._pid == 0:
            import uvicorn

            uvicorn.Server(uvicorn.Config(self._app, log_level="error", lifespan="off", ws="none")).run([listener])
            os._exit(0)
        address = listener.getsockname()
        self._connection = socket.create_connection(address, 30)
        listener.close()
        return self

    def ask(self) -> None:
        self._connection.sendall(self.REQUEST)
        answer = self._connection.recv(4096)
        while not answer.endswith(b"done"):
            answer += self._connection.recv(4096)

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _asgi_alone() -> str:
    app = _app()
    guarded = FencingMiddleware(app)
    headers = [(b"host", b"localhost"), (b"content-length", b"0")]
    headers += [(b"fencing-token", b"1753900000000000"), (b"fencing-resource", b"account%3A42")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        return

    def request(application: Any) -> Coroutine[Any, Any, None]:
        scope = {
            "type": "http",
            "method": "PUT",
            "path": "/",
            "query_string": b"",
            "root_path": "",
            "headers": [*headers],
        }
        work: Coroutine[Any, Any, None] = application(scope, receive, send)
        return work

    with asyncio.Runner() as runner:
        tasks = {
            "ours": lambda: runner.run(_often(lambda: request(guarded), 50)),
            "floor": lambda: runner.run(_often(lambda: request(app), 50)),
        }
        taken = interleaved(tasks, rounds=60, batch=4)
    ours, floor = taken["ours"] / 50, taken["floor"] / 50
    return f"{ours * 1e6:.1f} µs against {floor * 1e6:.1f} µs"


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
