"""The journal on asyncio connections: the same names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from ...claim import valid_timeout
from ..patience import Patience
from .core import PAGE, AnyJournal
from .event import Event, Replayed
from .roll import ASYNCIO


class Journal(AnyJournal):
    """Streams of events, kept in the database of this connection."""

    _world = ASYNCIO

    async def create_table(self) -> None:
        """Create the tables if there are none. Redis needs none."""
        await self._core.roll.create()

    async def append(self, stream: str, *events: Any, expected: int | None) -> int:
        """Append all of `events` or none, and return the new version. `Conflict` if the stream is not at `expected`.

        0 is a stream without events. None appends wherever the end is: for events that are true whatever came before.
        """
        return await self._core.append(stream, events, expected)

    async def version(self, stream: str) -> int:
        """The version of the last event; 0 if there is none."""
        return await self._core.version(stream)

    async def read(self, stream: str, after: int = 0) -> AsyncIterator[Event]:
        """The events of one stream, in order."""
        while events := await self._core.page(stream, after):
            for event in events:
                yield event
            after = events[-1].version
            if len(events) < PAGE:
                return

    async def replay(self, stream: str, apply: Callable[[Any, Any], Any], initial: Any = None) -> Replayed:
        """`apply(state, data)` over the events, from the last snapshot on: the state, and the version to expect."""
        return await self._core.replay(stream, apply, initial)

    async def snapshot(self, stream: str, version: int, state: Any) -> None:
        """Keep the state at this version, so that a replay begins there. An older one never replaces a newer one."""
        await self._core.snapshot(stream, version, state)

    async def subscribe(
        self, after: str = "", *, prefix: str = "", timeout: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of all streams (of those whose names begin so), from a position on, and then those to come.

        None is left out and none comes twice. Ends after `timeout` seconds without an event. Keep `event.position` with
        what you make of the event, and go on from there.
        """
        patience = Patience(valid_timeout(timeout))
        roll = self._core.roll
        await roll.listen()
        try:
            while True:
                before = after
                events, after = await self._core.log(after, prefix)
                if after != before:  # though all of them may have been other streams'
                    for event in events:
                        yield event
                    if events:
                        patience.heard()
                    continue
                if patience.over():
                    return
                if not await roll.wait(after, patience.block()):
                    await asyncio.sleep(patience.pause())
        finally:
            await roll.unlisten()
