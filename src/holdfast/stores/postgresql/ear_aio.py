"""How tasks hear bells from PostgreSQL: listening to the store's own channel. See ../ears.py for why none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ...errors import Unavailable
from .. import ears_aio
from .ear import ASK_AFTER, key_of, listening, new_number
from .lane import Lane
from .line import Broken, Line
from .replies import ServerError

if TYPE_CHECKING:
    from .wire_aio import AioWire


LoopBell = ears_aio.LoopBell[str]


class EarLane(Lane):
    """A connection that listens. In silence it is asked whether it is still there."""

    def __init__(self, line: Line, ear: LoopEar) -> None:
        super().__init__(line)
        self._ear = ear
        self._asking: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._asking = self.loop.call_later(ASK_AFTER, self._ask)

    def _ask(self) -> None:
        if self.open:
            asked = self.tell("", self.loop.time() + ASK_AFTER)
            asked.add_done_callback(lambda done: done.cancelled() or done.exception())
            self.begin()

    def heard(self) -> None:
        for channel, payload in self.line.bells():
            self._ear.ring(key_of(channel, payload, self._ear.number))

    def fail(self, error: Unavailable) -> None:
        if self._asking is not None:
            self._asking.cancel()
        was_open = self.open
        super().fail(error)
        if was_open:
            self._ear.lost(self)


class LoopEar(ears_aio.LoopEar[str]):
    """The ear of one store."""

    def __init__(self, wire: AioWire, schema: str) -> None:
        self._wire = wire
        self._schema = schema
        self._lane: EarLane | None = None
        self.number = 0
        self._fresh()

    def forked(self) -> None:
        if self._lane is not None:
            self._lane.disown()
        self._lane = None
        self.number = 0
        self._fresh()

    @property
    def is_open(self) -> bool:
        return self._lane is not None and self._lane.open

    async def open(self, within: float) -> None:
        deadline = asyncio.get_running_loop().time() + within
        async with self._wire.by(deadline), self._opening:
            if self.is_open:
                return
            lane = await self._wire.open(lambda line: EarLane(line, self), deadline)
            assert isinstance(lane, EarLane)
            number = new_number()
            try:
                await lane.tell(listening(number, self._schema), deadline)
            except BaseException as error:
                lane.fail(Unavailable("not listening"))
                if isinstance(error, ServerError | Broken):
                    raise Unavailable(f"PostgreSQL does not let us listen: {error}") from None
                raise
            if self._wire.closed:
                lane.fail(Unavailable("closed"))
                raise Unavailable("this connection was closed")
            self._lane, self.number = lane, number
            lane.begin()

    def lost(self, lane: EarLane) -> None:
        if self._lane is lane:
            self._lane = None
        self.ring_all()

    def lose(self) -> None:
        if self._lane is not None:
            self._lane.fail(Unavailable("closed"))

    def wake_all(self) -> None:
        if self._lane is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                self._lane.loop.call_soon_threadsafe(self.ring_all)
