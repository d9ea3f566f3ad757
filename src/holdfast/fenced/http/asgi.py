"""ASGI middleware: `app = FencingMiddleware(app)`, or Starlette's `Middleware(FencingMiddleware)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ...errors import HoldfastError
from .gate import PATIENCE, AsyncGate
from .request import SAFE, parse, problem
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
        token = resource = signature = None
        for name, value in scope["headers"]:
            if name.startswith(b"fencing-"):
                if name == b"fencing-token":
                    token = value if token is None else b"twice"  # which one would count?
                elif name == b"fencing-resource":
                    resource = value if resource is None else b"%"
                elif name == b"fencing-signature":
                    signature = value
        try:
            mark = parse(
                token.decode("latin-1") if token is not None else None,
                resource.decode("latin-1") if resource is not None else None,
                signature.decode("latin-1") if signature is not None else None,
                self._required and scope["method"] not in SAFE,
                self._signer,
            )
            if mark is not None and not self.gate.enter(mark):
                await self.gate.wait(mark)
        except HoldfastError as error:
            told = problem(error)
            headers = [(name.encode(), value.encode()) for name, value in told.headers]
            await send({"type": "http.response.start", "status": told.status, "headers": headers})
            await send({"type": "http.response.body", "body": told.body})
            return
        if mark is None:
            await self._app(scope, receive, send)
            return
        try:
            scope["holdfast.mark"] = mark
            await self._app(scope, receive, send)
        finally:
            self.gate.left(mark)
