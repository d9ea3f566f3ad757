"""ASGI middleware: `app = FencingMiddleware(app)`, or Starlette's `Middleware(FencingMiddleware)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ...errors import HoldfastError
from ..mark import Mark
from .gate import PATIENCE, AsyncGate
from .request import SAFE, Problem, parse, problem, read_mark, refuse_repeated
from .signature import Signer

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class FencingMiddleware:
    """Refuses requests whose token was overtaken (409), in one process; the handler finds the mark in
    `scope["holdfast.mark"]`, to hand to the guard of its own storage."""

    def __init__(
        self,
        app: App,
        *,
        signer: Signer | None = None,
        required: bool = True,
        max_jump: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`required`: a request that may change something must carry a token; reading without one is always allowed."""
        self._app = app
        self._signer = signer
        self._required = required
        self.gate = AsyncGate(max_jump=max_jump, patience=patience)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = scope["headers"]
        headers = dict(given)
        try:
            if len(headers) != len(given):
                refuse_repeated([name for name, _ in given])
            token, resource = headers.get(b"fencing-token"), headers.get(b"fencing-resource")
            mark: Mark | None
            if self._signer is None and token is not None and resource is not None:
                mark = read_mark(token, resource)  # the usual case, and every microsecond of it is somebody's request
            else:
                signature = headers.get(b"fencing-signature")
                required = self._required and scope["method"] not in SAFE
                mark = parse(token, resource, signature and signature.decode("latin-1"), required, self._signer)
            if mark is not None and not self.gate.enter(mark):
                await self.gate.wait(mark)
        except HoldfastError as error:
            await tell(send, problem(error))
            return
        if mark is None:
            await self._app(scope, receive, send)
            return
        try:
            scope["holdfast.mark"] = mark
            await self._app(scope, receive, send)
        finally:
            self.gate.left(mark)


async def tell(send: Send, told: Problem) -> None:
    headers = [(name.encode(), value.encode()) for name, value in told.headers]
    await send({"type": "http.response.start", "status": told.status, "headers": headers})
    await send({"type": "http.response.body", "body": told.body})
