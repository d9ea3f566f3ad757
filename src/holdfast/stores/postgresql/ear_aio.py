"""How tasks hear bells: one connection a store that listens to the store's own channel. See ear.py for why none is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...errors import Unavailable
from .ear import ASK_AFTER, key_of, listening, new_number
from .lane import Lane
from .line import Line
from .replies import ServerError

if TYPE_CHECKING:
    from .wire_aio import AioWire


class LoopBell:
    """One waiting task's."""

    __slots__ = ("rung", "waiter", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.rung = False
        self.waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class EarLane(Lane):
    """A connection that listens. In silence it is asked whether it is still there."""

    def __init__(self, line: Line, timeout: float, ear: LoopEar) -> None:
        super().__init__(line, timeout)
        self._ear = ear
        self._asking: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._asking = self.loop.call_later(ASK_AFTER, self._ask)

    def _ask(self) -> None:
        if self.open:
            self.tell("", ASK_AFTER).add_done_callback(lambda done: done.cancelled() or done.exception())
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


class LoopEar:
    """The ear of one store."""

    def __init__(self, wire: AioWire, schema: str) -> None:
        self._wire = wire
        self._schema = schema
        self._lane: EarLane | None = None
        self._fresh()

    def _fresh(self) -> None:
        self.number = 0
        self._bells: dict[str, list[LoopBell]] = {}
        self._opening = asyncio.Lock()

    def forked(self) -> None:
        if self._lane is not None:
            self._lane.disown()
        self._lane = None
        self._fresh()

    @property
    def is_open(self) -> bool:
        return self._lane is not None and self._lane.open

    async def open(self) -> None:
        async with self._opening:
            if self.is_open:
                return
            timeout = self._wire.target.timeout
            lane = await self._wire.open(lambda line, patience: EarLane(line, patience, self), timeout)
            assert isinstance(lane, EarLane)
            number = new_number()
            try:
                await lane.tell(listening(number, self._schema))
            except BaseException as error:
                lane.fail(Unavailable("not listening"))
                if isinstance(error, ServerError):
                    raise Unavailable(f"PostgreSQL does not let us listen: {error}") from None
                raise
            self._lane, self.number = lane, number
            lane.begin()

    def expect(self, what: str) -> LoopBell:
        bell = LoopBell(what)
        self._bells.setdefault(what, []).append(bell)
        return bell

    def forget(self, bell: LoopBell) -> None:
        some = self._bells.get(bell.what, [])
        if bell in some:
            some.remove(bell)
        if not some:
            self._bells.pop(bell.what, None)

    async def hear(self, bell: LoopBell, timeout: float) -> None:
        if not bell.rung and self.is_open:
            loop = asyncio.get_running_loop()
            bell.waiter = loop.create_future()
            timer = loop.call_later(max(timeout, 0.0), bell.wake)
            try:
                await bell.waiter
            finally:
                timer.cancel()
                bell.waiter = None
        bell.rung = False

    def ring(self, what: str) -> None:
        for bell in self._bells.get(what, ()):
            bell.ring()

    def lost(self, lane: EarLane) -> None:
        if self._lane is lane:
            self._lane = None
        for some in self._bells.values():
            for bell in some:
                bell.ring()

    def lose(self) -> None:
        if self._lane is not None:
            self._lane.fail(Unavailable("closed"))
