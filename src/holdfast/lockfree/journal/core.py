"""What a journal does, once for threads and asyncio."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...claim import valid_name, valid_prefix
from ...drivers.base import boot_time, uniform
from .event import MAX_BYTES, Coder, Decode, Encode, Event, Replayed, conflict, to_json, valid_version
from .roll import Written, roll_for

PAGE = 500
LOOK_AGAIN = 0.5  # seconds: an event may show later than its bell rang, when an older transaction has ended
_ATTEMPTS = 100


class Core:
    def __init__(
        self,
        connection: Any,
        world: str,
        encode: Encode = to_json,
        decode: Decode = json.loads,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.roll = roll_for(connection, world)
        self.coder = Coder(encode, decode, max_bytes)

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


class Patience:
    """How long a subscription still waits, and for how long until it looks again."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._pause = 0.005
        self.heard()

    def heard(self) -> None:
        self._until = None if self._timeout is None else boot_time() + self._timeout
        self._pause = 0.005

    def over(self) -> bool:
        return self._until is not None and boot_time() >= self._until

    def block(self) -> float:
        """For a store that wakes us."""
        return self._left(LOOK_AGAIN)

    def pause(self) -> float:
        """For a store that cannot: look soon, then less and less often, and never all at the same moment."""
        self._pause = min(self._pause * 1.5, 0.1)
        return self._left(uniform(self._pause / 2, self._pause))

    def _left(self, seconds: float) -> float:
        return seconds if self._until is None else max(0.001, min(seconds, self._until - boot_time()))
