"""The header Idempotency-Key, over ASGI and WSGI, behind real servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .services import EVERYTHING, Service, served, sqlite_keys
from .stores import _redis


class Shop:
    def __init__(self, url: str, service: Service) -> None:
        self.service = service
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=30)

    def post(self, path: str, key: str | None = "k", content: bytes = b"", user: str = "") -> httpx.Response:
        sent = {"X-User": user, **({"Idempotency-Key": key} if key is not None else {})}
        return self.client.post(path, content=content, headers=sent)


@pytest.fixture(params=["asgi", "wsgi"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(kind: str, tmp_path: Path) -> Iterator[Shop]:
    service = Service()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi")) as url:
        shop = Shop(url, service)
        with shop.client:
            yield shop


def comparable(response: httpx.Response) -> tuple[Any, ...]:
    headers = [(name, value) for name, value in response.headers.multi_items() if name in ("content-type", "x-twice")]
    return response.status_code, headers, response.content


@pytest.mark.parametrize("path", ["/echo", "/stream", "/empty", "/refuse"])
def test_an_answer_comes_again_as_it_was_the_first_time(shop: Shop, path: str) -> None:
    first, second = (shop.post(path, content=EVERYTHING) for _ in range(2))
    assert comparable(first) == comparable(second)
    assert shop.service.calls == [path]
    assert ("idempotency-replayed" in first.headers, "idempotency-replayed" in second.headers) == (False, True)
    assert [value for name, value in comparable(second)[1] if name == "x-twice"] == ["1", "2"]
    if path == "/echo":
        assert first.content == EVERYTHING[::-1] + b"1"
    if path == "/stream":
        assert first.content == EVERYTHING + b"1" + EVERYTHING


def test_without_a_key_it_is_400(shop: Shop) -> None:
    refused = shop.post("/echo", key=None)
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    assert "Idempotency-Key" in refused.json()["title"]
    for bad in ("x" * 256, '""', "tab\tinside"):
        assert shop.post("/echo", key=bad).status_code == 400
    assert shop.service.calls == []


def test_a_key_given_twice_is_400(shop: Shop) -> None:
    """WSGI servers make one of the two, with a comma: a third key, under which the work would be done once more."""
    for one in ("k", '"k"'):
        twice = [("Idempotency-Key", one), ("Idempotency-Key", one)]
        assert shop.client.post("/echo", headers=twice).status_code == 400
    assert shop.service.calls == []
    assert shop.post("/echo", key='"k,k"').status_code == 201


def test_reading_needs_no_key(shop: Shop) -> None:
    assert shop.client.get("/echo").status_code == 201
    assert shop.service.calls == ["/echo"]


def test_the_same_key_for_another_request_is_422(shop: Shop) -> None:
    shop.post("/echo", content=b"a")
    for other in (
        shop.post("/echo", content=b"b"),
        shop.post("/other", content=b"a"),
        shop.post("/echo?q=1", content=b"a"),
    ):
        assert other.status_code == 422
        assert "another" in other.json()["detail"]
    assert shop.service.calls == ["/echo"]
    assert shop.post("/echo", key='"k"', content=b"a").headers["idempotency-replayed"] == "true"


def test_while_the_first_is_being_worked_on_it_is_409(shop: Shop) -> None:
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(shop.post("/slow")))
    thread.start()
    assert shop.service.inside.wait(30)
    refused = shop.post("/slow")
    shop.service.go_on.set()
    thread.join(30)
    assert (refused.status_code, refused.headers["retry-after"]) == (409, "1")
    assert [answers[0].status_code, shop.post("/slow").content] == [201, answers[0].content]
    assert shop.service.calls == ["/slow"]


def test_failures_of_the_server_are_not_kept(shop: Shop) -> None:
    for _ in range(2):
        assert shop.post("/fail", key="f").status_code == 503
        assert shop.post("/crash", key="c").status_code == 500
    assert shop.service.calls == ["/fail", "/crash"] * 2


def test_an_answer_that_is_too_large_is_given_but_not_kept_and_the_work_is_not_done_twice(shop: Shop) -> None:
    assert shop.post("/big").content == b"x" * 30_000 + b"y" * 30_000
    refused = shop.post("/big")
    assert refused.status_code == 409
    assert "carried out" in refused.json()["title"]
    assert shop.service.calls == ["/big"]


def test_a_request_that_is_too_large_is_refused(kind: str, tmp_path: Path) -> None:
    service = Service()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), max_body=100) as url:
        shop = Shop(url, service)
        with shop.client:
            assert shop.post("/echo", content=b"x" * 100).status_code == 201
            assert shop.post("/echo", content=b"x" * 101).status_code == 413
    assert service.calls == ["/echo"]


def test_a_key_may_be_left_out_where_that_is_allowed(kind: str, tmp_path: Path) -> None:
    service = Service()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), required=False) as url:
        shop = Shop(url, service)
        with shop.client:
            assert [shop.post("/echo", key=None).content for _ in range(2)] == [b"1", b"2"]


def test_waiting_for_the_first_instead_of_409(kind: str, tmp_path: Path) -> None:
    service = Service()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), wait=30) as url:
        shop = Shop(url, service)
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda: answers.append(shop.post("/slow").content)) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert service.inside.wait(30)
        service.go_on.set()
        for thread in threads:
            thread.join(30)
        shop.client.close()
    assert answers == [b"1"] * 4
    assert service.calls == ["/slow"]


@pytest.mark.server
def test_keys_in_redis(kind: str, redis_url: str) -> None:
    from holdfast.lockfree import idempotency
    from holdfast.lockfree.idempotency import aio

    service = Service()
    connect = _redis("redis async" if kind == "asgi" else "redis decoded")
    keys: Any = (aio if kind == "asgi" else idempotency).Keys(lambda: connect(redis_url))  # a client a request
    with served(kind, service, keys) as url:
        shop = Shop(url, service)
        with shop.client:
            key = f"{kind} in Redis"
            assert [shop.post("/stream", key=key).content for _ in range(2)] == [EVERYTHING + b"1" + EVERYTHING] * 2
            assert shop.post("/stream", key=key, content=b"x").status_code == 422
    assert service.calls == ["/stream"]


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_a_stream_is_passed_on_as_it_comes(kind: str, tmp_path: Path) -> None:
    """The first chunk reaches the client while the handler still works on the second."""
    arrived = threading.Event()

    class Slowly(Service):
        async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
            import asyncio

            await send({"type": "http.response.start", "status": 200, "headers": []})
            for chunk in (b"one", b"two"):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            assert await asyncio.to_thread(arrived.wait, 30)
            await send({"type": "http.response.body", "body": b"three"})

        def wsgi(self, environ: Any, start_response: Any) -> Iterator[bytes]:
            start_response("200 OK", [])
            yield b"one"
            yield b"two"
            assert arrived.wait(30)
            yield b"three"

    with (
        served(kind, Slowly(), sqlite_keys(tmp_path, kind == "asgi")) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=30) as client,
    ):
        with client.stream("POST", "/", headers={"Idempotency-Key": "k"}) as response:
            chunks = response.iter_raw()
            begin = next(chunks)
            assert begin.startswith(b"one")
            arrived.set()
            rest = b"".join(chunks)
        assert begin + rest == b"onetwothree"
        assert client.post("/", headers={"Idempotency-Key": "k"}).content == b"onetwothree"
