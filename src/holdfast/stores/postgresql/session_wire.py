"""Dedicated connections for threads, and one thread that watches over all of them: for their end, and for their ttl."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from typing import Any

from ...drivers.base import boot_time
from ...errors import Unavailable
from .statements import Params, Row, Statement
from .wire import BlockingLine, BlockingWire

_NEVER = float("inf")


def settings(relaxed: bool) -> str:
    """Of a connection that waits as long as it takes."""
    return (
        "SET lock_timeout = 0; SET statement_timeout = 0; SET client_connection_check_interval = 1000; "
        f"SET holdfast.relaxed = {'yes' if relaxed else 'no'}"
    )


class BlockingSession:
    def __init__(self, line: BlockingLine, watcher: Watcher) -> None:
        self.line = line
        self.pid = line.pid
        self._watcher = watcher
        self._mutex = threading.RLock()  # the renewer, the watcher and whoever uses it
        self._found: list[Any] | None = None  # of what was begun
        self.alive = True
        self.deadline = _NEVER
        self.lost: Callable[[], None] = lambda: None

    async def ask(self, statement: Statement, params: Params, timeout: float) -> list[Row]:
        with self._mutex:
            if not self.alive:
                raise Unavailable(f"the connection to PostgreSQL at {self.line.where} has ended")
            try:
                return self.line.ask(statement, params, timeout)
            except Unavailable:
                self.end()
                raise

    def begin(self, statement: Statement, params: Params) -> None:
        with self._mutex:
            self.line.send(statement, (params,))
            self._found = []
            self.line.flushed()

    def outcome(self) -> list[Row] | None:
        with self._mutex:
            if self._found is None:
                return []
            try:
                if self.line.is_stale():
                    self.line.take()
                rows = self.line.rows(self._found)
            except Unavailable:
                self.end()
                raise
            except BaseException:
                self._found = None
                raise
            if rows is not None:
                self._found = None
            return rows

    async def until(self, timeout: float) -> None:
        poll = select.poll()
        with contextlib.suppress(ValueError, OSError):
            poll.register(self.line.fileno() if self.alive else -1, select.POLLIN)
            poll.poll(max(0.0, timeout) * 1000)

    def look(self) -> bool:
        """For the watcher: False if it has ended."""
        with self._mutex:
            if not self.alive:
                return False
            if self._found is None and self.line.is_stale():
                try:
                    self.line.take()
                except Unavailable:
                    self.end()
                    return False
            return True

    def expire_at(self, deadline: float, lost: Callable[[], None]) -> None:
        self.deadline, self.lost = deadline, lost
        self._watcher.add(self)

    def end(self) -> None:
        """It is over: close it, and tell whoever wants to know."""
        with self._mutex:
            if not self.alive:
                return
            self.alive = False
            self._watcher.remove(self)
            self.line.hang_up()
            self.line.close()
        self.lost()

    def close(self) -> None:
        self.lost = lambda: None
        self.end()

    def idle(self) -> None:
        self.deadline, self.lost = _NEVER, lambda: None
        self._watcher.remove(self)

    def disown(self) -> None:
        self.alive = False
        self.line.disown()


class Watcher:
    """One thread, there while there is something to watch."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._watched: set[BlockingSession] = set()
        self._running = False
        self._wake: tuple[int, int] | None = None

    def add(self, session: BlockingSession) -> None:
        with self._mutex:
            if not session.alive:
                return
            known = session in self._watched
            self._watched.add(session)
            if not self._running:
                self._running = True
                self._wake = os.pipe()
                threading.Thread(target=self._run, name="holdfast-watcher", daemon=True).start()
            elif not known:
                self._nudge()

    def remove(self, session: BlockingSession) -> None:
        with self._mutex:
            self._watched.discard(session)

    def _nudge(self) -> None:
        if self._wake is not None:
            os.write(self._wake[1], b"!")

    def forked(self) -> None:
        if self._wake is not None:
            for end in self._wake:
                os.close(end)
        self.__init__()  # type: ignore[misc]

    def stop(self) -> None:
        with self._mutex:
            self._watched.clear()
            self._nudge()

    def _run(self) -> None:
        assert self._wake is not None
        ear, mouth = self._wake
        while True:
            with self._mutex:
                sessions = [one for one in self._watched if one.alive]
                if not self._watched:
                    self._running, self._wake = False, None
                    os.close(ear)
                    os.close(mouth)
                    return
            poll = select.poll()
            poll.register(ear, select.POLLIN)
            for session in sessions:
                # What is begun has an answer to come, which is not ours to read; only its end is.
                with contextlib.suppress(Exception):
                    poll.register(
                        session.line.fileno(), select.POLLRDHUP if session._found is not None else select.POLLIN
                    )
            soonest = min((session.deadline for session in sessions), default=_NEVER)
            found = dict(poll.poll(max(0.0, min(soonest - boot_time(), 5.0)) * 1000))
            if ear in found:
                os.read(ear, 4096)
            now = boot_time()
            for session in sessions:
                if session.deadline <= now:
                    session.end()
                elif found and not session._mutex.acquire(blocking=False):
                    continue  # in use: whoever uses it will find out
                elif found:
                    try:
                        session.look()
                    finally:
                        session._mutex.release()


class BlockingSessionWire(BlockingWire):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._watcher = Watcher()
        self._sessions: list[BlockingSession] = []

    async def session(self) -> BlockingSession:
        while True:
            try:
                session = self._sessions.pop()
            except IndexError:
                break
            if session.look() and not session.line.is_stale():
                return session
            session.close()
        line = self.open(self.target.timeout)
        line.tell(settings(self.target.relaxed), self.target.timeout)
        return BlockingSession(line, self._watcher)

    def free(self, session: BlockingSession) -> None:
        session.idle()
        if len(self._sessions) < self.target.pool:
            self._sessions.append(session)
        else:
            session.close()

    def forked(self) -> None:
        for session in self._sessions:
            session.disown()
        self._sessions = []
        self._watcher.forked()
        super().forked()

    async def close(self) -> None:
        while self._sessions:
            self._sessions.pop().close()
        self._watcher.stop()
        await super().close()
