"""Dedicated connections for threads. One thread watches over all of them: see watcher.py."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...drivers.base import Driver, boot_time
from ...drivers.starting import start
from ...errors import Unavailable
from .connection import FEW, BlockingConnection, Broken
from .ear import ThreadEar
from .greeting import Greeting
from .released import Released
from .spare import SparingWire
from .statements import PING, Params, Row, Statement, long
from .url import Target
from .watcher import NEVER, Watcher

ASK_EVERY = 1.0  # seconds: whether the connection of a holder is there
SILENCE = 5.0  # seconds without an answer: its server's side may have ended, and somebody else have the lock


class BlockingSession:
    """Of what was asked, at most one thing is outstanding: what was begun, or a ping of the watcher's."""

    def __init__(self, connection: BlockingConnection, pid: int, watcher: Watcher) -> None:
        self.connection = connection
        connection.most_pieces = FEW
        self.pid = pid
        self._watcher = watcher
        self._mutex = threading.RLock()  # the watcher and whoever uses it
        self._found: list[Any] | None = None  # of what is outstanding
        self._waking = threading.Lock()
        self._wake: tuple[int, int] | None = None
        self._woken = False
        self.begun = False
        self.pinged: float | None = None  # when, if that is outstanding
        self.wanted = 0.0  # somebody waits for the answer to a ping sent after that
        self.heard = 0.0  # when the latest ping that was answered was sent
        self.alive = True
        self.stranded = False
        self.deadline = NEVER
        self.since = 0.0  # when the watcher was told of it
        self.token = 0
        self.lost: Callable[[], None] = _nobody

    # ---- for whoever uses it

    async def ask(self, statement: Statement, params: Params, within: float) -> list[Row]:
        deadline = boot_time() + within
        with self._mutex:  # nobody has it for longer than a conversation takes
            if not self.alive:
                raise Unavailable(f"the connection to PostgreSQL at {self.connection.where} has ended")
            try:
                while self.pinged is not None:  # an answer that is owed comes first
                    if boot_time() >= deadline or not self.connection.is_ready(select.POLLIN, deadline):
                        raise self.connection.late(within)
                    self.look()
                return await self.connection.ask(statement, params, deadline)
            except Unavailable as error:
                self.end()
                raise Unavailable(str(error)) from None
            except Exception:
                raise  # a refusal: the connection is as good as before
            except BaseException:
                self.end()  # perhaps in mid-conversation
                raise

    def begin(self, statement: Statement, params: Params) -> None:
        with self._mutex:
            try:
                self.connection.send(statement, (params,))
                self._found, self.begun = [], True
            except Broken as error:
                self.end()
                raise Unavailable(str(error)) from None

    def outcome(self) -> list[Row] | None:
        with self._mutex:
            if not self.begun:
                return []
            assert self._found is not None
            try:
                rows = self.connection.rows(self._found, take=self.connection.is_stale())
            except Unavailable as error:
                self.end()
                raise Unavailable(str(error)) from None
            except BaseException:
                self._found, self.begun = None, False
                raise
            if rows is not None:
                self._found, self.begun = None, False
            return rows

    async def until(self, timeout: float) -> None:
        with self._mutex:
            if not self.alive:
                return
            poll = select.poll()
            poll.register(self.connection.fileno(), select.POLLIN)
            with self._waking:
                if self._wake is None:
                    self._wake = os.pipe()
                poll.register(self._wake[0], select.POLLIN)
        poll.poll(max(0.0, timeout) * 1000)
        with self._waking:
            if self._woken and self._wake is not None:
                os.read(self._wake[0], 4096)
            self._woken = False

    def wake(self) -> None:
        with self._waking:
            if self.alive and not self._woken:
                self._wake = self._wake or os.pipe()  # whoever is about to wait finds it there
                os.write(self._wake[1], b"!")
                self._woken = True

    # ---- for the watcher

    def tend(self, now: float) -> float:
        """Ping it, or end it, if it is time for that; returns when to come again."""
        if not self.alive or self.begun or not self.token:
            return self.deadline
        if self.pinged is not None:
            if now >= self.pinged + SILENCE:
                self.end()
            return min(self.deadline, self.pinged + SILENCE)
        if self.wanted > self.heard or now >= self.heard + ASK_EVERY:
            try:
                self.connection.send(PING, ((long(self.token),),))
                self._found, self.pinged = [], now
            except Broken:
                self.end()
            return min(self.deadline, now + SILENCE)
        return min(self.deadline, self.heard + ASK_EVERY)

    def look(self) -> None:
        """Something may have come: the answer to a ping, or its end."""
        with self._mutex:
            if not self.alive or self.begun or not self.connection.is_stale():
                return
            try:
                self.connection.take()
                if (
                    self.pinged is not None
                    and self._found is not None
                    and self.connection.rows(self._found) is not None
                ):
                    self.heard, self.pinged, self._found = self.pinged, None, None
                    self._watcher.tell()
            except Exception:
                self.end()

    def expire_at(self, deadline: float, token: int, lost: Callable[[], None]) -> None:
        self.deadline, self.token, self.lost = deadline, token, lost
        if token and not self.heard:
            self.heard = boot_time()
        self._watcher.add(self)

    # ---- the end

    def end(self) -> None:
        """It is over: close it, and tell whoever wants to know."""
        self.connection.hang_up()  # before anything: whoever is in a conversation finds out, and lets us have it
        with self._mutex:
            if not self.alive:
                return
            self.alive = False
            self._watcher.remove(self)
            self.connection.close()
            self._close_wake()
        self._watcher.tell()
        if self.lost is not _nobody:
            # Not here: what the holder does about it may take long, and others are watched over meanwhile.
            start(self.lost, "holdfast-loss")

    def close(self) -> None:
        self.lost = _nobody
        self.end()

    def idle(self) -> None:
        with self._mutex:
            self._watcher.remove(self)
            self.deadline, self.token, self.lost = NEVER, 0, _nobody
            self.heard = self.wanted = 0.0
            self._close_wake()

    def _close_wake(self) -> None:
        with self._waking:
            if self._wake is not None:
                for end in self._wake:
                    os.close(end)
            self._wake, self._woken = None, False

    def disown(self) -> None:
        self.alive = False
        self._waking = threading.Lock()  # another thread of the parent's may have had it
        self._close_wake()
        self.connection.disown()


