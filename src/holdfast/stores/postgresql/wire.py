"""Connections for threads. A thread takes one for a conversation and puts it back; none is kept while waiting in line."""

from __future__ import annotations

import contextlib
import queue
import select
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ...errors import HoldfastError, Unavailable
from . import replies
from .ear import ThreadEar
from .greeting import Greeting
from .line import Line
from .replies import ServerError
from .statements import Params, Row, Statement
from .url import Target

_FRESH = 0.1  # a connection that lay longer may have been closed by the server meanwhile: look before use
_GRACE = 1.0  # interrupted in mid-conversation, wait so long for the answer: what was asked is then known to be over
_clock = time.monotonic


class BlockingLine(Line):
    """The same, with a thread that waits for it."""

    def ask(self, statement: Statement, params: Params, timeout: float) -> list[Row]:
        self.send(statement, (params,))
        return self.answer(timeout)

    def tell(self, sql: str, timeout: float) -> list[Row]:
        self.say(sql)
        return self.answer(timeout)

    def answer(self, timeout: float) -> list[Row]:
        found: list[Any] = []
        try:
            if not self.flushed():
                self._flush(timeout)
            deadline = _clock() + timeout
            while self._readable(timeout * 1000):
                self.take()
                rows = self.rows(found)
                if rows is not None:
                    return rows
                timeout = max(0.0, deadline - _clock())
            raise self.late(timeout)
        except Exception:
            raise
        except BaseException:  # Ctrl-C
            with contextlib.suppress(Exception):
                deadline = _clock() + _GRACE
                while self.rows(found) is None and self._ready(select.POLLIN, deadline - _clock()):
                    self.take()
            raise

    def _flush(self, timeout: float) -> None:
        """A long request: the server may want to be read while it is written to."""
        deadline = _clock() + timeout
        while not self.flushed():
            if not self._ready(select.POLLIN | select.POLLOUT, deadline - _clock()):
                raise self.late(timeout)
            self.take()

    @cached_property
    def _readable(self) -> Callable[[float], object]:
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return poll.poll

    def _ready(self, what: int, timeout: float) -> bool:
        poll = select.poll()
        poll.register(self.pgconn.socket, what)
        return bool(poll.poll(max(0.0, timeout) * 1000))

    def is_stale(self) -> bool:
        """Did the server close it, or say something unasked, while it lay idle?"""
        return self._ready(select.POLLIN, 0)  # an object of its own: two threads may ask


def dial(target: Target, timeout: float) -> BlockingLine:
    """A bare connection, logged in."""
    deadline = _clock() + timeout
    line = BlockingLine.begin(target)
    try:
        while (what := line.step()) is not None:
            if not line._ready(what, deadline - _clock()):
                raise Unavailable(f"cannot connect to PostgreSQL at {target.where} within {timeout:g} s")
    except Unavailable as error:
        line.close()
        if "cannot connect" in str(error):
            raise
        raise replies.not_connected(str(error), target.where) from None
    except BaseException:
        line.close()
        raise
    return line


