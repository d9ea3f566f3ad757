"""The middlewares behind real HTTP servers, with httpx and requests before them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.handlers import SimpleHandler
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import pytest
import requests
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast import fenced
from holdfast.errors import StaleToken
from holdfast.fenced.http import FencingAuth, Signer, asgi, raise_if_stale, wsgi
from holdfast.fenced.mark import Mark
from holdfast.testing import guards

SECONDS = 20.0
SIGNER = Signer({"2026": b"s" * 32})


class Service:
    """One value a resource, kept by the handler; the middleware stands before it. `kind`: asgi or wsgi."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.values: dict[str, int] = {}
        self.arrived = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        if kind == "asgi":
            routes = [Route("/", self.asgi, methods=["GET", "PUT"])]
            self.app: Any = asgi.FencingMiddleware(Starlette(routes=routes), **options)
            self._serve_asgi()
        else:
            self.app = wsgi.FencingMiddleware(self.wsgi, **options)
            self._serve_wsgi()

    # ---- handlers

    async def asgi(self, request: Request) -> Response:
        mark: Any = request.scope.get("holdfast.mark")
        self.arrived.set()
        if not self.go_on.is_set():
            await asyncio.to_thread(self.go_on.wait, SECONDS)
        if request.method == "PUT":
            self.values[mark.resource] = int(await request.body())
        return JSONResponse(self.values.get(mark.resource) if mark else "read without a token")

    def wsgi(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        mark: Any = environ.get("holdfast.mark")
        start_response("200 OK", [("content-type", "application/json")])
        self.arrived.set()
        assert self.go_on.wait(SECONDS)
        if environ["REQUEST_METHOD"] == "PUT":
            self.values[mark.resource] = int(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        value = self.values.get(mark.resource) if mark else '"read without a token"'
        yield ("null" if value is None else str(value)).encode()  # lazily: it is served until this has been read

    # ---- servers

    def _serve_asgi(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else 40 ms a request, for nothing
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server = uvicorn.Server(uvicorn.Config(self.app, log_level="warning", lifespan="off", ws="none"))
        thread = threading.Thread(target=lambda: server.run([listener]), daemon=True)
        thread.start()
        deadline = time.monotonic() + SECONDS
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.005)

        def close() -> None:
            server.should_exit = True
            thread.join(SECONDS)
            listener.close()

        self.close = close

    def _serve_wsgi(self) -> None:
        class Server(ThreadingMixIn, WSGIServer):
            daemon_threads = True
            request_queue_size = 64

        class Quiet(WSGIRequestHandler):
            def log_message(self, *_: Any) -> None:
                return

        server = make_server("127.0.0.1", 0, self.app, Server, Quiet)
        self.url = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def close() -> None:
            server.shutdown()
            server.server_close()

        self.close = close


class HttpUnderTest:
    most = fenced.MAX_MARK
    transactional = False

    def __init__(self, service: Service, client: Any) -> None:
        """A signed one: there, a read leaves its mark as well."""
        self.service = service
        self.client = client

    def read(self, resource: str, token: int) -> int | None:
        value: int | None = self.ask("GET", resource, token)
        return value

    def write(self, resource: str, token: int, value: int) -> None:
        self.ask("PUT", resource, token, content=str(value).encode())

    def ask(self, method: str, resource: str, token: int, content: bytes = b"") -> Any:
        body = {"content": content} if isinstance(self.client, httpx.Client) else {"data": content}
        response = self.client.request(
            method, self.service.url, auth=FencingAuth((resource, token), SIGNER.sign), **body
        )
        raise_if_stale(response)
        assert response.status_code == 200, response.text
        return response.json()

    def seen(self, resource: str) -> int:
        return int(self.service.app.gate.seen(resource))

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def guard(request: pytest.FixtureRequest) -> Iterator[HttpUnderTest]:
    service = Service(request.param, signer=SIGNER)
    if request.param == "asgi":
        with httpx.Client(trust_env=False) as client:
            yield HttpUnderTest(service, client)
    else:
        with requests.Session() as session:
            session.trust_env = False
            yield HttpUnderTest(service, session)
    service.close()


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_a_fenced_service(check: guards.Check, guard: HttpUnderTest) -> None:
    check(guard)


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """Nobody signs here."""
    service = Service(request.param)
    yield service
    service.close()


def ask(url: str, method: str = "PUT", **headers: str) -> httpx.Response:
    named = {f"Fencing-{name.title()}": value for name, value in headers.items()}
    return httpx.request(method, url, headers=named, content=b"1", trust_env=False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 428),
        ({"token": "5"}, 428),
        ({"resource": "r"}, 428),
        ({"token": "0", "resource": "r"}, 400),
        ({"token": "-1", "resource": "r"}, 400),
        ({"token": "1.0", "resource": "r"}, 400),
        ({"token": "1e3", "resource": "r"}, 400),
        ({"token": "0x1", "resource": "r"}, 400),
        ({"token": "٣".encode().decode("latin-1"), "resource": "r"}, 400),
        ({"token": "9223372036854775808", "resource": "r"}, 400),
        ({"token": "1" * 5000, "resource": "r"}, 400),
        ({"token": "1", "resource": ""}, 400),
        ({"token": "1", "resource": "%ff"}, 400),
        ({"token": "1", "resource": "n" * 513}, 400),
        ({"token": "1", "resource": "a%00b"}, 400),
        ({"token": "1", "resource": "fine"}, 200),
    ],
)
def test_what_a_request_must_say(service: Service, headers: dict[str, str], status: int) -> None:
    response = httpx.request(
        "PUT",
        service.url,
        headers={f"Fencing-{name.title()}".encode(): value.encode("latin-1") for name, value in headers.items()},
        content=b"1",
        trust_env=False,
    )
    assert response.status_code == status
    if status != 200:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["status"] == status


