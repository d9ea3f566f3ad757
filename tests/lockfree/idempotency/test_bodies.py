"""The body of a request with a key, when it comes in pieces, or not to its end: over WSGI, where servers differ."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.lockfree import idempotency
from holdfast.lockfree.idempotency import wsgi
from holdfast.lockfree.idempotency.wsgi import IdempotencyMiddleware

from ...fenced.test_mutants_of_refusals import spoil


class Shop:
    """Called as a server calls it."""

    def __init__(self, folder: Path) -> None:
        self.bodies: list[bytes] = []
        file = folder / "keys.db"
        keys = idempotency.Keys(lambda: contextlib.closing(sqlite3.connect(file)), create=True)
        self._middleware = IdempotencyMiddleware(self._handle, keys, caller=None, max_body=100)

    def _handle(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.bodies.append(environ["wsgi.input"].read())
        start_response("201 Created", [])
        return [b"done"]

    def post(self, body: bytes, **environ: Any) -> tuple[int, bytes]:
        told: list[str] = []
        request = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k", **environ}
        answer: Any = self._middleware(
            {**request, "wsgi.input": io.BytesIO(body)}, lambda status, headers: told.append(status)
        )
        whole = b"".join(answer)
        if hasattr(answer, "close"):
            answer.close()
        return int(told[0][:3]), whole


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_body_that_was_cut_off_is_not_handled_and_takes_no_key(shop: Shop) -> None:
    """Else its half would be carried out, and the repetition, which is whole, refused as another request."""
    status, told = shop.post(b"amount=1", CONTENT_LENGTH="11")
    assert (status, json.loads(told)["title"]) == (400, "The request was cut off")
    assert shop.bodies == []
    assert shop.post(b"amount=1000", CONTENT_LENGTH="11") == (201, b"done")
    assert shop.bodies == [b"amount=1000"]


def test_a_chunked_body_whose_end_nobody_tells_is_refused_and_not_taken_for_an_empty_one(shop: Shop) -> None:
    status, told = shop.post(b"amount=10", HTTP_TRANSFER_ENCODING="chunked")
    assert (status, json.loads(told)["title"]) == (411, "The request has no length")
    assert shop.bodies == []


def test_a_chunked_body_is_read_where_the_server_ends_it(shop: Shop) -> None:
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    assert shop.post(b"amount=10", **chunked) == (201, b"done")
    assert shop.bodies == [b"amount=10"]
    assert shop.post(b"amount=99", **chunked)[0] == 422
    assert shop.post(b"x" * 101, HTTP_IDEMPOTENCY_KEY="large", **chunked)[0] == 413


@pytest.mark.parametrize("length", ["", "-1", "\u00b2", "1e1"])
def test_a_length_that_is_none_is_that_of_an_empty_body(shop: Shop, length: str) -> None:
    assert shop.post(b"", CONTENT_LENGTH=length) == (201, b"done")
    assert shop.bodies == [b""]


def test_a_length_beyond_all_numbers_is_too_much(shop: Shop) -> None:
    assert shop.post(b"x", CONTENT_LENGTH="9" * 5000)[0] == 413
    assert shop.post(b"x", CONTENT_LENGTH="0" * 5000 + "1")[0] == 413
    assert shop.bodies == []


def test_a_method_in_small_letters_goes_by_no_side_door(shop: Shop) -> None:
    """Django and Werkzeug, behind us, take `post` for POST."""
    assert shop.post(b"", REQUEST_METHOD="post") == (201, b"done")
    assert shop.post(b"", REQUEST_METHOD="post") == (201, b"done")
    assert shop.bodies == [b""]


MUTANTS = {
    "half a body is a body": (
        "if length and len(body) < wanted:",
        test_a_body_that_was_cut_off_is_not_handled_and_takes_no_key,
    ),
    "a body without an end is empty": (
        'if environ.get("HTTP_TRANSFER_ENCODING"):',
        test_a_chunked_body_whose_end_nobody_tells_is_refused_and_not_taken_for_an_empty_one,
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_with_bodies_is_noticed(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what, test = MUTANTS[mutant]
    spoil(monkeypatch, wsgi, IdempotencyMiddleware, "_body", what, "if False:")
    with pytest.raises((AssertionError, ValueError)):
        test(Shop(tmp_path))
