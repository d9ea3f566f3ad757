"""Events in Redis streams: one a stream of events, and a log of them all. All keys share one slot of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...databases.redis import call, checked, nonce, patience, word
from ...databases.wire import settle
from ...errors import Misuse
from .roll import Written

_PREFIX = "{holdfast:journal}:"
_LOG = _PREFIX + "log"
_STREAM = _PREFIX + "stream:"
_SNAPSHOT = _PREFIX + "snapshot:"


class RedisRoll:
    def __init__(self, client: Any, world: str) -> None:
        self._client = checked(client, world, __package__ or "")

    async def create(self) -> None:
        """Redis makes streams as they are written to."""

    async def append(self, stream: str, expected: int, texts: Sequence[str]) -> int | None:
        keys = [_STREAM + stream, _LOG]
        found = int(await call(self._client, __package__ or "", "append", keys, expected, stream, nonce(), *texts))
        return None if found < 0 else found

    async def version(self, stream: str) -> int:
        newest = await settle(self._client.xrevrange(_STREAM + stream, count=1))
        return _version(newest[0][0]) if newest else 0

    async def read(self, stream: str, after: int, most: int) -> list[Written]:
        entries = await settle(self._client.xrange(_STREAM + stream, min=f"{after + 1}-0", count=most))
        found = []
        for id_, fields in entries:
            text = {word(name): word(value) for name, value in fields.items()}
            found.append(Written(stream, _version(id_), text["d"], text["p"]))
        return found

    async def log(self, after: str, prefix: str, most: int) -> tuple[list[Written], str]:
        milliseconds, _, number = (after or "0-0").partition("-")
        if not (milliseconds.isdigit() and number.isdigit()):
            raise Misuse(f"{after!r:.80} is no position of this journal: give `event.position` as it is, or ''")
        answer = await call(self._client, __package__ or "", "log", [_LOG], after or "0-0", most, _STREAM)
        found = [
            Written(word(stream), int(version), word(text[0]), word(position))
            for position, stream, version, *text in answer
            if text and word(stream).startswith(prefix)
        ]
        return found, word(answer[-1][0]) if answer else after

    async def save(self, stream: str, version: int, text: str) -> None:
        await call(self._client, __package__ or "", "snapshot", [_SNAPSHOT + stream], version, text)

    async def saved(self, stream: str) -> tuple[int, str] | None:
        version, text = await settle(self._client.hmget(_SNAPSHOT + stream, ["v", "s"]))
        return None if version is None else (int(version), word(text))

    async def listen(self) -> None:
        """Waiting is listening."""

    async def wait(self, after: str, timeout: float) -> bool:
        block = max(1, round(patience(self._client, timeout) * 1000))
        await settle(self._client.xread({_LOG: after or "0-0"}, count=1, block=block))
        return True

    async def unlisten(self) -> None:
        """Nothing was left behind."""


def _version(id_: Any) -> int:
    return int(word(id_).partition("-")[0])
