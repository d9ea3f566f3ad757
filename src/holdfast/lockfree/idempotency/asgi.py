"""ASGI middleware for the header Idempotency-Key: `app = IdempotencyMiddleware(app, keys)`."""

from __future__ import annotations

import contextlib
from typing import Any

from ...errors import HoldfastError, StaleToken, Unstorable
from ...fenced.http.asgi import Message, Receive, Scope, Send, tell
from .aio import Once, Run
from .request import (
    HEADER,
    REPLAYED,
    Answer,
    Failed,
    Reception,
    Recorder,
    missing,
    payload_of,
    problem,
    server_error,
)

_HEADER = HEADER.lower().encode()
# Ways to answer that go past the messages which are recorded here.
_UNSEEN = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")


class IdempotencyMiddleware(Reception):
    """A request with a key that was answered before gets that answer again: 400 if the key is missing, 409 while the first is
    being worked on, 422 if it came with another request. Answers of 500 and above are not kept."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        try:
            key = self._key([value for name, value in scope["headers"] if name.lower() == _HEADER], scope)
            if key is None:
                await (tell(send, missing()) if self._required else self._app(scope, receive, send))
                return
            body = await self._body(receive)
            if body is None:
                return
            path = scope.get("root_path", "") + scope["path"]
            once = self._keys.once(key, payload_of(scope["method"], path, scope.get("query_string", b""), body))
            run = await once.__aenter__()
        except HoldfastError as error:
            await tell(send, problem(error))
            return
        if run.first:
            await self._first(scope, _again(body, receive), send, once, run)
        else:
            await once.__aexit__(None, None, None)
            await _replay(send, run.result)

    async def _body(self, receive: Receive) -> bytes | None:
        chunks, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            self._checked(size)
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def _first(self, scope: Scope, receive: Receive, send: Send, once: Once, run: Run) -> None:
        sending = _Sending(send, once, run, self._limit)
        extensions = {name: value for name, value in (scope.get("extensions") or {}).items() if name not in _UNSEEN}
        try:
            await self._app({**scope, "extensions": extensions}, receive, sending)
            if not sending.ended:
                raise Failed("the application ended without an answer")
        except BaseException as error:
            if not sending.ended:
                await once.__aexit__(type(error), error, error.__traceback__)
            if not isinstance(error, Failed):
                raise


class _Sending:
    """Passes the answer on as it comes, all but its end: that is sent when the answer is kept, so that no client believes in
    an answer that the next repetition would not get."""

    def __init__(self, send: Send, once: Once, run: Run, limit: int) -> None:
        self._send = send
        self._once = once
        self._run = run
        self._recorder = Recorder(limit)
        self._start: Message | None = None
        self._started = False
        self.ended = False

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
        elif kind == "http.response.body" and self._start is not None and not self.ended:
            self._recorder.add(message.get("body", b""))
            if not message.get("more_body", False):
                self.ended = True
                await self._keep(self._start)
            await self._pass(message)
        else:
            await self._send(message)

    async def _pass(self, message: Message) -> None:
        # A client that has gone away must not keep the work from being done and remembered.
        with contextlib.suppress(OSError):
            if not self._started and self._start is not None:
                self._started = True
                await self._send(self._start)
            await self._send(message)

    async def _keep(self, start: Message) -> None:
        if server_error(start["status"]):
            failed = Failed()
            await self._once.__aexit__(Failed, failed, None)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]
        self._run.result = Answer(start["status"], headers, self._recorder.body)
        try:
            with contextlib.suppress(Unstorable):  # it is remembered as done; this client gets its answer
                await self._once.__aexit__(None, None, None)
        except StaleToken as error:
            if self._started:
                raise
            self._started = True
            await tell(self._send, problem(error))
            raise


def _again(body: bytes, receive: Receive) -> Receive:
    told = False

    async def once_more() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once_more


async def _replay(send: Send, answer: Any) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((REPLAYED.encode(), b"true"))
    await send({"type": "http.response.start", "status": int(str(answer.status)[:3]), "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
