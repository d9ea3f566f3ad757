"""How tasks hear bells from PostgreSQL: listening to the store's own channel. See ../ears.py for why none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ...drivers.base import boot_time
from ...errors import Unavailable
from .. import ears_aio
from .ear import ASK_AFTER, Opening, key_of
from .lane import Lane

if TYPE_CHECKING:
    from .wire import Wire


LoopBell = ears_aio.LoopBell[str]


class EarLane(Lane):
    """A connection that listens. In silence it is asked whether it is still there."""

    ear: LoopEar | None = None
    _asking: asyncio.TimerHandle | None = None

    def begin_asking(self) -> None:
        self._asking = self.loop.call_later(ASK_AFTER, self._ask)

    def _ask(self) -> None:
        if self.open:
            asked = self.tell("", boot_time() + ASK_AFTER)
            asked.add_done_callback(lambda done: done.cancelled() or done.exception())
            self.begin_asking()

    def _readable(self) -> None:
        super()._readable()
        if self.open and self.ear is not None:
            for channel, payload in self.bells():
                self.ear.ring(key_of(channel, payload, self.ear.number))

    def fail(self, error: Unavailable) -> None:
        if self._asking is not None:
            self._asking.cancel()
        was_open = self.open
        super().fail(error)
        if was_open and self.ear is not None:
            self.ear.lost(self)


class LoopEar(ears_aio.LoopEar[str], Opening[EarLane]):
    """The ear of one store."""

    def __init__(self, wire: Wire) -> None:
        Opening.__init__(self, wire, EarLane)

    @property
    def is_open(self) -> bool:
        lane = self._connection
        return lane is not None and lane.open and not lane.loop.is_closed()

    async def open(self, within: float) -> None:
        await super().open(within)
        lane = self._connection
        if lane is not None and lane.ear is None:
            lane.ear = self
            lane.begin_asking()

    def lost(self, lane: EarLane) -> None:
        if self._connection is lane:
            self._connection = None
        self.ring_all()

    def lose(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def wake_all(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                self._connection.loop.call_soon_threadsafe(self.ring_all)
