"""redis-py: Lua by its name, and a client that is for threads, or for asyncio."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from ..errors import Misuse
from .connections import ASYNCIO, THREADS
from .wire import settle

Value = str | bytes | int | float
Key = str | bytes


class Script:
    """Lua, and its SHA1, by which the server knows it after the first time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


async def speak(client: Any, script: Script, keys: Sequence[Key], arguments: Sequence[Value], **options: object) -> Any:
    """Run a script by its SHA1, and by its text if the server does not know it yet. In threads and in asyncio."""
    try:
        return await settle(client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments, **options))
    except Exception as error:
        if not says(error, "NOSCRIPT", "No matching script"):
            raise
    return await settle(client.execute_command("EVAL", script.text, len(keys), *keys, *arguments, **options))


def says(error: Exception, *signs: str) -> bool:
    words = str(error)
    return any(sign in words for sign in signs)


@cache
def lua(package: str, name: str) -> Script:
    return Script((files(package) / f"{name}.lua").read_text(encoding="utf-8"))


async def call(client: Any, package: str, name: str, keys: Sequence[Key], *arguments: Value, **options: object) -> Any:
    return await speak(client, lua(package, name), keys, arguments, **options)


def is_client(thing: Any) -> bool:
    return hasattr(thing, "evalsha")


def checked(client: Any, world: str, package: str) -> Any:
    """`client`, if it is one for this world. `package` has the surface for threads; that for asyncio is its `aio`."""
    if not is_client(client):
        raise Misuse(f"a client of redis-py is wanted, not {type(client).__name__}")
    asynchronous = inspect.iscoroutinefunction(type(client).execute_command)
    if asynchronous != (world == ASYNCIO):
        lives_in, right = (ASYNCIO, f"{package}.aio") if asynchronous else (THREADS, package)
        raise Misuse(f"this client of Redis is for {lives_in}: use the same name of {right}")
    return client


def nonce() -> str:
    """New for each write, so that one which a client sends again by itself, its answer being lost, is known for the same."""
    return os.urandom(8).hex()


def word(value: Any) -> str:
    """What the server said, whether or not the client decodes responses."""
    return value.decode() if isinstance(value, bytes) else str(value)


def patience(client: Any, timeout: float) -> float:
    """How long one blocking command may take: less than the client itself would wait for its answer."""
    pool = getattr(client, "connection_pool", None)
    allowed = getattr(pool, "connection_kwargs", {}).get("socket_timeout")
    return min(timeout, allowed / 2) if allowed else timeout


def pairs(flat: Any) -> dict[Any, Any]:
    """HGETALL from a script is a flat list; with RESP3 it may be a mapping already."""
    return dict(flat) if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
