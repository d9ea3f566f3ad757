"""Plain sockets for threads. A thread takes a connection for one conversation and puts it back.

Written on sockets and hiredis, not on redis-py: measured here, redis-py's client adds 45 µs to a round trip of 45, and
retries by itself (a lost reply to SET NX then reads as "somebody else has it"). Here a conversation is repeated only when its
connection broke, once, and only if that is harmless.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...drivers.base import finish
from ...errors import HoldfastError, Misuse
from ..kit.doubts import MOMENT, Doubts
from .connection import ANYBODY, BROKEN, CHUNK, Connection, Dialler, Disconnected, Stuck, Talk, stuck, together
from .dialing import dial
from .ear import ThreadEar
from .replies import MOST, MOST_OF_LOOKING, Reply, is_missing_script
from .url import Target

_FRESH = 0.1  # a connection that lay longer may have been closed by the server meanwhile: look before use
_LEFT = b":1\r\n"  # what a release is told
_clock = time.monotonic
_dialler = Dialler()


class BlockingWire:
    """The connections of one store: as many as threads talk at once, one for renewals, one ear."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._timeout = target.timeout
        self._idle: list[Connection] = []
        self._renewing: Connection | None = None
        self._known = False
        self.reached = False
        self._closed = False
        self.ear = ThreadEar(self.dial, target.prefix)
        self._doubts = Doubts(self.ear.driver)

    def talk(self, request: bytes, within: float) -> Reply:
        """Not repeated, whatever happens: what a second asking means, the store knows.

        All in one function: between two round trips a processor has forgotten our code, and every call costs double.
        """
        idle = self._idle
        now = _clock()
        try:
            connection = idle.pop()
        except IndexError:
            connection = None  # and nothing is asked from here: what fails would be told as if it came of this
        if connection is None or not connection.quick or now - connection.used > _FRESH:
            if connection is not None:
                idle.append(connection)
            return self.converse((request,), within, repeat=False)[0]
        connection.used = now
        if not 0.0 <= within <= self._timeout:
            within = max(0.0, min(within, self._timeout))
        moment = within if within < MOMENT else MOMENT
        try:
            if moment != connection.patience:
                connection.be_patient(moment)
            if connection.put(request) != len(request):
                raise BlockingIOError  # its buffers are full, though nothing is under way: no good
            try:
                data = connection.get(CHUNK)
            except TimeoutError:
                data = self._patiently(connection, now + within)
            if connection.owed is not None and data[:4] == _LEFT:  # our answer is the second
                connection.settled(1)
                data = data[4:] or self._rest(connection, now + within)
            if connection.owed is not None:
                connection.settled(connection.finish(data, now + within))
                reply = connection.take(now + within)
            elif data == _LEFT:
                reply = 1
            elif data[:1] == b":" and data[-1] == 10:  # a whole number, as a claim is told
                reply = int(data[1:-2])
            else:  # something rarer
                reply = connection.finish(data, now + within)
        except BaseException as error:
            if (trouble := self._trouble(connection, error, within)) is error:
                raise
            raise trouble from error
        if self._closed:
            connection.close()
        else:
            idle.append(connection)
        return reply

    def post(self, request: bytes, answered: Callable[[bool | None], None]) -> bool:
        """Ask, and do not wait: whoever uses the connection next reads the answer first. None: nobody knows."""
        idle = self._idle
        try:
            connection = idle.pop()
        except IndexError:
            return False
        now = _clock()
        sent = 0
        if connection.quick and connection.owed is None and now - connection.used <= _FRESH:
            try:
                sent = connection.put(request)
            except OSError:
                sent = -1
            except BaseException:  # interrupted
                connection.close()
                raise
            if sent == len(request):
                connection.used = now
                connection.owed = answered
            elif sent:
                connection.close()
                return False
        idle.append(connection)
        return sent > 0

    def _rest(self, connection: Connection, deadline: float) -> bytes:
        """More, of which nothing is there yet: the one answer came before the other."""
        left = deadline - _clock()
        if left < connection.patience - 0.05:  # to change it costs a call of the system's
            connection.be_patient(left)
        try:
            return connection.get(CHUNK)
        except TimeoutError:
            return self._patiently(connection, deadline)

    def _patiently(self, connection: Connection, deadline: float) -> bytes:
        """It has been silent for a moment. Is it the server?"""
        while deadline > _clock():
            self._doubted(connection, deadline)
            connection.be_patient(min(max(deadline - _clock(), 0.001), MOMENT))
            with contextlib.suppress(TimeoutError):
                return connection.get(CHUNK)
        raise TimeoutError

    def _doubted(self, connection: Connection, deadline: float) -> None:
        """Stuck, if only this one is silent, and another has taken its place."""
        another = self._instead_of(connection, deadline)
        if another is not None:
            self._forget_idle()  # what has silenced one has most likely silenced all that lie here
            self._idle.append(another)
            if self._closed:
                self._forget_idle()
            raise stuck(self.where)

    def _instead_of(self, connection: Connection, deadline: float) -> Connection | None:
        return finish(self._doubts.instead(self._newcomer, connection.speaks, deadline - _clock()))

    async def _newcomer(self, within: float) -> Connection | None:
        deadline = _clock() + within
        connection = self.dial(deadline, known=self._known)
        (reply,) = _replies(connection, (ANYBODY,), deadline, MOST)
        if not is_missing_script(reply):
            connection.close()
            return None
        connection.quick, connection.used = not self.target.tls, _clock()
        return connection

    def _trouble(self, connection: Connection, error: BaseException, within: float) -> BaseException:
        """What is to be told of a conversation that failed; nobody else uses this connection."""
        connection.give_up()
        if isinstance(error, Stuck):
            return error
        if isinstance(error, (TimeoutError, BlockingIOError)):
            self._forget_idle()
            return connection.late(within)
        if isinstance(error, BROKEN) and not isinstance(error, Misuse):
            self._forget_idle()
            return connection.broken(error)
        return error

    async def ask(self, request: bytes, within: float) -> Reply:
        return self.talk(request, within)

    async def ask_all(self, requests: Sequence[bytes], within: float, *, once: bool = False) -> list[Reply]:
        """In order, on one connection, in one piece."""
        return self.converse(requests, within, repeat=not once, most=MOST_OF_LOOKING)

    async def ask_slowly(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """Every conversation of a thread has its own connection. The server may be silent there for long."""
        return self.converse(requests, within, repeat=False, slow=True)

    def converse(
        self, requests: Sequence[bytes], within: float, *, repeat: bool = True, most: int = MOST, slow: bool = False
    ) -> list[Reply]:
        deadline = _clock() + min(within, self._timeout)
        connection = self._take(deadline)
        try:
            replies = _replies(connection, requests, deadline, most, None if slow else self._doubted)
        except Disconnected as error:
            if not isinstance(error, Stuck):
                self._forget_idle()  # what broke one has most likely broken all that lie here
            if not repeat or _clock() >= deadline:
                raise
            connection = self._take(deadline)
            replies = _replies(connection, requests, deadline, most)
        connection.quick = not self.target.tls
        connection.used = _clock()
        self._known = True
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return replies

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """On a connection that user work cannot keep busy. For a request that got no answer: why not."""
        return (await self.ask_each_apart([(self, requests)], within))[0]

    @staticmethod
    async def ask_each_apart(asked: Sequence[tuple[Any, Sequence[bytes]]], within: float) -> list[list[Reply]]:
        """The same of many wires, all at once: trouble of one is its own."""
        deadline = _clock() + within
        renewals = [Renewal(wire, requests, deadline) for wire, requests in asked]
        together([one.talk for one in renewals if one.talk is not None], min(within, MOMENT), late=False)
        for one in renewals:
            one.doubt(deadline)
        together([one.talk for one in renewals if one.talk is not None], max(0.0, deadline - _clock()))
        broken = [one for one in renewals if isinstance(one.trouble, Disconnected)]
        for one in broken:  # a connection that the server had closed, most likely
            one.begin(deadline)
        together([one.talk for one in broken if one.talk is not None], max(0.0, deadline - _clock()))
        return [one.replies() for one in renewals]

    async def parts(self, within: float) -> Sequence[BlockingWire]:
        return [self]

    def reset(self) -> None:
        """The server is not what it was (a failover): connect anew."""
        self._forget_idle()
        connection, self._renewing = self._renewing, None
        if connection is not None:
            connection.close()
        self.ear.lose()

    def forked(self) -> None:
        for connection in (*self._idle, *([self._renewing] if self._renewing else [])):
            connection.owed = None  # the parent's, too
            connection.close()  # this closes our descriptor only; not a byte is sent
        self._idle = []
        self._renewing = None
        self._doubts = Doubts(self.ear.driver)
        self.ear.forked()

    async def close(self) -> None:
        self._closed = True
        self.reset()

    def _take(self, deadline: float) -> Connection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break  # not dialled here: what then fails would be told as if it came of this
            now = _clock()
            if connection.owed is not None and not self._settled(connection, deadline):
                continue
            fresh = now - connection.used < _FRESH
            connection.used = now
            if fresh or not connection.is_stale():
                return connection
            connection.close()
        return self.dial(deadline, known=self._known)

    def _settled(self, connection: Connection, deadline: float) -> bool:
        """The answer that nobody waited for is read, or the connection is of no use."""
        try:
            connection.settle(min(deadline, _clock() + MOMENT))
        except (HoldfastError, *BROKEN):
            connection.close()
            return False
        except BaseException:
            connection.close()
            raise
        return True

    def dial(self, deadline: float, *, known: bool = False) -> Connection:
        if self._closed:
            raise Misuse(f"this connection to Redis at {self.where} was closed")
        deadline = min(deadline, _clock() + self._timeout)
        connection = finish(dial(self.target, deadline, _clock, _dialler, known=known))
        self.reached = True
        return connection

    def _forget_idle(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()


class Renewal:
    """What one wire is asked apart, on its connection for that."""

    def __init__(self, wire: BlockingWire, requests: Sequence[bytes], deadline: float) -> None:
        self._wire = wire
        self._requests = requests
        self.talk: Talk | None = None
        self._failed: HoldfastError | None = None
        self.begin(deadline)

    @property
    def trouble(self) -> HoldfastError | None:
        return self._failed if self.talk is None else self.talk.trouble

    def begin(self, deadline: float) -> None:
        wire = self._wire
        if self.talk is not None:
            self.talk.connection.close()
        connection, wire._renewing = wire._renewing, None
        try:
            if connection is not None and connection.is_stale():
                connection.close()
                connection = None
            if connection is None:
                # To one server, not waited for: others must not wait for it either.
                alone = wire.target.kind != "sentinel" and len(wire.target.addresses) == 1 and not wire._closed
                first = wire.target.addresses[0]
                connection = Connection(wire.target, first, deadline=deadline) if alone else wire.dial(deadline)
            self.talk = Talk(connection, self._requests)
        except HoldfastError as error:
            self.talk, self._failed = None, error

    def doubt(self, deadline: float) -> None:
        """Silent for a moment: if it is alone with that, it is asked on another."""
        talk = self.talk
        if talk is None or talk.is_over or talk.replies or _clock() >= deadline:
            return
        another = self._wire._instead_of(talk.connection, deadline)
        if another is not None:
            talk.connection.give_up()
            self._wire._renewing = another
            self.begin(deadline)

    def replies(self) -> list[Reply]:
        got = [] if self.talk is None else self.talk.replies
        if self.talk is not None and self.trouble is None:
            self._wire._renewing = self.talk.connection
        elif self.talk is not None:
            self.talk.connection.close()
        return [*got, *[self.trouble] * (len(self._requests) - len(got))]


def _replies(
    connection: Connection,
    requests: Sequence[bytes],
    deadline: float,
    most: int,
    doubted: Callable[[Connection, float], None] | None = None,
) -> list[Reply]:
    """`doubted`: asked when it has been silent for a moment, and may raise Stuck."""
    try:
        connection.most = most
        talk = Talk(connection, requests)
        while doubted is not None and not talk.is_over and deadline - _clock() > MOMENT:
            heard = connection.heard
            together([talk], MOMENT, late=False)
            if not talk.is_over and connection.heard == heard:
                doubted(connection, deadline)
        together([talk], deadline - _clock())
        if talk.trouble is not None:
            raise talk.trouble
        connection.most = MOST
    except BaseException:
        connection.give_up()
        raise
    return talk.replies
