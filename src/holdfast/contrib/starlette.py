"""Starlette: locks that open and close with the application, and endpoints that run under one. See docs/fastapi.md.

app = Starlette(routes=[…], lifespan=lifespan("redis://localhost:6379"))

@locked("order:{order_id}")          # 409 with Retry-After, if another request is at it
async def pay(request): request.state.lease.token
"""

from __future__ import annotations

import functools
import string
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .. import aio
from ..claim import valid_name
from ..decorating import Unnameable, filling
from ..errors import LeaseLost, Misuse, NotAcquired, Unavailable
from ..recipes import DEFAULT_TTL
from .http import ANSWERED, CONFLICT, Answered, answer, valid_status

__all__ = ["lifespan", "locks_of", "locked", "exception_handlers"]

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
Endpoint = Callable[[Request], Awaitable[Response]]


def lifespan(url: str | None = None, *, also: Lifespan | None = None, check: bool = True, label: str = "") -> Lifespan:
    """For `Starlette(lifespan=…)` or `FastAPI(lifespan=…)`: connects when the application starts, closes when it ends.

    `check`: a wrong address or login ends the start. `also`: a lifespan of your own, which runs inside this one.
    """

    if url is not None and not isinstance(url, str):  # the application, that is
        raise Misuse(f"lifespan takes the URL of a store, not {type(url).__name__}: write lifespan=lifespan(url)")

    @asynccontextmanager
    async def opened(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            locks = await stack.enter_async_context(aio.connect(url, label=label))
            if check:
                await locks.ping()
            app.state.holdfast = locks
            state = await stack.enter_async_context(also(app)) if also else None
            yield {**(state or {}), "holdfast": locks}

    return opened


def locks_of(request: Request) -> aio.Locks:
    """The application's locks. In FastAPI: `Annotated[aio.Locks, Depends(locks_of)]`."""
    # A mounted application has a state of its own, but shares that of the lifespan.
    locks = getattr(request.app.state, "holdfast", None) or request.scope.get("state", {}).get("holdfast")
    if locks is None:
        raise Misuse(
            "the application has no locks: give it lifespan=holdfast.contrib.starlette.lifespan(url), and start it"
        )
    assert isinstance(locks, aio.Locks)
    return locks


def fields(template: str) -> tuple[str, ...]:
    """What a name is made of; checked before the first request."""
    try:
        parts = [part for part in string.Formatter().parse(template) if part[1] is not None]
        found = [str(field) for _, field, _, _ in parts]
        found += [
            inner for _, _, spec, _ in parts if spec for _, inner, _, _ in string.Formatter().parse(spec) if inner
        ]
    except ValueError as error:
        raise Misuse(
            f"the lock's name {template!r} cannot be filled in ({error}): a literal brace is written twice"
        ) from None
    if not all(field.isidentifier() for field in found):
        raise Misuse(f"the lock's name {template!r}: name parameters of the request, as in {{order_id}}")
    valid_name(template)
    return tuple(found)


@asynccontextmanager
async def held(
    request: Request, name: Callable[[], str], ttl: float, timeout: float | None, status: int
) -> AsyncIterator[aio.Lease]:
    """Under the lock; what is not to be had, or makes no name, is answered, not raised."""
    try:
        async with locks_of(request).lock(name(), ttl=ttl, timeout=timeout).acquire() as lease:
            yield lease
    except ANSWERED as error:
        raise _refused(error, status) from error


def locked(
    name: str, *, ttl: float = DEFAULT_TTL, timeout: float | None = 0, status: int = CONFLICT
) -> Callable[[Endpoint], Endpoint]:
    """An endpoint under a lock that is named by the path's parameters, as Starlette converted them: `"/orders/{order_id:int}"`.

    `timeout`: how long to wait for it; 0 does not. `status`: 409, or 423. The lease is `request.state.lease`.
    """
    wanted, fill = fields(name), filling(name)
    valid_status(status)

    def decorate(endpoint: Endpoint) -> Endpoint:
        @functools.wraps(endpoint)
        async def guarded(request: Request) -> Response:
            missing = [field for field in wanted if field not in request.path_params]
            if missing:
                raise Misuse(
                    f"the lock's name {name!r} has {{{missing[0]}}}, but this route's path has no such parameter"
                )
            async with held(request, lambda: fill(request.path_params), ttl, timeout, status) as lease:
                request.state.lease = lease
                return await endpoint(request)

        return guarded

    return decorate


async def _handler(request: Request, error: Exception) -> Response:
    assert isinstance(error, ANSWERED)
    status, detail, headers = answer(error)
    return JSONResponse({"detail": detail}, status, headers)


# For who takes locks in the endpoint itself: `FastAPI(exception_handlers=exception_handlers)`.
exception_handlers: dict[Any, Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    NotAcquired: _handler,
    LeaseLost: _handler,
    Unavailable: _handler,
    Unnameable: _handler,
}


def _refused(error: Answered, status: int) -> HTTPException:
    code, detail, headers = answer(error, status)
    return HTTPException(code, detail, headers)
