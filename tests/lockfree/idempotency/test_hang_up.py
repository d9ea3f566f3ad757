"""A client that hangs up in the middle of its answer: the work goes to its end, is remembered, and is not done again."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from holdfast.lockfree.idempotency.asgi import IdempotencyMiddleware

from .services import Service, served, sqlite_keys
from .test_middleware import kind

__all__ = ["kind"]

CHUNK = b"x" * 1000
PATIENCE = 30.0


class Streaming(Service):
    """Has its effect, and then a long answer. `endless`: one that ends only when it is told that nobody listens."""

    def __init__(self, endless: bool = False) -> None:
        super().__init__()
        self.chunks = 1 << 30 if endless else 10
        self.over = threading.Event()

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        await Request(scope, receive).body()
        self.calls.append(scope["path"])
        try:
            await StreamingResponse(self._slowly(), 201)(scope, receive, send)
        finally:
            self.over.set()

    async def _slowly(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            yield CHUNK
            self.inside.set()
            await asyncio.sleep(0.05)

    def wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        self.calls.append(environ["PATH_INFO"])
        start_response("201 Created", [])
        try:
            for _ in range(self.chunks):
                yield CHUNK
                time.sleep(0.05)
        finally:
            self.over.set()


def hang_up_in_the_middle(url: str) -> None:
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), 30) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}")
        assert b"201" in client.recv(100)


def repeat(url: str) -> httpx.Response:
    give_up = time.monotonic() + PATIENCE
    while True:
        again = httpx.post(url, content=b"{}", headers={"Idempotency-Key": "k"}, trust_env=False, timeout=30)
        if "retry-after" not in again.headers or time.monotonic() > give_up:
            return again
        time.sleep(0.05)


def test_a_client_that_hangs_up_over_the_network_gets_the_rest_when_it_comes_again(kind: str, tmp_path: Path) -> None:
    service = Streaming()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi")) as url:
        hang_up_in_the_middle(url)
        again = repeat(url)
        assert (again.status_code, again.headers.get("idempotency-replayed")) == (201, "true")
        assert again.content == CHUNK * service.chunks
    assert len(service.calls) == 1


def test_an_answer_without_end_ends_with_its_ttl_and_the_work_is_not_done_again(kind: str, tmp_path: Path) -> None:
    service = Streaming(endless=True)
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi", ttl=1.0)) as url:
        hang_up_in_the_middle(url)
        assert service.over.wait(PATIENCE)
        again = repeat(url)
        assert (again.status_code, "carried out" in again.json()["title"]) == (409, True)
    assert len(service.calls) == 1


class Caller:
    """A client of an ASGI application, in this process, that hangs up after the first chunk, in one of three ways."""

    def __init__(self, hang_up: str) -> None:
        self.hang_up = hang_up
        self.left = asyncio.Event()
        self.told = False
        self.answer: list[Any] = []

    async def receive(self) -> Any:
        if not self.told:
            self.told = True
            return {"type": "http.request", "body": b"{}"}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.left.is_set() and self.hang_up == "the socket breaks":
            raise BrokenPipeError
        self.answer.append(message)
        if message.get("body") and self.hang_up != "never":
            self.left.set()

    async def post(self, app: Any, version: str) -> None:
        headers = [(b"idempotency-key", b"k")]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b"", "asgi": {}}
        scope["asgi"] = {"version": "3.0", "spec_version": version}
        task = asyncio.create_task(app(scope, self.receive, self.send))
        if self.hang_up == "the request is cancelled":
            await self.left.wait()
            task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("version", ["2.0", "2.4"])  # of ASGI: Starlette looks for those who leave in another way
@pytest.mark.parametrize("hang_up", ["it is heard", "the socket breaks", "the request is cancelled"])
def test_however_a_client_leaves_the_work_is_done_once(tmp_path: Path, hang_up: str, version: str) -> None:
    async def scenario() -> None:
        service = Streaming()
        app = IdempotencyMiddleware(service.asgi, sqlite_keys(tmp_path, True), caller=None)
        await Caller(hang_up).post(app, version)
        give_up = time.monotonic() + PATIENCE
        while True:
            again = Caller("never")
            await again.post(app, version)
            if again.answer[0]["status"] != 409 or time.monotonic() > give_up:
                break
            await asyncio.sleep(0.05)
        assert len(service.calls) == 1
        assert again.answer[0]["status"] == 201
        assert again.answer[1]["body"] == CHUNK * service.chunks

    asyncio.run(scenario())