@pytest.mark.parametrize(
    "headers",
    [
        [("Fencing-Token", "1"), ("Fencing-Token", "2"), ("Fencing-Resource", "r")],
        [("Fencing-Token", "1"), ("Fencing-Resource", "r"), ("Fencing-Resource", "r")],
    ],
)
def test_a_header_given_twice_is_refused(service: Service, headers: list[tuple[str, str]]) -> None:
    """Of those two, a proxy before us may have looked at the other; and "r,r" is the name of nothing."""
    assert httpx.put(service.url, headers=headers, content=b"1", trust_env=False).status_code == 400
    assert service.app.gate.seen("r,r") == 0


def test_a_name_with_a_comma_is_percent_encoded(service: Service) -> None:
    answer = httpx.put(service.url, content=b"1", auth=FencingAuth(("a,a", 3)), trust_env=False)
    assert (answer.status_code, service.app.gate.seen("a,a")) == (200, 3)


def test_an_empty_signature_is_a_bad_one() -> None:
    signed = Service("asgi", signer=SIGNER)
    assert ask(signed.url, token="7", resource="r", signature="").status_code == 403
    signed.close()


def test_reading_without_a_token_is_allowed(service: Service) -> None:
    assert ask(service.url, "GET").json() == "read without a token"


def test_a_refusal_is_a_problem_document(service: Service) -> None:
    ask(service.url, token="9", resource="invoice%3A42")
    response = ask(service.url, token="8", resource="invoice:42")
    assert response.status_code == 409
    about = response.json()
    assert (about["title"], about["resource"], about["seen"], about["presented"]) == (
        "Stale fencing token",
        "invoice:42",
        9,
        8,
    )
    with pytest.raises(StaleToken) as caught:
        raise_if_stale(response)
    assert abs((caught.value.since or 0) - time.time()) < 60


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_a_newer_request_waits_for_an_older_one_that_is_being_served(kind: str) -> None:
    """Kills check-then-write: the older handler's write would land after the newer one's."""
    service = Service(kind)
    service.go_on.clear()
    answers: dict[str, int] = {}

    def put(token: str) -> None:
        answers[token] = ask(service.url, token=token, resource="r").status_code

    older = threading.Thread(target=put, args=("1",), daemon=True)
    older.start()
    assert service.arrived.wait(SECONDS)
    service.arrived.clear()
    newer = threading.Thread(target=put, args=("2",), daemon=True)
    newer.start()
    deadline = time.monotonic() + SECONDS
    while service.app.gate.seen("r") != 2:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert not service.arrived.is_set(), "both are being served at once"
    assert ask(service.url, token="1", resource="r").status_code == 409
    service.go_on.set()
    older.join(SECONDS)
    newer.join(SECONDS)
    assert answers == {"1": 200, "2": 200}
    service.close()


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_waiting_ends_with_a_503(kind: str) -> None:
    service = Service(kind, patience=0.05)
    service.go_on.clear()
    older = threading.Thread(target=ask, args=(service.url,), kwargs={"token": "1", "resource": "r"}, daemon=True)
    older.start()
    assert service.arrived.wait(SECONDS)
    response = ask(service.url, token="2", resource="r")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    service.go_on.set()
    older.join(SECONDS)
    assert ask(service.url, token="2", resource="r").status_code == 200
    service.close()


def test_a_jump_is_capped() -> None:
    service = Service("asgi", max_jump=100)
    assert ask(service.url, token="1000", resource="r").status_code == 200
    assert ask(service.url, token="1101", resource="r").status_code == 422
    assert ask(service.url, token="1100", resource="r").status_code == 200
    service.close()


