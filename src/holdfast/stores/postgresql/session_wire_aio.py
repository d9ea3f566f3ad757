"""Dedicated connections for tasks. The loop itself watches over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...drivers.base import boot_time
from ...errors import Unavailable
from .lane import Lane
from .line import Line
from .session_wire import settings
from .statements import Params, Row, Statement
from .wire_aio import AioWire

_FOREVER = 10 * 365 * 86400.0


class WatchedLane(Lane):
    """Tells of its end."""

    def __init__(self, line: Line, timeout: float) -> None:
        super().__init__(line, timeout)
        self.ended: Callable[[], None] = lambda: None

    def fail(self, error: Unavailable) -> None:
        was_open = self.open
        super().fail(error)
        if was_open:
            self.ended()


class AioSession:
    def __init__(self, lane: WatchedLane) -> None:
        self.lane = lane
        self.pid = lane.line.pid
        self._begun: asyncio.Future[list[Row]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lost: Callable[[], None] = lambda: None
        lane.ended = self._ended

    @property
    def alive(self) -> bool:
        return self.lane.open

    async def ask(self, statement: Statement, params: Params, timeout: float) -> list[Row]:
        if not self.lane.open:
            raise Unavailable(f"the connection to PostgreSQL at {self.lane.line.where} has ended")
        return await self.lane.ask(statement, params, timeout)

    def begin(self, statement: Statement, params: Params) -> None:
        self._begun = self.lane.ask(statement, params, _FOREVER)

    def outcome(self) -> list[Row] | None:
        if self._begun is None:
            return []
        if not self._begun.done():
            return None
        begun, self._begun = self._begun, None
        return begun.result()

    async def until(self, timeout: float) -> None:
        if self._begun is not None:
            await asyncio.wait([self._begun], timeout=max(0.0, timeout))

    def expire_at(self, deadline: float, lost: Callable[[], None]) -> None:
        self._stop_timer()
        self._lost = lost
        self._timer = self.lane.loop.call_later(max(0.0, deadline - boot_time()), self._expired)

    def _expired(self) -> None:
        self.lane.fail(Unavailable("it was not renewed in time"))

    def _ended(self) -> None:
        self._stop_timer()
        self._lost()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def idle(self) -> None:
        self._stop_timer()
        self._lost = lambda: None

    def close(self) -> None:
        self.idle()
        self.lane.fail(Unavailable("closed"))

    def disown(self) -> None:
        self.lane.disown()


class AioSessionWire(AioWire):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._sessions: list[AioSession] = []

    async def session(self) -> AioSession:
        loop = asyncio.get_running_loop()
        while self._sessions:
            session = self._sessions.pop()
            if session.alive and session.lane.loop is loop:
                return session
        lane = await self.open(WatchedLane, self.target.timeout)
        assert isinstance(lane, WatchedLane)
        try:
            await lane.tell(settings(self.target.relaxed))
        except BaseException:
            lane.fail(Unavailable("given up"))
            raise
        return AioSession(lane)

    def free(self, session: AioSession) -> None:
        session.idle()
        if len(self._sessions) < self.target.pool:
            self._sessions.append(session)
        else:
            session.close()

    def forked(self) -> None:
        for session in self._sessions:
            session.disown()
        self._sessions = []
        super().forked()

    async def close(self) -> None:
        while self._sessions:
            self._sessions.pop().close()
        await super().close()
