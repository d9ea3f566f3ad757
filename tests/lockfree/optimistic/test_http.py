"""ETag and If-Match, from end to end: a real service over SQLite, and clients that update through it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Conflict, Missing, Misuse, Unsupported
from holdfast.lockfree import optimistic
from holdfast.lockfree.optimistic import ABSENT, Retry, aio
from holdfast.lockfree.optimistic.asgi import IfMatchMiddleware
from holdfast.lockfree.optimistic.http import etag, version_of

from ..idempotency.services import served_by_uvicorn

PATIENT = Retry(attempts=200, first=0.001, longest=0.02)


def service(file: Path) -> Any:
    """Numbers by name; a row is inserted by If-None-Match."""

    def answer(method: str, name: str, version: Any, body: bytes) -> tuple[int, str, bytes]:
        db = sqlite3.connect(file, isolation_level=None, timeout=30)
        try:
            db.execute("CREATE TABLE IF NOT EXISTS number (id TEXT PRIMARY KEY, n INT, version INT NOT NULL)")
            if method == "GET":
                row = optimistic.update(db, "number", name, lambda row: None)
                return 200, etag(row["version"]), str(row["n"]).encode()
            if version == ABSENT:
                done = db.execute("INSERT OR IGNORE INTO number VALUES (?, ?, 0)", (name, int(body))).rowcount
                return (201 if done else 412), etag(0), b""
            row = optimistic.update(db, "number", name, lambda row: {"n": int(body)}, expected=version)
            return 200, etag(row["version"]), b""
        except Missing:
            return 404, "", b""
        finally:
            db.close()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive()).get("body", b"")
        status, tag, content = await asyncio.to_thread(
            answer, scope["method"], scope["path"], scope.get("holdfast.version"), body
        )
        headers = [(b"etag", tag.encode()), (b"content-type", b"text/plain")] if tag else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return IfMatchMiddleware(app)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with served_by_uvicorn(service(tmp_path / "numbers.db")) as url:
        yield url


def add(amount: int) -> Any:
    return lambda body: str(int(body or 0) + amount)


def test_a_resource_is_made_and_changed(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        numbers = optimistic.Http(client)
        assert [numbers.update("/a", add(n)) for n in (1, 2, 3)] == [b"1", b"3", b"6"]
        assert client.get("/a").headers["etag"] == '"2"'
        with pytest.raises(Conflict):
            numbers.update("/a", add(1), expected='"0"')
        assert numbers.update("/a", add(1), expected='"2"') == b"7"


def test_the_same_in_asyncio(url: str) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            numbers = aio.Http(client)
            await asyncio.gather(*(numbers.update("/b", add(1), retry=PATIENT) for _ in range(8)))
            assert (await client.get("/b")).content == b"8"

    asyncio.run(main())


def test_many_clients_lose_nothing(url: str) -> None:
    def work() -> None:
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            for _ in range(5):
                optimistic.Http(client).update("/c", add(1), retry=PATIENT)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert httpx.get(f"{url}/c", trust_env=False).content == b"20"


def test_a_conflict_tells_the_etags_seen(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        numbers = optimistic.Http(client)
        numbers.update("/d", add(1))

        def change(body: bytes) -> str:
            numbers.update("/d", add(1))
            return "0"

        with pytest.raises(Conflict) as caught:
            numbers.update("/d", change, retry=Retry(attempts=3, first=0))
        assert caught.value.seen == ('"0"', '"1"', '"2"')


def test_what_the_middleware_answers(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        optimistic.Http(client).update("/e", add(1))
        assert client.put("/e", content=b"9").status_code == 428
        for bad in ("7", '"a"', 'W/"1"', '"1", "2"', '"-1"'):
            assert client.put("/e", content=b"9", headers={"if-match": bad}).status_code == 400
        refused = client.put("/e", content=b"9", headers={"if-match": '"5"'})
        assert (refused.status_code, refused.headers["etag"]) == (412, '"0"')
        assert refused.headers["content-type"] == "application/problem+json"
        assert client.get("/e").content == b"1"


def test_what_cannot_be_done_over_http_is_told(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        numbers = optimistic.Http(client)
        with pytest.raises(Unsupported):
            numbers.update_all(["/x", "/y"], lambda bodies: bodies)
        for bad in (7, 'W/"1"', "1"):
            with pytest.raises(Misuse):
                numbers.update("/x", add(1), expected=bad)
        with pytest.raises(Misuse):
            numbers.update("/x", lambda body: 7)
    for version in (-1, True, "1"):
        with pytest.raises(Misuse):
            etag(version)  # type: ignore[arg-type]
    assert [version_of('"7"'), version_of(" * ")] == [7, None]


def test_what_is_to_be_created_does_not_overwrite_what_is_there(tmp_path: Path) -> None:
    """By a handler that hands the version on, as the docs say, and does nothing else."""
    file = tmp_path / "notes.db"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT, version INT NOT NULL)")
        db.execute("INSERT INTO note VALUES (1, 'precious', 7)")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        text = (await receive())["body"].decode()
        with sqlite3.connect(file, isolation_level=None) as db:
            row = optimistic.update(db, "note", 1, lambda row: {"text": text}, expected=scope["holdfast.version"])
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"etag", etag(row["version"]).encode())]}
        )
        await send({"type": "http.response.body", "body": b""})

    async def put(text: str, **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(IfMatchMiddleware(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            named = [(name.replace("_", "-"), value) for name, value in headers.items()]
            return await client.put("/note", content=text, headers=named)

    for star in ("*", " * "):
        refused = asyncio.run(put("overwritten", if_none_match=star))
        assert (refused.status_code, refused.headers["etag"]) == (412, '"7"')
    assert asyncio.run(put("both", if_none_match="*", if_match='"7"')).status_code == 400
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT text, version FROM note").fetchall() == [("precious", 7)]
    assert asyncio.run(put("changed", if_match="*")).status_code == 200
    assert asyncio.run(put("changed again", if_match='"8"')).status_code == 200
