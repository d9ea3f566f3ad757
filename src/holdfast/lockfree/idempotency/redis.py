"""Redis and Valkey: a hash a key, and a stream that wakes those who wait for it.

The stream's entries have the token of the run that ended as their id, so a waiter that asks for what came after the run it
saw is woken even if that ended before it asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...databases.redis import call, checked, patience
from ...databases.wire import settle
from ...errors import Misuse
from .rule import FLAWED, KEPT, Entry, entry_of

PREFIX = "holdfast:idempotent:"
_FIELDS = ("token", "runner", "payload", "done", "result")
_SLICE = 1.0  # seconds at a time


class RedisLedger:
    transactional = False

    def __init__(self, client: Any, world: str) -> None:
        self.connection = checked(client, world, __package__ or "")

    def ready(self) -> None:
        pass

    def _keys(self, key: str) -> tuple[str, str]:
        row = f"{PREFIX}{{{key}}}"  # the braces keep both in one slot of a cluster
        return row, f"{row}:bell"

    async def _speak(self, name: str, key: str, *arguments: str | bytes | int) -> Any:
        return await call(self.connection, __package__ or "", name, self._keys(key), *arguments, NEVER_DECODE=True)

    async def look(self, key: str) -> Entry | None:
        # One plain command: a hit is the usual case. How long a run has left, only the claim needs to know.
        answer = self.connection.execute_command("HMGET", self._keys(key)[0], *_FIELDS, NEVER_DECODE=True)
        return _entry(await settle(answer))

    async def claim(self, key: str, payload: str | None, runner: str, ttl: float, keep: float) -> Entry:
        arguments = (runner, payload or "", round(ttl * 1e6), _ms(keep))
        entry = _entry(await self._speak("claim", key, *arguments))
        if entry is None:
            raise Misuse(f"the entry of {key!r} is damaged: who writes to {self._keys(key)[0]!r}?")
        return entry

    async def finish(self, key: str, entry: Entry, result: bytes | None, flaw: str | None, keep: float) -> bool:
        kept = (FLAWED, flaw or "") if result is None else (KEPT, result)
        return bool(await self._speak("finish", key, entry.token, entry.runner, *kept, _ms(keep)))

    async def release(self, key: str, runner: str) -> None:
        await self._speak("release", key, runner)

    async def wait(self, key: str, entry: Entry, seconds: float, round_: int) -> None:
        wait = max(1, round(patience(self.connection, min(seconds, _SLICE)) * 1000))
        await settle(self.connection.xread({self._keys(key)[1]: f"{entry.token - 1}-0"}, count=1, block=wait))

    async def begin(self) -> None:
        pass

    async def end(self, error: BaseException | None) -> None:
        pass

    async def create(self) -> None:
        pass

    async def purge(self, keep: float) -> int:
        return 0  # Redis forgets by itself


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))  # 0 would delete at once


def _entry(values: Sequence[Any]) -> Entry | None:
    token, runner, payload, done, kept, *left = values
    if not token:
        return None
    seconds = int(left[0]) / 1e6 if left and left[0] else None
    return entry_of(int(token), runner.decode(), payload.decode() if payload else None, int(done), seconds, kept)
