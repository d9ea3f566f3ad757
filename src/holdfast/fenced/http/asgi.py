"""ASGI middleware: `app = FencingMiddleware(app)`, or Starlette's `Middleware(FencingMiddleware)`."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Awaitable, Callable

from ...errors import HoldfastError
from ...problems import AsgiApp, Receive, Scope, Send, tell
from ..mark import Mark
from .fencing import Fencing
from .gate import AsyncGate
from .request import SAFE, TokenMissing, check_resource, parse, problem, read_mark, refuse_repeated


class FencingMiddleware(Fencing[AsgiApp, Scope, Callable[[Mark], Awaitable[object]], AsyncGate]):
    """Refuses requests whose token was overtaken (409); the handler finds the mark in `scope["holdfast.mark"]`, to hand to the
    guard of its own storage. The marks are those of this process, unless `marks` keeps them for several."""

    _gates = AsyncGate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        try:
            mark, reads = self._read(scope)
            if mark is None:
                pass
            elif reads:
                self.gate.look(mark)
            elif not self.gate.enter(mark, self._signer is not None):
                await self.gate.wait(mark)
        except HoldfastError as error:
            await tell(send, problem(error))
            return
        if mark is None:
            await self._app(scope, receive, send)
            return
        scope["holdfast.mark"] = mark
        if reads:
            await self._app(scope, receive, send)
            return
        try:
            if self._marks is not None and not await self._recorded(self._marks, mark, send):
                return
            await self._app(scope, receive, send)
        finally:
            self.gate.left(mark)

    def _read(self, scope: Scope) -> tuple[Mark | None, bool]:
        """The mark, and whether it is only looked at: nobody vouches for it, and the request changes nothing."""
        if not self._warned:
            self._warn_once(_one_of_several())
        given = scope["headers"]
        headers = dict(given)
        if len(headers) != len(given):
            refuse_repeated([name for name, _ in given])
        token, resource = headers.get(b"fencing-token"), headers.get(b"fencing-resource")
        safe = scope["method"] in SAFE
        mark: Mark | None
        if self._signer is None and token is not None and resource is not None:
            mark = read_mark(token, resource)  # the usual case, and every microsecond of it is somebody's request
        else:
            signature = headers.get(b"fencing-signature")
            said = None if signature is None else signature.decode("latin-1")  # b"" is a signature, and a bad one
            required = self._required and not safe
            mark = parse(token, resource, said, required, self._signer, scope["method"], scope["path"])
        if self._resource is not None:
            check_resource(mark, self._resource(scope))
        return mark, safe and self._signer is None

    async def _recorded(self, marks: Callable[[Mark], Awaitable[object]], mark: Mark, send: Send) -> bool:
        try:
            await marks(mark)
        except HoldfastError as error:
            await tell(send, problem(error))
            return False
        return True

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket may change something long after it was opened, when its token is a stale one: it cannot be guarded here."""
        if scope["type"] != "websocket" or not self._required:
            await self._app(scope, receive, send)
            return
        refused = TokenMissing("WebSockets cannot be guarded by a token, and this service requires one")
        if "websocket.http.response" in (scope.get("extensions") or {}):
            await tell(send, problem(refused), "websocket.http.response")
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": str(refused)})


def _one_of_several() -> bool:
    """As uvicorn, hypercorn and gunicorn start their workers."""
    several = os.environ.get("WEB_CONCURRENCY", "1")
    return multiprocessing.parent_process() is not None or "gunicorn" in sys.modules or several not in ("", "0", "1")
