"""ASGI middleware for the header Idempotency-Key: `app = IdempotencyMiddleware(app, keys, caller=who_asks)`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ...errors import HoldfastError, StaleToken, Unstorable
from ...problems import Message, Receive, Scope, Send, tell
from .aio import Once, Run
from .request import HEADER, REPLAYED, Failed, Reception, Recorder, answer, missing, payload_of, problem

_HEADER = HEADER.lower().encode()
# Ways to answer that go past the messages which are recorded here.
_UNSEEN = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")
_at_work: set[asyncio.Task[None]] = set()  # a loop holds its tasks weakly


class IdempotencyMiddleware(Reception):
    """A request with a key that was answered before gets that answer again: 400 if the key is missing, 409 while the first is
    being worked on, 422 if it came with another request. What is not kept may be tried again."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"].upper() not in self._methods:
            await self._app(scope, receive, send)
            return
        try:
            key = self._key([value for name, value in scope["headers"] if name.lower() == _HEADER], scope)
        except HoldfastError as error:
            await tell(send, problem(error))
            return
        if key is None:
            await (tell(send, missing()) if self._required else self._app(scope, receive, send))
            return
        client = _Client(receive, send, self._ttl)
        # In a task of its own: servers, and middleware outside of this one, cancel the request of a client that hangs up.
        work = asyncio.create_task(self._answer(scope, client, key))
        _at_work.add(work)
        work.add_done_callback(_at_work.discard)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            client.gone = True
            if not client.served:
                work.cancel()
                await asyncio.wait([work])
            raise

    async def _answer(self, scope: Scope, client: _Client, key: str) -> None:
        try:
            body = await self._body(client.hear)
            if body is None:
                return
            path = scope.get("root_path", "") + scope["path"]
            once = self._keys.once(key, payload_of(scope["method"], path, scope.get("query_string", b""), body))
            run = await once.__aenter__()
        except HoldfastError as error:
            await tell(client.send, problem(error))
            return
        if run.first:
            client.serve(body)
            await self._first(scope, client, _Sending(client.send, once, run, self))
        else:
            await once.__aexit__(None, None, None)
            await _replay(client.send, run.result)

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

    async def _first(self, scope: Scope, client: _Client, sending: _Sending) -> None:
        extensions = {name: value for name, value in (scope.get("extensions") or {}).items() if name not in _UNSEEN}
        try:
            await self._app({**scope, "extensions": extensions}, client.receive, sending)
            if not sending.ended:
                raise Failed("the application ended without an answer")
        except BaseException as error:
            await sending.break_off(error, cut=client.told)
            if not isinstance(error, Failed):
                raise


class _Client:
    """Who asked, and may hang up while the work is being done. The application is told only when its run counts as dead: were it
    to stop before, the effect would stand without an answer, and be had again by the next repetition."""

    def __init__(self, receive: Receive, send: Send, ttl: float) -> None:
        self.hear = receive
        self._send = send
        self._ttl = ttl
        self._body: bytes | None = None
        self._until = 0.0
        self.served = False
        self.gone = False
        self.told = False  # the application knows

    def serve(self, body: bytes) -> None:
        self.served = True
        self._body = body
        self._until = asyncio.get_running_loop().time() + self._ttl

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message: Message = {"type": "http.disconnect"} if self.gone else await self.hear()
        if message["type"] == "http.disconnect":
            self.gone = True
            await asyncio.sleep(max(0.0, self._until - asyncio.get_running_loop().time()))
            self.told = True
        return message

    async def send(self, message: Message) -> None:
        if not self.gone:
            try:
                await self._send(message)
                return
            except OSError:
                self.gone = True
        if self.served and asyncio.get_running_loop().time() >= self._until:
            self.told = True
            raise ConnectionResetError("the client has hung up")


class _Sending:
    """Passes the answer on as it comes, all but its end: that is sent when the answer is kept, so that no client believes in
    an answer that the next repetition would not get."""

    def __init__(self, send: Send, once: Once, run: Run, rules: Reception) -> None:
        self._send = send
        self._once = once
        self._run = run
        self._rules = rules
        self._recorder = Recorder(rules._limit)
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
                await self._keep(self._start, self._recorder.body)
            if not self._started:
                self._started = True
                await self._send(self._start)
            await self._send(message)
        else:
            await self._send(message)

    async def break_off(self, error: BaseException, cut: bool) -> None:
        """The application has ended before its answer. `cut`: because we told it to, and what it did stands."""
        if self.ended:
            return
        self.ended = True
        if cut and self._start is not None:
            await self._keep(self._start, None)
        else:
            await self._once.__aexit__(type(error), error, error.__traceback__)

    async def _keep(self, start: Message, body: bytes | None) -> None:
        if not self._rules._keeps(start["status"]):
            failed = Failed()
            await self._once.__aexit__(Failed, failed, None)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]
        self._run.result = answer(start["status"], headers, body)
        try:
            with contextlib.suppress(Unstorable):  # it is remembered as done; this client gets its answer
                await self._once.__aexit__(None, None, None)
        except StaleToken as error:
            if self._started:
                raise
            self._started = True
            await tell(self._send, problem(error))
            raise


async def _replay(send: Send, kept: Any) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept.headers]
    headers.append((REPLAYED.encode(), b"true"))
    await send({"type": "http.response.start", "status": int(str(kept.status)[:3]), "headers": headers})
    await send({"type": "http.response.body", "body": kept.body})
