"""FastAPI: a lock as a dependency. See docs/fastapi.md.

app = FastAPI(lifespan=lifespan("redis://localhost:6379"))

@app.post("/orders/{order_id}/pay")
async def pay(order_id: int, lease: Annotated[Lease, Depends(locked("order:{order_id}"))]): ...
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ..aio import Lease
from ..decorating import filling
from ..errors import Misuse
from ..recipes import DEFAULT_TTL
from .http import CONFLICT, valid_status
from .starlette import exception_handlers, fields, held, lifespan, locks_of

__all__ = ["Lease", "lifespan", "locked", "locks_of", "exception_handlers"]

_REQUIRED = inspect.Parameter.empty


def locked(
    name: str, *, ttl: float = DEFAULT_TTL, timeout: float | None = 0, status: int = CONFLICT
) -> Callable[[Request], AsyncIterator[Lease]]:
    """For `Depends()`: the request runs under the lock, or is answered with 409 (or 423) and Retry-After.

    The name is made of parameters of the endpoint that come from the path or the query, *as the endpoint gets them*:
    of an `int`, 42 and 042 are one lock. `timeout`: how long to wait for the lock; 0 does not.
    """
    wanted, fill = fields(name), filling(name)
    valid_status(status)

    async def dependency(request: Request) -> AsyncIterator[Lease]:
        values = {field: _value(request, name, field) for field in wanted}
        async with held(request, lambda: fill(values), ttl, timeout, status) as lease:
            yield lease

    return dependency


class _Parameter(NamedTuple):
    """Of an endpoint: what it is called in the request, and what makes of a text what the endpoint is given."""

    alias: str
    default: object
    adapter: TypeAdapter[Any]


def _value(request: Request, name: str, field: str) -> Any:
    parameter = _parameter(request.scope["endpoint"], field)
    where = _place(request.scope["route"], field)
    if parameter is None or where is None:
        raise Misuse(
            f"the lock's name {name!r} has {{{field}}}, but the endpoint has no such parameter that comes from the path or the "
            "query under one name: what else the client sends could name another lock"
        )
    alias = parameter.alias
    sent = request.path_params if where == "path" else request.query_params
    raw = sent.get(alias, parameter.default)
    if raw is _REQUIRED:
        raise RequestValidationError(
            [{"type": "missing", "loc": (where, alias), "msg": "Field required", "input": None}]
        )
    try:
        return parameter.adapter.validate_python(raw)
    except ValidationError as error:  # as FastAPI itself would answer, had it come to that
        wrong = [{**one, "loc": (where, alias, *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(wrong) from None


def _place(route: Any, field: str) -> str | None:
    """Where FastAPI itself takes it from; None: neither from the path nor from the query."""
    of_endpoint = route.dependant
    for where, some in (("path", of_endpoint.path_params), ("query", of_endpoint.query_params)):
        if any(one.name == field for one in some):
            return where
    return None


@functools.lru_cache(maxsize=4096)
def _parameter(endpoint: Callable[..., Any], field: str) -> _Parameter | None:
    found = inspect.signature(endpoint).parameters.get(field)
    if found is None:
        return None
    annotation = str if found.annotation is _REQUIRED else found.annotation
    alone = SimpleNamespace(__annotations__={field: annotation})  # the others may be none that can be looked up
    known = getattr(inspect.unwrap(endpoint), "__globals__", {})
    hint = typing.get_type_hints(alone, known, include_extras=True)[field]
    # Path() or Query(): in the annotation, or, as it was written once, as the default.
    info = next(
        (one for one in (found.default, *getattr(hint, "__metadata__", ())) if isinstance(one, FieldInfo)), None
    )
    default = found.default
    if info is not None and info is default:
        hint, default = Annotated[hint, info], _REQUIRED if info.is_required() else info.get_default()
    alias = info.alias if info and info.alias else field
    if info is not None and info.validation_alias not in (None, alias):
        return None  # of which FastAPI's versions make different things
    return _Parameter(alias, default, TypeAdapter(hint))
