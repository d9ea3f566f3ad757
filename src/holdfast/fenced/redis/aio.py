"""Guarded Redis commands for asyncio: the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...databases.redis import Key, Value, pairs
from ..mark import Guarded, Ticket
from . import Guard, hset_words, set_words


class Redis(Guarded[Guard]):
    """Guarded commands of one client under one lease. Every one records the token, reads included.

    Values are `str`, `bytes`, `int` or `float`; answers are what the client gives (bytes, or str with decode_responses).
    """

    def __init__(self, client: Any, ticket: Ticket) -> None:
        self._guard = Guard(client, ticket)

    async def seal(self) -> None:
        """Record the token, and do nothing else."""
        await self._guard.evaluate("return 1", (), ())

    async def get(self, key: Key) -> Any:
        return await self._guard.execute((key,), "GET", key)

    async def set(self, key: Key, value: Value, *, ex: float | None = None, nx: bool = False, xx: bool = False) -> bool:
        """`ex` in seconds. False: not set, because of `nx` or `xx`."""
        return await self._guard.execute((key,), *set_words(key, value, ex, nx, xx)) is not None

    async def delete(self, *keys: Key) -> int:
        """How many there were."""
        return int(await self._guard.execute(keys, "DEL", *keys))

    async def incr(self, key: Key, by: int = 1) -> int:
        return int(await self._guard.execute((key,), "INCRBY", key, by))

    async def hget(self, key: Key, field: str) -> Any:
        return await self._guard.execute((key,), "HGET", key, field)

    async def hgetall(self, key: Key) -> dict[Any, Any]:
        return pairs(await self._guard.execute((key,), "HGETALL", key))

    async def hset(self, key: Key, fields: Mapping[str, Value]) -> int:
        """How many of the fields are new."""
        return int(await self._guard.execute((key,), *hset_words(key, fields)))

    async def execute(self, *command: Value, keys: Sequence[Key]) -> Any:
        """Any one command that a script may call; `keys` names those it touches."""
        return await self._guard.execute(keys, *command)

    async def script(self, text: str, keys: Sequence[Key] = (), arguments: Sequence[Value] = ()) -> Any:
        """Lua of your own, sealed in the same step. Keep the text constant and pass what varies as arguments."""
        return await self._guard.evaluate(text, keys, arguments)
