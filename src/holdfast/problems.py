"""What an HTTP service answers to whoever it refuses: problem+json, RFC 9457, over ASGI and over WSGI."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WsgiApp = Callable[[Environ, StartResponse], Iterable[bytes]]


class Problem(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def described(status: HTTPStatus, title: str, detail: str, headers: list[tuple[str, str]], **extra: object) -> Problem:
    about = {"type": "about:blank", "title": title, "status": int(status), "detail": detail, **extra}
    body = json.dumps(about).encode()
    headers = [*headers, ("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    return Problem(int(status), headers, body)


class Refusal(NamedTuple):
    """What is answered to one kind of error."""

    kind: type[Exception]
    status: HTTPStatus
    title: str
    passing: bool = False  # the same request may succeed in a moment


def refused(error: Exception, refusals: Sequence[Refusal], **extra: object) -> Problem:
    """By the first that fits; the last fits all."""
    found = next((one for one in refusals if isinstance(error, one.kind)), refusals[-1])
    headers = [("retry-after", "1")] if found.passing else []
    return described(found.status, found.title, str(error), headers, **extra)


async def tell(send: Send, told: Problem, kind: str = "http.response") -> None:
    headers = [(name.encode(), value.encode()) for name, value in told.headers]
    await send({"type": f"{kind}.start", "status": told.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": told.body})


def tell_wsgi(start_response: StartResponse, told: Problem) -> list[bytes]:
    start_response(f"{told.status} {HTTPStatus(told.status).phrase}", told.headers)
    return [told.body]
