"""How tasks hear bells from PostgreSQL: listening to the store's own channel. See ../ears.py for why none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ...drivers.base import boot_time
from ...errors import Unavailable
from .. import ears_aio
from .connection import Broken
from .ear import ASK_AFTER, key_of, listening, new_number
from .lane import Lane
from .replies import ServerError

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


class LoopEar(ears_aio.LoopEar[str]):
    """The ear of one store."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._turns = wire.turns()
        self._lane: EarLane | None = None
        self.number = 0
        self._fresh()

    def forked(self) -> None:
        if self._lane is not None:
            self._lane.disown()
        self._lane = None
        self.number = 0
        self._turns = self._wire.turns()
        self._fresh()

    @property
    def is_open(self) -> bool:
        return self._lane is not None and self._lane.open

    async def open(self, within: float) -> None:
        deadline = boot_time() + within
        turn = self._turns.turn()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"PostgreSQL did not let us listen within {within:.3g} s")
            if self.is_open:
                return
            lane = await self._wire.open(EarLane, deadline)
            number = new_number()
            try:
                await lane.tell(listening(number, self._wire.target.schema), deadline)
            except BaseException as error:
                lane.close()
                if isinstance(error, ServerError | Broken):
                    raise Unavailable(f"PostgreSQL does not let us listen: {error}") from None
                raise
            if self._wire.closed:
                lane.close()
                raise Unavailable("this connection was closed")
            self._lane, self.number, lane.ear = lane, number, self
            lane.begin_asking()
        finally:
            turn.over()

    def lost(self, lane: EarLane) -> None:
        if self._lane is lane:
            self._lane = None
        self.ring_all()

    def lose(self) -> None:
        if self._lane is not None:
            self._lane.close()

    close = lose

    def wake_all(self) -> None:
        if self._lane is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                self._lane.loop.call_soon_threadsafe(self.ring_all)
