"""Who is given which answer again: nobody another's, nothing of a login or a connection, nothing that was true for a moment."""

from __future__ import annotations

import itertools
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast import Misuse
from holdfast.lockfree.idempotency.asgi import IdempotencyMiddleware as Asgi
from holdfast.lockfree.idempotency.request import read_key
from holdfast.lockfree.idempotency.wsgi import IdempotencyMiddleware as Wsgi

from .services import Service, served, sqlite_keys
from .test_middleware import Shop, kind

__all__ = ["kind"]


def caller_of(kind: str) -> Any:
    if kind == "wsgi":
        return lambda environ: environ["HTTP_X_USER"]
    return lambda scope: dict(scope["headers"])[b"x-user"].decode()


def test_callers_do_not_see_each_others_answers(kind: str, tmp_path: Path) -> None:
    service = Service()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), caller=caller_of(kind)) as url:
        shop = Shop(url, service)
        with shop.client:
            answers = [shop.post("/echo", user=user).content for user in ("alice", "bob", "alice")]
    assert answers == [b"1", b"2", b"1"]


def test_nobody_reaches_a_callers_answer_by_a_key_that_looks_like_it(kind: str, tmp_path: Path) -> None:
    service = Service()
    digest = sha256(b"alice").hexdigest()
    forged = [
        f"{digest[:32]}:k",
        f"{digest}:k",
        f"caller:{digest}:k",
        f"http:caller:{digest}:k",
        f"../caller:{digest}:k",
    ]
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), caller=caller_of(kind)) as url:
        shop = Shop(url, service)
        with shop.client:
            assert shop.post("/echo", key="k", user="alice").content == b"1"
            for key, user in itertools.product(forged, ("", "mallory")):
                assert "idempotency-replayed" not in shop.post("/echo", key=key, user=user).headers


def test_names_of_callers_and_keys_never_meet() -> None:
    parts = ["a", "b", ":", "a:", ":a", "a:b", "caller:a", "anybody:a", "anybody", "%3A", sha256(b"a").hexdigest()]
    names = [read_key([key], caller) for caller in (None, *parts) for key in parts]
    assert len(set(names)) == len(names)
    assert read_key(["a"], "") == read_key(["a"], None)  # a caller without a name is nobody
    longest = read_key(["x" * 255], "ä" * 10_000)
    assert longest is not None
    assert len(longest) <= 512


@pytest.mark.parametrize("middleware", [Asgi, Wsgi])
def test_who_asks_must_be_said(middleware: Any, tmp_path: Path) -> None:
    keys = sqlite_keys(tmp_path, middleware is Asgi)
    with pytest.raises(TypeError, match="caller"):
        middleware(Service(), keys)
    with pytest.raises(Misuse, match="caller must be a function"):
        middleware(Service(), keys, caller="alice")
    middleware(Service(), keys, caller=None)


def test_a_caller_that_is_no_text_is_an_error_of_the_server(kind: str, tmp_path: Path) -> None:
    service = Service()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), caller=lambda _: 42) as url:
        shop = Shop(url, service)
        with shop.client:
            assert shop.post("/echo").status_code == 500
    assert service.calls == []


def test_cookies_and_what_is_for_one_connection_do_not_come_again(kind: str, tmp_path: Path) -> None:
    service = Service()
    private = [
        ("Set-Cookie", "session=alice"),
        ("www-authenticate", "Bearer"),
        ("Authentication-Info", "nextnonce=1"),
        ("Clear-Site-Data", '"cookies"'),
    ]
    if kind == "asgi":  # WSGI forbids an application to send these at all
        private += [
            ("Connection", "X-Hop"),
            ("X-Hop", "1"),
            ("Proxy-Authenticate", "Basic"),
            ("Keep-Alive", "timeout=5"),
        ]
    service.headers += [*private, ("x-stays", "1")]
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi")) as url:
        shop = Shop(url, service)
        with shop.client:
            first, second = shop.post("/echo"), shop.post("/echo")
    assert service.calls == ["/echo"]
    for name, value in private:
        assert first.headers[name] == value
        if name != "Connection":
            assert name not in second.headers
    assert second.headers["x-stays"] == "1"
    assert second.headers.get("connection") != "X-Hop"
    assert b"alice" not in (tmp_path / "keys.db").read_bytes()


@pytest.mark.parametrize("status", [401, 403, 408, 409, 423, 425, 429, 500, 503])
def test_what_is_true_for_a_moment_is_not_kept(kind: str, tmp_path: Path, status: int) -> None:
    service = Service()
    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), keep=lambda status: True) as url:
        shop = Shop(url, service)
        with shop.client:
            for _ in range(2):
                answer = shop.post(f"/status/{status}")
                assert (answer.status_code, "idempotency-replayed" in answer.headers) == (status, False)
    assert service.calls == [f"/status/{status}"] * 2


def test_which_of_the_others_are_kept_may_be_said(kind: str, tmp_path: Path) -> None:
    service = Service()
    asked: list[int] = []

    def keep(status: int) -> bool:
        asked.append(status)
        return status < 400

    with served(kind, service, sqlite_keys(tmp_path, kind == "asgi"), keep=keep) as url:
        shop = Shop(url, service)
        with shop.client:
            for path in ("/refuse", "/refuse", "/echo", "/echo"):
                shop.post(path, key=path)
    assert service.calls == ["/refuse", "/refuse", "/echo"]
    assert asked == [404, 404, 201]
