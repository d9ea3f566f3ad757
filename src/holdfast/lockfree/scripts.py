"""Lua by its SHA1, and a client of redis-py, blocking or asyncio, that is told of it once."""

from __future__ import annotations

import inspect
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from ..errors import Misuse
from ..fenced.sql.connections import ASYNCIO
from ..fenced.sql.wire import settle


@cache
def lua(package: str, name: str) -> tuple[str, str]:
    """The text of a script and its SHA1."""
    text = (files(package) / f"{name}.lua").read_text(encoding="utf-8")
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


def checked(client: Any, world: str) -> Any:
    """`client`, if it is one for this world."""
    asynchronous = inspect.iscoroutinefunction(type(client).execute_command)
    if asynchronous != (world == ASYNCIO):
        right = "asyncio: use the same name of `aio`" if asynchronous else "threads: do not use `aio` for it"
        raise Misuse(f"this client of Redis is for {right}")
    return client


async def call(client: Any, package: str, name: str, keys: list[str], *arguments: str | int) -> Any:
    text, digest = lua(package, name)
    try:
        return await settle(client.evalsha(digest, len(keys), *keys, *arguments))
    except Exception as error:
        if "NOSCRIPT" not in str(error) and "No matching script" not in str(error):
            raise
    return await settle(client.eval(text, len(keys), *keys, *arguments))


def word(value: Any) -> str:
    """What the server said, whether or not the client decodes responses."""
    return value.decode() if isinstance(value, bytes) else str(value)


def patience(client: Any, timeout: float) -> float:
    """How long one blocking command may take: less than the client itself would wait for its answer."""
    pool = getattr(client, "connection_pool", None)
    allowed = getattr(pool, "connection_kwargs", {}).get("socket_timeout")
    return min(timeout, allowed / 2) if allowed else timeout
