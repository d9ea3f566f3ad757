"""One connection to one node of a Redlock, used by one thread at a time."""

from __future__ import annotations

import time
from collections import deque

from ...errors import HoldfastError, Unavailable
from ..redis.connection import Connection
from ..redis.replies import Reply
from ..redis.url import Target
from .answers import Question

REST = 1.0  # a node that could not be reached is left alone for so long, unless the others are too few
LAST = 0.05  # seconds that the last nodes have to say that they let us go, when a majority has
_MOST_OWED = 64  # a node that owes more is taken for dead: its connection is dropped
_FRESH = 0.1  # a connection that lay longer may have been closed by the node meanwhile: look before use
_clock = time.monotonic


class Node:
    """Its connection is reopened when it breaks. What is owed on it, is read before the next answer."""

    def __init__(self, target: Target, at: int) -> None:
        self.target = target
        self.at = at  # which one it is
        self.where = target.shown()
        self.connection: Connection | None = None
        self.owed: deque[tuple[Question, list[Reply]] | None] = deque()  # where an answer that comes late is still put
        self.rests_until = 0.0
        self.slow_until = 0.0  # others do not wait for it, if they can do without
        self.trouble: HoldfastError | None = None

    def ask(self, request: bytes, now: float) -> bool:
        """On a new connection, if there is none or the old one is no good. False: that failed at once."""
        connection = self.connection
        try:
            if connection is None or now - connection.used > _FRESH or len(self.owed) > _MOST_OWED:
                connection = self._good()
            connection.used = now
            connection.send(request)
        except HoldfastError as error:
            self.fail(error)
            return False
        return True

    def _good(self) -> Connection:
        if self.connection is not None:
            self.settle()  # and sees whether the node has hung up
            if len(self.owed) > _MOST_OWED:
                self.drop()
        if self.connection is None:
            self.connection = Connection(self.target, self.target.addresses[0])
        return self.connection

    def read(self, question: Question) -> Reply:
        """The answer to the last request, or None if it is not there yet. Called when there is something to read."""
        connection = self.connection
        if connection is None:
            return None
        try:
            reply = connection.hear()
            while self.owed and reply is not False:
                self._take_late(reply)
                reply = connection.next()
        except HoldfastError as error:
            self.fail(error)
            return None
        if reply is False:
            return None
        if not connection.quick:
            connection.quick = connection.is_plain  # all that was sent has arrived, and all that came was read
        answer = question.understood(reply, self.where)
        if isinstance(answer, HoldfastError):
            self.trouble = answer
        return answer

    def settle(self) -> None:
        """Take what is owed and has come. Whatever else a node says, nobody asked for."""
        if self.connection is None:
            return
        try:
            reply = self.connection.hear()
            while reply is not False:
                self._take_late(reply)
                reply = self.connection.next()
        except (HoldfastError, IndexError):
            self.drop()

    def _take_late(self, reply: Reply) -> None:
        late = self.owed.popleft()
        if late is not None:
            question, answers = late
            answers[self.at] = question.understood(reply, self.where)

    @property
    def owes(self) -> bool:
        """An answer that somebody still wants."""
        return any(self.owed)

    def leave(self, question: Question, answers: list[Reply], *, late: bool) -> None:
        """It has not answered yet. What it was asked it may still do, so the connection is kept, and what follows goes there."""
        if late:
            self.slow_until = _clock() + REST
        if self.connection is not None and (self.connection.is_open or not late):
            self.owed.append((question, answers) if question.leaving else None)
        else:
            self.fail(Unavailable(f"cannot connect to Redis at {self.where} in time"))

    def fail(self, error: HoldfastError) -> None:
        self.trouble = error
        self.rests_until = _clock() + REST
        self.drop()

    def drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.owed.clear()
