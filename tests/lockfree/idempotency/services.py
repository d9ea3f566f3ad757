"""One small service twice, for ASGI and for WSGI, behind real servers; it counts what it was made to do."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import aiosqlite
import uvicorn

from holdfast.lockfree import idempotency
from holdfast.lockfree.idempotency import aio
from holdfast.lockfree.idempotency.asgi import IdempotencyMiddleware as AsgiMiddleware
from holdfast.lockfree.idempotency.wsgi import IdempotencyMiddleware as WsgiMiddleware

EVERYTHING = bytes(range(256))
LIMIT = 50_000


class Service:
    """What both kinds do: a path, the body, and what is answered, chunk by chunk."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.inside = threading.Event()  # somebody is in /slow
        self.go_on = threading.Event()
        self.headers = [("content-type", "application/x-test"), ("x-twice", "1"), ("x-twice", "2")]

    def answer(self, path: str, body: bytes) -> tuple[int, list[bytes]]:
        self.calls.append(path)
        if path == "/crash":
            raise ZeroDivisionError
        if path == "/slow":
            self.inside.set()
            assert self.go_on.wait(30)
        status = {"/fail": 503, "/refuse": 404}.get(path, 201)
        if path.startswith("/status/"):
            status = int(path.removeprefix("/status/"))
        count = b"%d" % len(self.calls)
        bodies = {
            "/echo": [body[::-1] + count],
            "/stream": [EVERYTHING, b"", count, EVERYTHING],
            "/empty": [],
            "/big": [b"x" * 30_000, b"y" * 30_000],
        }
        return status, bodies.get(path, [count])

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        import asyncio

        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        status, chunks = await asyncio.to_thread(self.answer, scope["path"], body)
        headers = [(name.encode(), value.encode()) for name, value in self.headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, chunks = self.answer(environ["PATH_INFO"], body)
        start_response(f"{status} Told", self.headers)
        yield from chunks


def sqlite_keys(path: Path, asynchronous: bool, **rules: Any) -> Any:
    file = path / "keys.db"
    if asynchronous:
        return aio.Keys(lambda: aiosqlite.connect(file, timeout=30), create=True, limit=LIMIT, **rules)
    return idempotency.Keys(
        lambda: contextlib.closing(sqlite3.connect(file, timeout=30)), create=True, limit=LIMIT, **rules
    )


@contextlib.contextmanager
def served_by_uvicorn(app: Any) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
    listener.close()


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        return


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        return

    def get_stderr(self) -> Any:
        import io

        return io.StringIO()


@contextlib.contextmanager
def served_by_wsgiref(app: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, server_class=_Threads, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(30)


@contextlib.contextmanager
def served(kind: str, service: Service, keys: Any, **options: Any) -> Iterator[str]:
    options = {"caller": None, **options}
    serve: Callable[[Any], Any]
    if kind == "asgi":
        app: Any = AsgiMiddleware(service.asgi, keys, **options)
        serve = served_by_uvicorn
    else:
        app = WsgiMiddleware(service.wsgi, keys, **options)
        serve = served_by_wsgiref
    with serve(app) as url:
        yield url
