"""What a journal does, once for threads and asyncio."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from ...claim import valid_name, valid_prefix
from ..coding import MAX_BYTES, Decode, Encode, to_json
from .event import Event, EventCoder, Replayed, conflict, valid_version
from .roll import Written, roll_for

PAGE = 500
_ATTEMPTS = 100


class AnyJournal:
    """What a journal is opened with, in threads and in asyncio."""

    _world: ClassVar[str]

    def __init__(
        self,
        connection: Any,
        *,
        encode: Encode = to_json,
        decode: Decode = json.loads,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._core = Core(connection, self._world, EventCoder(encode, decode, max_bytes))
        self._kept_by = f"{type(connection).__module__}.{type(connection).__qualname__}"

    def __repr__(self) -> str:
        return f"<Journal by {self._kept_by}>"


class Core:
    def __init__(self, connection: Any, world: str, coder: EventCoder) -> None:
        self.roll = roll_for(connection, world)
        self.coder = coder

    async def append(self, stream: str, events: tuple[object, ...], expected: int | None) -> int:
        texts = self.coder.texts(stream, events)
        if expected is not None:
            found = await self.roll.append(stream, valid_version(expected, "the expected version"), texts)
            if found is not None:
                raise conflict(stream, expected, found)
            return expected + len(texts)
        at = await self.roll.version(stream)
        for _ in range(_ATTEMPTS):  # each time, somebody else got on: there is no stand-still
            found = await self.roll.append(stream, at, texts)
            if found is None:
                return at + len(texts)
            wanted, at = at, found
        raise conflict(stream, wanted, at)

    async def version(self, stream: str) -> int:
        return await self.roll.version(valid_name(stream, "stream"))

    async def page(self, stream: str, after: int, most: int = PAGE) -> list[Event]:
        valid_version(after, "after")
        return [self._event(one) for one in await self.roll.read(valid_name(stream, "stream"), after, most)]

    async def replay(self, stream: str, apply: Callable[[Any, Any], Any], initial: Any) -> Replayed:
        saved = await self.roll.saved(valid_name(stream, "stream"))
        state, version = (initial, 0) if saved is None else (self.coder.decode(saved[1]), saved[0])
        while events := await self.page(stream, version):
            for event in events:
                state = apply(state, event.data)
            version = events[-1].version
            if len(events) < PAGE:
                break
        return Replayed(state, version)

    async def snapshot(self, stream: str, version: int, state: object) -> None:
        valid_name(stream, "stream")
        valid_version(version, "a snapshot's version")
        text = self.coder.text(state, f"the snapshot of {stream!r}")
        found = await self.roll.version(stream)
        if version > found:
            raise conflict(stream, version, found)
        await self.roll.save(stream, version, text)

    async def log(self, after: str, prefix: str, most: int = PAGE) -> tuple[list[Event], str]:
        found, position = await self.roll.log(after, valid_prefix(prefix), most)
        return [self._event(one) for one in found], position

    def _event(self, one: Written) -> Event:
        return Event(one.stream, one.version, self.coder.decode(one.text), one.position)
