"""Dedicated connections of one store: those that locks live with, and those that wait for the next. See watcher.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ...drivers.base import Driver
from ...errors import Unavailable
from ..kit.alarm import NEVER
from . import replies
from .connection import Broken
from .greeting import Greeting
from .released import Released
from .replies import ServerError
from .statements import PING, Params, Row, Statement, long
from .url import Target
from .watcher import NAP, Watcher
from .wire import Wire
from .wires import Answer, Kinds, WatchedConnection, WatchersBell

ASK_EVERY = 1.0  # seconds: whether the connection of a holder is there
SILENCE = 5.0  # seconds without an answer: its server's side may have ended, and somebody else have the lock


class Session:
    """One dedicated connection. `ask` is a bounded conversation, `begin` one that may take long."""

    def __init__(self, connection: WatchedConnection, pid: int, driver: Driver, watcher: Watcher) -> None:
        self.connection = connection
        self.pid = pid  # of the backend, whatever a pooler in between says
        self._driver = driver
        self._watcher = watcher
        self._begun: Answer | None = None
        self._bell: WatchersBell | None = None  # of who waits for what was begun
        self._asked = 0.0  # when it was last asked whether it is there
        self._owes = False  # an answer to that
        self.heard = 0.0  # when the latest of those that were answered was asked
        self.wanted = 0.0  # somebody waits for the answer to one that is asked after that
        self.alive = True
        self.deadline = NEVER
        self.since = 0.0  # when the watcher was told of it
        self.again = NEVER  # when it is to be tended next
        self._token = 0
        self._lost: Callable[[], None] = _nobody
        connection.ended = self._end

    @property
    def stranded(self) -> bool:
        """Its event loop is over: it is connected, and cannot be asked."""
        return self.connection.stranded

    # ---- for whoever uses it

    async def ask(self, statement: Statement, params: Params, within: float) -> list[Row]:
        try:
            return await self.connection.ask(statement, params, self._driver.now() + within)
        except Broken as error:
            raise Unavailable(str(error)) from None

    def begin(self, statement: Statement, params: Params) -> None:
        self._close_bell()
        self._begun = begun = self.connection.post(statement, params, _nobody)
        self._bell = self.connection.bell(begun)

    def outcome(self) -> list[Row] | None:
        """Of what was begun; None: not yet."""
        begun = self._begun
        if begun is None:
            return []
        if not begun.done():
            self.connection.look()
        if not begun.done():
            return None
        self._begun = None
        try:
            return begun.result()
        except Broken as error:
            raise Unavailable(str(error)) from None

    async def until(self, timeout: float) -> None:
        """It may be there, or we were woken."""
        begun, bell = self._begun, self._bell
        if self.alive and begun is not None and bell is not None and not begun.done():
            await bell.wait(timeout)

    def wake(self) -> None:
        """From any thread; whoever is about to wait, too."""
        bell = self._bell
        if bell is not None:
            bell.ring()

    def expire_at(self, deadline: float, token: int, lost: Callable[[], None]) -> None:
        """Hang up then; and call `lost` whenever, and however, it ends.

        Until then ask now and then whether it is there (saying the token, for whoever reads along), if it has one.
        """
        self.deadline, self._token, self._lost = deadline, token, lost
        if token and not self.heard:
            self.heard = self._driver.now()
            if not self._owes:
                self._asked = self.heard
        self._watcher.add(self)

    # ---- for the watcher

    def tend(self, now: float) -> None:
        """Read what has come; then ask whether it is there, or end it, if it is time for that."""
        if now >= self.deadline:
            self._end()
        elif not self._is_watched() or self.stranded:
            self.again = self.deadline
        elif not self.connection.mutex.acquire(blocking=False):  # in use: whoever uses it will find out
            self.again = min(self.deadline, now + NAP)
        else:
            try:
                self.connection.look()
                if self.alive:
                    self._ask_whether_there(now)
            finally:
                self.connection.mutex.release()

    def _ask_whether_there(self, now: float) -> None:
        if not self._owes and (self.wanted > self._asked or now >= self._asked + ASK_EVERY):
            self._asked, self._owes = now, True
            self.connection.post(PING, (long(self._token),), self._answered)
        elif self._owes and now >= self._asked + SILENCE:
            self._end()
        self.again = min(self.deadline, self._asked + (SILENCE if self._owes else ASK_EVERY))

    def _answered(self, ping: Answer) -> None:
        self._owes = False
        with contextlib.suppress(Exception):  # a refusal says nothing about the lock
            ping.result()
            self.heard = self._asked
        self.again = min(self.deadline, self._asked + ASK_EVERY)
        if self.wanted > self._asked:  # by who came after it was asked
            self.again = self._asked
            self._watcher.nudge()
        self._watcher.tell()

    def _is_watched(self) -> bool:
        """What was begun is read by whoever waits for it."""
        return self.alive and self._begun is None and self._token != 0

    def is_looked_at(self, now: float) -> bool:
        """When something comes, at once. Not while it is in use: that is another's answer, and we should only be woken by it."""
        if not self._is_watched() or not (self._owes or now >= self.since + NAP):
            return False
        if not self.connection.mutex.acquire(blocking=False):
            return False
        self.connection.mutex.release()
        return True

    # ---- the end

    def _end(self) -> None:
        """It is over: close it, and tell whoever wants to know."""
        self.connection.hang_up()  # before anything: whoever is in a conversation finds out, and lets us have it
        with self.connection.mutex:
            self._close_bell()  # also one that was made when it had ended already
            if not self.alive:
                return
            self.alive = False
            self._watcher.remove(self)
            self.connection.close()
        self._watcher.tell()
        if self._lost is not _nobody:
            # Not here: what the holder does about it may take long, and others are watched over meanwhile.
            self._driver.aside(self._lost, "holdfast-loss")

    def close(self) -> None:
        self._lost = _nobody
        self._end()

    def idle(self) -> None:
        """Nobody's lock lives with it any more."""
        with self.connection.mutex:
            self._watcher.remove(self)
            self.deadline, self._token, self._lost = NEVER, 0, _nobody
            self.heard = self.wanted = 0.0
            self._close_bell()

    def _close_bell(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()

    def disown(self) -> None:
        self.alive = False
        if self._bell is not None:
            self._bell.disown()
        self.connection.disown()


def _nobody(*_: object) -> None:
    """Who wants to know of the end of a connection that nobody's lock lives with."""


class SessionWire(Wire):
    def __init__(self, target: Target, greeting: Greeting, released: Released, driver: Driver, kinds: Kinds) -> None:
        super().__init__(target, greeting, released, driver, kinds)
        self._watched_kind = kinds.watched
        self._watcher = Watcher(driver, kinds.watched)
        self._spare: list[Session] = []

    async def session(self, within: float) -> Session:
        """From those that are free, or a new one."""
        deadline = self._now() + within
        with contextlib.suppress(IndexError):
            while True:
                session = self._spare.pop()
                if session.alive and not session.connection.is_stale():
                    return session
                session.close()
        connection = await self.open(self._watched_kind, deadline)
        try:
            ((pid,),) = await connection.tell(settings(self.target.relaxed), self._by(deadline))
        except BaseException as error:
            connection.close()
            if isinstance(error, ServerError):
                raise replies.explained(error, self.where, self.target.schema) from None
            if isinstance(error, Broken):
                raise Unavailable(str(error)) from None
            raise
        return Session(connection, int(pid), self.driver, self._watcher)

    def free(self, session: Session) -> None:
        session.idle()
        if len(self._spare) < self.target.pool:
            self._spare.append(session)
        else:
            session.close()

    async def hear_from(self, sessions: Sequence[Session], within: float) -> Sequence[bool]:
        """Ask all of them at once whether they are there: which have answered what was asked after this call began."""
        asked = self._now()
        for session in sessions:
            session.wanted = session.again = asked
        await self._watcher.wait_for(lambda: all(one.heard >= asked or not one.alive for one in sessions), within)
        return [session.heard >= asked for session in sessions]

    def wake_all(self) -> None:
        """End every `until`, from any thread."""
        for session in self._watcher.watched():
            session.wake()

    def forked(self) -> None:
        for session in self._spare:
            session.disown()
        self._spare = []
        self._watcher.forked()
        super().forked()

    async def close(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._spare.pop().close()
        self._watcher.stop()
        await super().close()


def settings(relaxed: bool) -> str:
    """Of a connection that waits as long as it takes, and then sees what others did meanwhile.

    Answered by its backend's pid: a pooler introduces itself by another.
    """
    return (
        "SET default_transaction_isolation = 'read committed'; SET lock_timeout = 0; SET statement_timeout = 0; "
        "SET client_connection_check_interval = 1000; SET search_path = pg_catalog, pg_temp; "
        f"SET holdfast.relaxed = {'yes' if relaxed else 'no'}; SELECT pg_catalog.pg_backend_pid()"
    )