def _nobody() -> None:
    """Who wants to know of the end of a connection that nobody's lock lives with."""


class BlockingSessionWire(SparingWire[BlockingSession]):
    def __init__(self, target: Target, greeting: Greeting, released: Released, driver: Driver) -> None:
        super().__init__(target, greeting, released, driver, BlockingConnection, ThreadEar)
        self._watcher = Watcher()
        self._spare: list[BlockingSession] = []

    async def session(self, within: float) -> BlockingSession:
        deadline = boot_time() + within
        while True:
            try:
                session = self._spare.pop()
            except IndexError:
                break
            if session.alive and not session.connection.is_stale():
                return session
            session.close()
        connection, pid = await self._dedicated(BlockingConnection, deadline)
        return BlockingSession(connection, pid, self._watcher)

    async def hear_from(self, sessions: Sequence[BlockingSession], within: float) -> Sequence[bool]:
        asked = boot_time()
        for session in sessions:
            session.wanted = asked
        self._watcher.wait_for(lambda: all(one.heard >= asked or not one.alive for one in sessions), within)
        return [session.heard >= asked for session in sessions]

    def wake_all(self) -> None:
        for session in self._watcher.watched():
            session.wake()

    def forked(self) -> None:
        self._watcher.forked()
        super().forked()

    async def close(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._spare.pop().close()
        self._watcher.stop()
        await super().close()