def test_a_signed_service_takes_only_signed_tokens() -> None:
    signer = Signer({"2026": b"o" * 32, "2027": b"n" * 32})
    service = Service("wsgi", signer=Signer({"2026": b"o" * 32, "2027": b"n" * 32}))
    lease = Mark("invoice:42", 7)
    with httpx.Client(trust_env=False) as client:
        assert client.put(service.url, content=b"1", auth=FencingAuth(lease, signer.sign)).status_code == 200
        assert client.put(service.url, content=b"1", auth=FencingAuth(lease)).status_code == 403
        huge = FencingAuth(Mark("invoice:42", 2**62), lambda _, method, path: signer.sign(lease, method, path))
        assert client.put(service.url, content=b"1", auth=huge).status_code == 403
        taken = FencingAuth(lease, lambda *_: signer.sign(lease, "DELETE", "/"))
        assert client.put(service.url, content=b"1", auth=taken).status_code == 403
    assert service.app.gate.seen("invoice:42") == 7, "a forged huge number moved the mark"
    service.close()


def test_reading_with_a_token_that_nobody_signed_leaves_no_mark(service: Service) -> None:
    """Else anybody could shut the holder out, or fill the table of marks, by asking a harmless question."""
    kept = len(service.app.gate._resources)
    assert ask(service.url, "GET", token="99", resource="only read").status_code == 200
    assert service.app.gate.seen("only read") == 0
    assert len(service.app.gate._resources) == kept
    assert ask(service.url, token="5", resource="only read").status_code == 200
    assert ask(service.url, "GET", token="4", resource="only read").status_code == 409, (
        "who was overtaken reads nothing"
    )
    assert ask(service.url, token=str(2**62), resource="far ahead").status_code == 422


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_a_token_opens_only_the_route_of_its_resource(kind: str) -> None:
    service = Service(kind, resource=lambda request: "invoice:42")
    assert ask(service.url, token="7", resource="invoice:42").status_code == 200
    response = ask(service.url, token="7", resource="mine")
    assert (response.status_code, response.json()["title"]) == (403, "Fencing token of another resource")
    assert service.app.gate.seen("mine") == 0
    service.close()


@pytest.mark.server
@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_the_marks_of_several_workers_are_one_in_redis(kind: str, redis_url: str) -> None:
    import redis.asyncio

    name = f"workers {time.time_ns()}"

    async def seal(mark: Mark) -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as client:
            await fenced.aio.Redis(client, mark).seal()

    def seal_in_threads(mark: Mark) -> None:
        with redis.Redis.from_url(redis_url) as client:
            fenced.Redis(client, mark).seal()

    one, other = (Service(kind, marks=seal if kind == "asgi" else seal_in_threads) for _ in range(2))
    assert ask(one.url, token="2", resource=name).status_code == 200
    assert ask(other.url, token="1", resource=name).status_code == 409
    assert ask(other.url, token="3", resource=name).status_code == 200
    assert ask(one.url, token="2", resource=name).status_code == 409
    assert ask(one.url, token="3", resource=name).status_code == 200, "a refusal left the gate shut"
    one.close()
    other.close()


def test_a_websocket_is_refused_where_a_token_is_required() -> None:
    opened = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        opened.append(scope["type"])

    async def open_one(extensions: dict[str, Any], **options: Any) -> list[Any]:
        told: list[Any] = []

        async def send(message: Any) -> None:
            told.append(message)

        scope = {"type": "websocket", "headers": [], "path": "/", "extensions": extensions}
        await asgi.FencingMiddleware(app, **options)(scope, None, send)  # type: ignore[arg-type]  # it must not listen
        return told

    assert asyncio.run(open_one({}))[0]["type"] == "websocket.close"
    assert asyncio.run(open_one({}, signer=SIGNER))[0]["code"] == 1008
    start, body = asyncio.run(open_one({"websocket.http.response": {}}))
    assert (start["type"], start["status"], body["type"]) == (
        "websocket.http.response.start",
        428,
        "websocket.http.response.body",
    )
    assert not opened
    assert asyncio.run(open_one({}, required=False)) == []
    assert opened == ["websocket"]


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_several_processes_without_common_marks_are_told_so_once(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    set_up = SimpleHandler.setup_environ

    def with_several(handler: Any) -> None:
        set_up(handler)
        handler.environ["wsgi.multiprocess"] = True

    monkeypatch.setattr(SimpleHandler, "setup_environ", with_several)
    service = Service(kind)
    for token in ("1", "2"):
        assert ask(service.url, token=token, resource="r").status_code == 200
    assert [record.name for record in caplog.records if "several processes" in record.getMessage()] == [
        "holdfast.fenced"
    ]
    service.close()
    quiet = Service(kind, marks=_async_nothing if kind == "asgi" else lambda mark: None)
    caplog.clear()
    assert ask(quiet.url, token="1", resource="r").status_code == 200
    assert not caplog.records
    quiet.close()


async def _async_nothing(mark: Mark) -> None:
    return
