"""Dedicated connections for tasks. The loop itself watches over them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import pq

from ...drivers.base import Driver, boot_time
from ...errors import Unavailable
from .connection import FEW, Broken
from .ear_aio import LoopEar
from .greeting import Greeting
from .lane import NEVER, Lane
from .released import Released
from .session_wire import ASK_EVERY, SILENCE
from .spare import SparingWire
from .statements import PING, Params, Row, Statement, long
from .url import Target


class WatchedLane(Lane):
    """Tells of its end. An answer that comes late is trouble, and no reason to end it: a lock lives with it."""

    patient = True

    def __init__(self, pgconn: pq.abc.PGconn, where: str) -> None:
        super().__init__(pgconn, where)
        self.most_pieces = FEW
        self.ended: Callable[[], None] = lambda: None

    def fail(self, error: Unavailable) -> None:
        was_open = self.open
        super().fail(error)
        if was_open:
            self.ended()


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)


class AioSession:
    def __init__(self, lane: WatchedLane, pid: int, woken: set[asyncio.Future[None]]) -> None:
        self.lane = lane
        self.pid = pid
        self._woken = woken
        self._begun: asyncio.Future[list[Row]] | None = None
        self._deadline = NEVER
        self._token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lost: Callable[[], None] = lambda: None
        lane.ended = self._ended

    @property
    def alive(self) -> bool:
        return self.lane.open

    @property
    def stranded(self) -> bool:
        return self.lane.loop.is_closed()

    async def ask(self, statement: Statement, params: Params, within: float) -> list[Row]:
        try:
            return await self.lane.ask(statement, params, boot_time() + within)
        except Broken as error:
            raise Unavailable(str(error)) from None

    def begin(self, statement: Statement, params: Params) -> None:
        self._begun = self.lane.ask(statement, params, NEVER)

    def outcome(self) -> list[Row] | None:
        if self._begun is None:
            return []
        if not self._begun.done():
            return None
        begun, self._begun = self._begun, None
        return begun.result()

    async def until(self, timeout: float) -> None:
        if self._begun is None:
            return
        alarm: asyncio.Future[None] = self.lane.loop.create_future()
        self._woken.add(alarm)
        try:
            either: list[asyncio.Future[Any]] = [self._begun, alarm]
            await asyncio.wait(either, timeout=max(0.0, timeout), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._woken.discard(alarm)

    # ---- while it holds, or waits for, a lock

    def expire_at(self, deadline: float, token: int, lost: Callable[[], None]) -> None:
        self._deadline, self._token, self._lost = deadline, token, lost
        self._stop_timer()
        self._look_later()

    def _look_later(self) -> None:
        left = max(0.0, self._deadline - boot_time())
        self._timer = self.lane.loop.call_later(min(left, ASK_EVERY), self._look)

    def _look(self) -> None:
        """Is its time over; has it fallen silent? If not, ask whether it is there."""
        if boot_time() >= self._deadline:
            self.lane.fail(Unavailable("it was not renewed in time"))
            return
        if self._begun is None:
            now = boot_time()
            if now - self.lane.sent > SILENCE:
                self.lane.fail(Unavailable("it has fallen silent"))
                return
            if self.lane.sent == NEVER:
                self.hear(now + SILENCE)
        self._look_later()

    def hear(self, deadline: float) -> asyncio.Future[list[Row]]:
        asked = self.lane.ask(PING, (long(self._token),), deadline)
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asked

    def _ended(self) -> None:
        self._stop_timer()
        self._lost()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def idle(self) -> None:
        self._stop_timer()
        self._deadline, self._lost = NEVER, lambda: None

    def close(self) -> None:
        self.idle()
        self.lane.close()

    def disown(self) -> None:
        self.lane.disown()


class AioSessionWire(SparingWire[AioSession]):
    def __init__(self, target: Target, greeting: Greeting, released: Released, driver: Driver) -> None:
        super().__init__(target, greeting, released, driver, Lane, LoopEar)
        self._spare: list[AioSession] = []
        self._woken: set[asyncio.Future[None]] = set()

    async def session(self, within: float) -> AioSession:
        deadline = boot_time() + within
        while self._spare:
            session = self._spare.pop()
            if not session.lane.is_stale():
                return session
            session.lane.close()
        lane, pid = await self._dedicated(WatchedLane, deadline)
        return AioSession(lane, pid, self._woken)

    async def hear_from(self, sessions: Sequence[AioSession], within: float) -> Sequence[bool]:
        deadline = boot_time() + within
        asked = [session.hear(deadline) for session in sessions]
        if asked:
            await asyncio.wait(asked, timeout=max(0.0, within) + ASK_EVERY)
        return [one.done() and not one.cancelled() and one.exception() is None for one in asked]

    def wake_all(self) -> None:
        for alarm in list(self._woken):
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                alarm.get_loop().call_soon_threadsafe(_ring, alarm)

    def forked(self) -> None:
        self._woken = set()
        super().forked()

    async def close(self) -> None:
        while self._spare:
            self._spare.pop().close()
        await super().close()
