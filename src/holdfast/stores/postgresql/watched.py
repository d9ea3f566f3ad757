"""A connection that a lock lives with, for threads: whoever uses it and the watcher take turns.

In asyncio a loop reads all of them, and this is `WatchedLane`.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
from psycopg import pq

from ...drivers.base import boot_time
from ...drivers.descriptors import pipe
from .connection import FEW, BlockingConnection, Broken, EarConnection
from .replies import ServerError
from .statements import Params, Row, Statement
from .wires import Kinds


class PollBell:
    """A bell that is also rung by what arrives on connections."""

    gone = asleep = False

    def __init__(self, connections: Callable[[], Iterable[BlockingConnection]]) -> None:
        self._connections = connections
        self._mutex = threading.Lock()
        self._rung = False
        self._ends = pipe()

    async def wait(self, timeout: float) -> None:
        poll = select.poll()
        for connection in self._connections():
            with contextlib.suppress(psycopg.Error):  # closed meanwhile
                poll.register(connection.fileno(), select.POLLIN)
        with self._mutex:
            if not self._ends:
                return
            poll.register(self._ends[0], select.POLLIN)
        poll.poll(max(0.0, timeout) * 1000)
        with self._mutex:
            if self._rung and self._ends:
                os.read(self._ends[0].fileno(), 1)
            self._rung = False

    def ring(self) -> bool:
        with self._mutex:
            if self._ends and not self._rung:
                os.write(self._ends[1].fileno(), b"!")
                self._rung = True
            return bool(self._ends)

    def close(self) -> None:
        with self._mutex:
            ends, self._ends = self._ends, []
            for end in ends:
                end.close()

    def disown(self) -> None:
        self._mutex = threading.Lock()  # another thread of the parent's may have had it
        self.close()


class Answer:
    """To what was posted; like a future."""

    def __init__(self, then: Callable[[Any], object]) -> None:
        self._then = then
        self._rows: list[Row] | None = None
        self._error: Exception | None = None

    def tell(self, rows: list[Row] | None, error: Exception | None = None) -> None:
        self._rows, self._error = rows, error
        self._then(self)

    def done(self) -> bool:
        return self._rows is not None or self._error is not None

    def result(self) -> list[Row]:
        if self._error is not None:
            raise self._error
        assert self._rows is not None
        return self._rows


class WatchedConnection(BlockingConnection):
    """Of what was posted, at most one thing is unanswered. Tells of its end, however that came."""

    @staticmethod
    def watching(connections: Callable[[], Iterable[BlockingConnection]]) -> PollBell:
        return PollBell(connections)

    def __init__(self, pgconn: pq.abc.PGconn, where: str) -> None:
        super().__init__(pgconn, where)
        self.most_pieces = FEW
        self.ended: Callable[[], None] = lambda: None
        self._open = True
        self._owed: Answer | None = None
        self._found: list[Any] = []

    async def ask(self, statement: Statement, params: Params, deadline: float) -> list[Row]:
        with self.mutex:  # nobody has it for longer than a conversation takes
            try:
                if self._owed is not None:  # which comes first
                    self._be_answered(deadline)
                if not self._open:
                    raise self._over()
                return self._converse(deadline, self.send, statement, (params,))
            except ServerError:
                raise  # it is as good as before
            except BaseException:
                self.ended()  # perhaps in mid-conversation
                raise

    def _be_answered(self, deadline: float) -> None:
        began = boot_time()
        while self._owed is not None:
            if boot_time() >= deadline or not self.is_ready(select.POLLIN, deadline):
                raise self.late(deadline - began)
            self.look()

    def post(self, statement: Statement, params: Params, then: Callable[[Any], object]) -> Answer:
        """Ask, and go on."""
        with self.mutex:
            answer = Answer(then)
            try:
                if not self._open:
                    raise self._over()
                self.send(statement, (params,))
                self._owed, self._found = answer, []
            except Broken as error:
                answer.tell(None, error)
                self.ended()
            return answer

    def bell(self, answer: Answer) -> PollBell:
        return PollBell(lambda: (self,))

    def look(self) -> None:
        """Something may have come: the answer that is owed, or its end."""
        with self.mutex:
            if not self._open or not self.is_stale():
                return
            owed = self._owed
            try:
                if owed is None:
                    self.take()
                elif (rows := self.rows(self._found, take=True)) is not None:
                    self._owed = None
                    owed.tell(rows)
            except ServerError as error:
                if owed is not None:
                    self._owed = None
                    owed.tell(None, error)
            except Exception:
                self.ended()

    def _over(self) -> Broken:
        return self.broken(Exception("it has ended"))

    def close(self) -> None:
        self._open = False
        super().close()
        owed, self._owed = self._owed, None
        if owed is not None:
            owed.tell(None, self._over())


KINDS = Kinds(BlockingConnection, EarConnection, WatchedConnection)
