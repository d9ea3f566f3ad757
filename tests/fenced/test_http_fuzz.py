"""Any requests, in any order, against the gates: none older than one that was served is served, and nothing breaks.

`make soak` has the long form.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, quote_from_bytes

from holdfast.drivers.base import finish
from holdfast.errors import StaleToken
from holdfast.fenced.http import FencingAuth, Signer, asgi, raise_if_stale, wsgi
from holdfast.fenced.http.request import SAFE

from ..properties import examples, given, st

LONG = examples(60)
SIGNER = Signer({"fuzz": b"f" * 32})
REFUSALS = {400, 403, 409, 422, 428, 503}
NAMES = ["a", "invoice:42", "ü", "a,a", "a b", "%", "a\r\nb"]

Header = tuple[bytes, bytes]


class Asked(NamedTuple):
    method: str
    path: str  # as it is sent
    headers: list[Header]
    honest: tuple[str, int] | None  # what a client of ours would have meant by it, if it is one

    @property
    def bytes_of_path(self) -> bytes:
        return self.path.encode("utf-8", "surrogateescape")


class Served(NamedTuple):
    status: int
    mark: Any  # what the handler was given; None if it was not reached, or reached without one
    reached: bool


methods = st.sampled_from(["GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE", "put", "PROPFIND", "get"])
paths = st.sampled_from(["/", "//", "/invoices/42", "/invoices/../admin", "/ü", "/\udcff", "/\udcfe", "/*"])
tokens = st.integers(1, 12)
words = st.one_of(
    st.sampled_from([b"", b"0", b"-1", b" 7", b"7 ", b"07", b"7,8", b"1e3", b"%00", b"%ff", b"a,b", b"9" * 30]),
    st.binary(max_size=12).map(lambda raw: quote_from_bytes(raw).encode()),
    st.binary(max_size=12).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"")),
)


@st.composite
def honest(draw: st.DrawFn, signed: bool) -> Asked:
    method, path = draw(methods).upper(), draw(paths)
    ticket = draw(st.sampled_from(NAMES)), draw(tokens)
    headers = Said(method, f"http://shop{quote(path.encode('utf-8', 'surrogateescape'))}")
    FencingAuth(ticket, SIGNER.sign if signed else None)(headers)
    return Asked(
        method, path, [(name.lower().encode(), text.encode()) for name, text in headers.headers.items()], ticket
    )


class Said:
    """A request as FencingAuth wants it."""

    def __init__(self, method: str, url: str) -> None:
        self.method, self.url = method, url
        self.headers: dict[str, str] = {}


@st.composite
def dishonest(draw: st.DrawFn, signed: bool) -> Asked:
    """Something of an honest one, spoilt: headers left out, twice, or anything."""
    asked = draw(honest(signed))
    headers = list(asked.headers)
    for _ in range(draw(st.integers(1, 3))):
        what = draw(st.sampled_from(["leave out", "twice", "anything", "other method", "other path"]))
        if what == "leave out" and headers:
            headers.pop(draw(st.integers(0, len(headers) - 1)))
        elif what == "twice" and headers:
            name, text = draw(st.sampled_from(headers))
            headers.append((name, draw(st.one_of(st.just(text), words))))
        elif what == "anything":
            name = draw(st.sampled_from([b"fencing-token", b"fencing-resource", b"fencing-signature"]))
            headers = [one for one in headers if one[0] != name] + [(name, draw(words))]
        elif what == "other method":
            asked = asked._replace(method=draw(methods))
        else:
            asked = asked._replace(path=draw(paths))
    return asked._replace(headers=headers, honest=None)


def requests(signed: bool) -> st.SearchStrategy[list[Asked]]:
    return st.lists(st.one_of(honest(signed), dishonest(signed)), max_size=12)


def over_asgi(signer: Signer | None) -> Callable[[Asked], Served]:
    reached: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope.get("holdfast.mark"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    middleware = asgi.FencingMiddleware(app, signer=signer)

    def ask(asked: Asked) -> Served:
        told: list[Any] = []

        async def send(message: Any) -> None:
            told.append(message)

        path = asked.bytes_of_path.decode("utf-8", "replace")  # as uvicorn does
        scope = {"type": "http", "method": asked.method, "path": path, "headers": asked.headers}
        before = len(reached)
        finish(middleware(scope, None, send))  # type: ignore[arg-type]  # nobody listens, and nobody waits
        return Served(told[0]["status"], reached[-1] if len(reached) > before else None, len(reached) > before)

    return ask


def over_wsgi(signer: Signer | None) -> Callable[[Asked], Served]:
    reached: list[Any] = []

    def app(environ: dict[str, Any], start_response: Any) -> Sequence[bytes]:
        reached.append(environ.get("holdfast.mark"))
        start_response("200 OK", [])
        return [b""]

    middleware = wsgi.FencingMiddleware(app, signer=signer)

    def ask(asked: Asked) -> Served:
        told: list[str] = []
        environ = {"REQUEST_METHOD": asked.method, "PATH_INFO": asked.bytes_of_path.decode("latin-1")}
        environ["SCRIPT_NAME"] = ""
        for name, text in asked.headers:  # what is given twice is joined, as every server does
            key, value = f"HTTP_{name.decode().replace('-', '_').upper()}", text.decode("latin-1")
            environ[key] = f"{environ[key]},{value}" if key in environ else value
        before = len(reached)
        body: Any = middleware({**environ, "wsgi.input": io.BytesIO()}, lambda status, headers: told.append(status))
        list(body)
        if hasattr(body, "close"):
            body.close()
        return Served(int(told[0][:3]), reached[-1] if len(reached) > before else None, len(reached) > before)

    return ask


def check(ask: Callable[[Asked], Served], asked: list[Asked], signed: bool) -> None:
    highest: dict[str, int] = {}
    for one in asked:
        served = ask(one)
        assert served.status in REFUSALS | {200}, one
        assert served.reached == (served.status == 200), one
        if not served.reached:
            continue
        if served.mark is None:
            assert one.method in SAFE, f"something was changed without a token: {one}"
            continue
        name, token = served.mark
        assert token >= highest.get(name, 0), f"an older token was served: {one}"
        if one.honest is not None:
            assert (name, token) == one.honest, "it was taken for somebody else"
        if signed:
            assert one.honest is not None or (name, token) in SIGNED, f"nobody has signed that: {one}"
        if signed or one.method not in SAFE:
            highest[name] = token


SIGNED = {(name, token) for name in NAMES for token in range(1, 13)}


@LONG
@given(requests(signed=False))
def test_no_older_request_is_served_over_asgi(asked: list[Asked]) -> None:
    check(over_asgi(None), asked, signed=False)


@LONG
@given(requests(signed=False))
def test_no_older_request_is_served_over_wsgi(asked: list[Asked]) -> None:
    check(over_wsgi(None), asked, signed=False)


@LONG
@given(requests(signed=True))
def test_no_older_request_is_served_over_asgi_with_signatures(asked: list[Asked]) -> None:
    check(over_asgi(SIGNER), asked, signed=True)


@LONG
@given(requests(signed=True))
def test_no_older_request_is_served_over_wsgi_with_signatures(asked: list[Asked]) -> None:
    check(over_wsgi(SIGNER), asked, signed=True)


values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]))


class Response:
    status_code = 409

    def __init__(self, about: dict[str, Any]) -> None:
        self.headers = {"content-type": "application/problem+json; charset=utf-8"}
        self._about = about

    def json(self) -> Any:
        return {"title": "Stale fencing token", **self._about}


@LONG
@given(st.dictionaries(st.sampled_from(["resource", "presented", "seen", "since", "title"]), values))
def test_whatever_a_service_answers_is_a_refusal_or_none(about: dict[str, Any]) -> None:
    with contextlib.suppress(StaleToken):
        raise_if_stale(Response(about))
