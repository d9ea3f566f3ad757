"""Connections for threads. A thread takes one for a conversation and puts it back; none is kept while waiting in line."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any, TypeVar

from ...errors import Unavailable
from . import replies
from .ear import ThreadEar
from .greeting import SHARING, Greeting, is_lent
from .line import Broken, Line
from .pool import Hand, Pool
from .released import Released
from .replies import ServerError
from .statements import Params, Row, Statement
from .url import Target

_FRESH = 0.1  # a connection that lay longer may have been closed by the server meanwhile: look before use
_GRACE = 1.0  # interrupted in mid-conversation, wait so long for the answer: what was asked is then known to be over
_clock = time.monotonic
Question = TypeVar("Question")


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
        left = timeout
        try:
            deadline = _clock() + timeout
            if not self.flushed():
                self._flush(deadline)
            while self._readable(max(0.0, left) * 1000):
                self.take()
                rows = self.rows(found)
                if rows is not None:
                    return rows
                left = deadline - _clock()
            raise self.late(timeout)
        except Exception:
            raise
        except BaseException:  # Ctrl-C
            with contextlib.suppress(Exception):
                deadline = _clock() + _GRACE
                while self.rows(found) is None and self._ready(select.POLLIN, deadline - _clock()):
                    self.take()
            raise

    def _flush(self, deadline: float) -> None:
        """A long request: the server may want to be read while it is written to."""
        began = _clock()
        while not self.flushed():
            if not self._ready(select.POLLIN | select.POLLOUT, deadline - _clock()):
                raise self.late(deadline - began)
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
    """A bare connection, logged in: to the first host that lets us in within its share of the time."""
    deadline = _clock() + timeout
    told: list[str] = []
    hosts = target.of_each_host()
    for at, host in enumerate(hosts):
        try:
            return _dial_one(host, (deadline - _clock()) / (len(hosts) - at))
        except Unavailable as error:
            told.append(str(error))
    raise replies.not_connected(told, target.where)


def _dial_one(host: Target, share: float) -> BlockingLine:
    deadline = _clock() + share
    line = BlockingLine.begin(host)
    try:
        while (what := line.step()) is not None:
            if not line._ready(what, deadline - _clock()):
                raise host.late(share)
    except BaseException:
        line.close()
        raise
    return line


def _hold(conversation: Generator[Question, list[Row], None], ask: Callable[[Question], list[Row]]) -> None:
    try:
        question = next(conversation)
        while True:
            try:
                rows = ask(question)
            except ServerError as error:
                question = conversation.throw(error)
            else:
                question = conversation.send(rows)
    except StopIteration:
        return


class BlockingWire:
    """The connections of one store: a bounded pool for threads, some for renewals, one ear."""

    shares = False

    def __init__(self, target: Target, greeting: Greeting, released: Released) -> None:
        self.target = target
        self.where = target.where
        self.greeting = greeting
        self.released = released
        self.ear = ThreadEar(self.open, target.schema)
        self._pool: Pool[BlockingLine] = Pool(target.pool)
        self._apart: list[BlockingLine] = []
        self._closed = False

    # ---- connecting

    def open(self, within: float) -> BlockingLine:
        """Connected, and agreed on the schema."""
        deadline = _clock() + within
        line = dial(self.target, min(within, self.target.timeout))
        try:
            self._set_up(line, deadline)
            _hold(self.released.again(), lambda asked: line.ask(*asked, min(deadline - _clock(), self.target.timeout)))
        except ServerError as error:
            line.close()
            raise replies.explained(error, self.where, self.target.schema) from None
        except BaseException as error:
            line.close()
            if isinstance(error, Broken):
                raise Unavailable(str(error)) from None
            raise
        line.used = _clock()
        return line

    def _tell(self, line: BlockingLine, sql: str, deadline: float) -> list[Row]:
        return line.tell(sql, min(deadline - _clock(), self.target.timeout))

    def _set_up(self, line: BlockingLine, deadline: float) -> None:
        for known_before in (self.greeting.known, False):
            if not self.greeting.known:
                _hold(self.greeting.conversation(line.pid), lambda sql: self._tell(line, sql, deadline))
            if self.greeting.pooled:
                return
            try:
                self._tell(line, self.greeting.setting_up(), deadline)
            except ServerError as error:
                if error.state not in replies.MISSING or not known_before:
                    raise
                self.greeting.known = False  # another server than last time: it has yet to learn the schema
            else:
                line.prepared = True
                return

    # ---- asking

    async def ask(self, statement: Statement, params: Params, within: float) -> list[Row]:
        return self.talk(statement, params, within)

    ask_aside = ask  # a thread has its connection to itself

    def talk(self, statement: Statement, params: Params, within: float) -> list[Row]:
        deadline = _clock() + within
        hand = Hand()
        try:
            try:
                if not self._pool.take(hand):
                    self._pool.wait(hand, within, self._all_busy)
                return self._asked(hand, statement, params, deadline)
            finally:
                self._pool.put_back(hand)
        except Broken as error:
            self._pool.close_idle()  # what broke one has most likely broken all that lie here
            raise Unavailable(str(error)) from None
        finally:
            self._pool.put_back(hand)  # if it was in that line above that we were interrupted
            if self._closed:
                self._pool.close_idle()

    def _asked(self, hand: Hand, statement: Statement, params: Params, deadline: float) -> list[Row]:
        """On the connection in hand, or on a new one if there is none, or it is stale, or breaks.

        After a refusal it is as good as before, and stays in the hand; after anything else it may be in mid-conversation.
        """
        try:
            now = _clock()
            if hand.line is not None and now - hand.line.used > _FRESH and hand.line.is_stale():
                self.released.doubtful = True
                hand.drop()
            again = hand.line is not None and statement.repeats
            while True:
                if hand.line is None:
                    hand.line = self.open(deadline - now)
                    now = _clock()
                try:
                    rows: list[Row] = hand.line.ask(statement, params, min(deadline - now, self.target.timeout))
                    hand.line.used = _clock()
                    return rows
                except Broken:
                    self.released.doubtful = True
                    now = _clock()
                    if not again or now >= deadline:
                        raise
                    again = False
                    hand.drop()
        except ServerError:
            raise
        except BaseException:
            hand.drop()
            raise

    def _all_busy(self, waited: float) -> Unavailable:
        return Unavailable(
            f"all {self.target.pool} connections to PostgreSQL at {self.where} were busy for {waited:.3g} s: "
            "see the URL's option pool="
        )

    async def ask_apart(self, statement: Statement, params: Params, within: float) -> list[Row]:
        """On a connection that user work cannot keep busy: one of theirs at first, since there may be no time to open another."""
        deadline = _clock() + within
        hand = Hand()
        try:
            try:
                hand.line = self._apart.pop()
            except IndexError:
                self._pool.take_over(hand)
            return self._asked(hand, statement, params, deadline)
        except Broken as error:
            raise Unavailable(str(error)) from None
        finally:
            if isinstance(hand.line, BlockingLine):
                self._apart.append(hand.line)
            if self._closed:
                self._close_apart()

    async def is_shared(self, within: float) -> bool:
        """See greeting.py."""
        deadline = _clock() + within
        lines: list[BlockingLine] = []
        try:
            for _ in range(2):
                lines += [dial(self.target, min(deadline - _clock(), self.target.timeout))]
            return is_lent([self._tell(lines[which], sql, deadline) for which, sql in SHARING])
        except ServerError as error:
            raise replies.explained(error, self.where, self.target.schema) from None
        except Broken as error:
            raise Unavailable(str(error)) from None
        finally:
            for line in lines:
                line.close()

    # ---- the end

    def reset(self) -> None:
        """The server is not what it was (a failover, an emptied schema): connect anew."""
        self.greeting.known = False
        self._pool.close_idle()
        self._close_apart()
        self.ear.lose()

    def _close_apart(self) -> None:
        with contextlib.suppress(IndexError):  # a renewal may have taken the last one
            while True:
                self._apart.pop().close()

    def forked(self) -> None:
        for line in (*self._pool.idle(), *self._apart):
            line.disown()
        self._pool = Pool(self.target.pool)
        self._apart = []
        self.released.forget()
        self.ear.forked()

    async def close(self) -> None:
        self._closed = True
        self.reset()
        self.ear.close()