class BlockingWire:
    """The connections of one store: a bounded pool for threads, one for renewals, one ear."""

    def __init__(self, target: Target, greeting: Greeting) -> None:
        self.target = target
        self.where = target.where
        self.greeting = greeting
        self.ear = ThreadEar(lambda: self.open(target.timeout), target.schema)
        self._renewing: BlockingLine | None = None
        self._fresh()

    def _fresh(self) -> None:
        # What lies here may be taken: a connection, or None, which is leave to open one. The last put back is taken first.
        self._idle: list[BlockingLine | None] = [None] * self.target.pool
        self._queue: queue.SimpleQueue[BlockingLine | None] = queue.SimpleQueue()
        self._queueing = 0
        self._mutex = threading.Lock()
        self._greeting = threading.Lock()

    def open(self, timeout: float) -> BlockingLine:
        """Connected, and agreed on the schema."""
        line = dial(self.target, timeout)
        try:
            self._set_up(line, timeout)
        except ServerError as error:
            line.close()
            raise replies.explained(error, self.where, self.target.schema) from None
        except BaseException:
            line.close()
            raise
        line.used = _clock()
        return line

    def _set_up(self, line: BlockingLine, timeout: float) -> None:
        for known_before in (self.greeting.known, False):
            if not self.greeting.known:
                with self._greeting:
                    self._greet(line, timeout)
            if self.greeting.pooled:
                return
            try:
                line.tell(self.greeting.setting_up(), timeout)
            except ServerError as error:
                if error.state not in replies.MISSING or not known_before:
                    raise
                self.greeting.known = False  # another server than last time: it has yet to learn the schema
            else:
                line.prepared = True
                return

    def _greet(self, line: BlockingLine, timeout: float) -> None:
        conversation = self.greeting.conversation(line.pid)
        try:
            question = next(conversation)
            while True:
                try:
                    rows = line.tell(question, timeout)
                except ServerError as error:
                    question = conversation.throw(error)
                else:
                    question = conversation.send(rows)
        except StopIteration:
            return

    async def ask(self, statement: Statement, params: Params) -> list[Row]:
        return self.talk(statement, params)

    def talk(self, statement: Statement, params: Params) -> list[Row]:
        try:
            line = self._idle.pop()
        except IndexError:
            line = self._queue_up()
        try:
            if line is None or (_clock() - line.used > _FRESH and line.is_stale()):
                if line is not None:
                    line.close()
                    line = None
                line = self.open(self.target.timeout)
            rows = line.ask(statement, params, self.target.timeout)
            line.used = _clock()
        except ServerError:
            self._put_back(line)
            raise
        except BaseException as error:
            if line is not None:
                line.close()
            self._put_back(None)
            if isinstance(error, HoldfastError):
                self._close_idle()  # what broke one has most likely broken all that lie here
            raise
        self._idle.append(line)
        if self._queueing:
            self._hand_on()
        return rows

    def _put_back(self, line: BlockingLine | None) -> None:
        if line is None:
            self._idle.insert(0, None)
        else:
            self._idle.append(line)
        self._hand_on()

    def _hand_on(self) -> None:
        if self._queueing:
            with contextlib.suppress(IndexError):
                self._queue.put(self._idle.pop())

    def _queue_up(self) -> BlockingLine | None:
        """All are busy. Whoever puts one back looks for us after that, and we for it after saying that we wait."""
        timeout = self.target.timeout
        with self._mutex:
            self._queueing += 1
        try:
            with contextlib.suppress(IndexError):
                return self._idle.pop()
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            raise Unavailable(
                f"all {self.target.pool} connections to PostgreSQL at {self.where} were busy for {timeout:g} s: "
                "see the URL's option pool="
            ) from None
        finally:
            with self._mutex:
                self._queueing -= 1
                while not self._queueing and not self._queue.empty():  # handed to one who had just given up
                    self._idle.append(self._queue.get_nowait())

    async def ask_apart(self, statement: Statement, params: Params, within: float) -> list[Row]:
        """On a connection that user work cannot keep busy. Used by one thread, the renewer."""
        deadline = _clock() + within
        line, self._renewing = self._renewing, None
        if line is None or line.is_stale():
            if line is not None:
                line.close()
            line = self.open(min(within, self.target.timeout))
        try:
            rows = line.ask(statement, params, max(0.001, deadline - _clock()))
        except ServerError:
            self._renewing = line
            raise
        except BaseException:
            line.close()
            raise
        self._renewing = line
        return rows

    async def is_shared(self) -> bool:
        """Does a pooler lend one server connection to several of ours, transaction by transaction?

        While one of ours is idle and another is in a transaction, each has a server of its own, unless they are lent.
        """
        timeout = self.target.timeout
        first, second = dial(self.target, timeout), dial(self.target, timeout)
        try:
            asked = "SELECT pg_catalog.pg_backend_pid()"
            for _ in range(3):
                mine = first.tell(asked, timeout)
                second.tell("BEGIN", timeout)
                theirs = second.tell(asked, timeout)
                again = first.tell(asked, timeout)
                second.tell("ROLLBACK", timeout)
                if mine == theirs or mine != again:
                    return True
            return False
        except ServerError as error:
            raise replies.explained(error, self.where, self.target.schema) from None
        finally:
            first.close()
            second.close()

    def reset(self) -> None:
        """The server is not what it was (a failover, an emptied schema): connect anew."""
        self.greeting.known = False
        self._close_idle()
        line, self._renewing = self._renewing, None
        if line is not None:
            line.close()
        self.ear.lose()

    def forked(self) -> None:
        for line in (*self._idle, self._renewing):
            if line is not None:
                line.disown()
        self._renewing = None
        self._fresh()
        self.ear.forked()

    async def close(self) -> None:
        self.reset()

    def _close_idle(self) -> None:
        for _ in range(len(self._idle)):
            with contextlib.suppress(IndexError):
                line = self._idle.pop()
                if line is not None:
                    line.close()
                self._idle.insert(0, None)
