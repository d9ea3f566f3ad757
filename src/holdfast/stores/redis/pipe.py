"""One connection for all tasks of a loop: requests are written as they come, replies belong to them in order.

Measured against redis-py's asyncio client, which takes a connection out of a pool for every command, at 64 tasks: see
benchmarks/redis.py. What tasks ask for in one turn of the loop leaves in one write. A task that is cancelled leaves its
future in the queue, so that its reply is still taken off, and given to nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast
from weakref import ref

from ...drivers.aio import LoopBell
from ...drivers.base import boot_time
from ...drivers.loops import ends_with_this_loop, give_up_socket
from ...drivers.sockets import take_back, void
from ...drivers.transports import open_protocol
from ...errors import Unavailable
from ..kit.doubts import MOMENT
from .connection import Disconnected
from .replies import MOST, MOST_OF_LOOKING, UNREADABLE, Bounds, ProtocolError, Reader, Reply
from .url import Address, show
from .wiring import Doubted, Listener, Told

if TYPE_CHECKING:
    from ssl import SSLContext

_LOOKS = 8  # in the time that an answer may take: one is missed so much of it late at most
_LOOK = 0.05  # seconds at most between two looks, so that silence is noticed soon
_SHORT = 24  # bytes: a token and its line
_NUMBER = 58  # how an answer begins that is a whole number
_ENOUGH = 32  # requests to write without waiting for more: the server works on them while the loop goes on


class Pipe(asyncio.BufferedProtocol):
    """A connection that many share. Whatever breaks it fails all that wait for a reply, and it is not used again."""

    def __init__(self, address: Address, timeout: float, listener: Listener | None = None) -> None:
        self.loop = get_running_loop()
        self._listener = listener
        self.where = show(address)
        self.doubted: ref[Doubted] | None = None
        self.open = False
        self.timeout = timeout
        self._reader = Reader()
        self._bounds = Bounds(self._reader)
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._waiting: deque[Told] = deque()
        self._answered = 0
        self._pieces = 0
        self._quiet = (0, 0.0)  # so much was heard by then, and nothing since
        self._looks_until = 0  # up to this one, answers may be long
        self._noted: deque[tuple[int, float]] = deque()  # so many had been asked by then
        self._unsent: list[bytes] = []
        self._together = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def expect_long(self, count: int) -> None:
        """The next so many answers may be long."""
        self._looks_until = self._answered + len(self._waiting) + count

    def is_good(self) -> bool:
        return self.open and self.loop is get_running_loop()

    def is_alive(self) -> bool:
        return self.open and self.loop.is_running()

    def ask(self, request: bytes) -> asyncio.Future[Reply]:
        reply: asyncio.Future[Reply] = asyncio.Future(loop=self.loop)
        self.put(request, reply)
        return reply

    def put(self, request: bytes, reply: Told) -> None:
        """Ask, and let it be told the answer as soon as it is read."""
        if not self.open or self._transport is None:
            reply.set_exception(Disconnected(f"lost the connection to Redis at {self.where}"))
            return
        unsent = self._unsent
        try:
            if unsent:
                unsent.append(request)
                if len(unsent) >= _ENOUGH:
                    self._flush()
            elif self._waiting or self._together:  # others will follow in this turn of the loop
                unsent.append(request)
                self.loop.call_soon(self._flush)
            else:
                self._transport.write(request)
            self._waiting.append(reply)
            if self._watchdog is None:
                self._quiet = (self.heard, self.loop.time())
                self._watch()
        except BaseException:
            self._interrupted()
            raise

    @property
    def heard(self) -> int:
        return self._answered + self._pieces

    def tell(self, request: bytes) -> None:
        """Without an answer of its own."""
        if self.open and self._transport is not None:
            self._transport.write(request)

    def owed(self) -> Iterable[Told]:
        return self._waiting

    def _flush(self) -> None:
        if not self._unsent:
            return
        try:
            unsent, self._unsent = self._unsent, []
            # Tasks that ask together are answered together, and ask together again, if the first does not rush ahead.
            self._together = len(unsent) > 1
            if self._transport is not None and self.open:
                self._transport.write(b"".join(unsent))
        except BaseException:
            self._interrupted()
            raise

    def _interrupted(self) -> None:
        """By a signal handler that raises: an answer more or less, and each would be given to the one before, or behind. That the
        loop goes on after that, to end what there is in it, is the rule."""
        self.fail(Disconnected(f"a question to Redis at {self.where}, or its answer, was interrupted"))

    def _watch(self) -> None:
        """One timer for all requests: it notes from time to time how many were asked, and how long ago that was."""
        self._watchdog = None
        noted = self._noted
        while noted and noted[0][0] <= self._answered:
            noted.popleft()
        if not self._waiting:
            return
        now = self.loop.time()
        if noted and now >= noted[0][1] + self.timeout - 0.001:
            self.give_up(Unavailable(f"Redis at {self.where} did not answer within {self.timeout:g} s"))
            return
        asked = self._answered + len(self._waiting)
        if not noted or noted[-1][0] != asked:
            noted.append((asked, now))
        self._watchdog = self.loop.call_at(now + min(self.timeout / _LOOKS, _LOOK), self._watch)
        if self._quiet[0] != self.heard:
            self._quiet = (self.heard, now)
        elif self.doubted is not None and now >= self._quiet[1] + MOMENT and (doubted := self.doubted()) is not None:
            doubted(self)

    def give_up(self, error: Unavailable) -> None:
        """`fail`, in its own loop; and nothing of what it was asked arrives any more."""
        if self.open and self._transport is not None:
            take_back(self._transport.get_extra_info("socket").fileno())
        self.fail(error)

    def close(self) -> None:
        self.fail(Unavailable("it is not needed"))

    def fail(self, error: Unavailable) -> None:
        if not self.open:
            return
        if self.loop.is_closed():  # nobody waits there any more
            self.end_with_loop()
            return
        self.open = False
        if asyncio._get_running_loop() is self.loop:
            self._end(error)
        else:  # somebody closes it from another thread, whose hands are to be kept off the loop
            self.in_its_loop(lambda: self._end(error))

    def _end(self, error: Unavailable) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for reply in waiting:
            if not reply.done():
                reply.set_exception(type(error)(str(error)))
        if self._listener is not None:
            self._listener.lost(self)

    def in_its_loop(self, action: Callable[[], None]) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there
            self.loop.call_soon_threadsafe(action)

    def end_with_loop(self) -> None:
        self.open = False
        if self._transport is not None:
            give_up_socket(self._transport.get_extra_info("socket"), self.loop)

    def disown(self) -> None:
        """In a forked child, where the loop is the parent's too: give up our socket, and do not touch the loop."""
        self.open = False
        if self._transport is not None:
            void(self._transport.get_extra_info("socket"))

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # not asserted: uvloop's are its own
        self.open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, count: int) -> None:
        try:
            self._updated(count)
        except BaseException:
            self._interrupted()
            raise

    def _updated(self, count: int) -> None:
        reader, waiting = self._reader, self._waiting
        if count < _SHORT and waiting and self._bounds.between:
            data = self._view[:count].tobytes()
            if data[0] == _NUMBER and data.find(b"\n") == count - 1 and data[1:-2].isdigit():
                self._answered += (
                    1  # what a claim and a release are mostly told, and nothing else: no need to look further
                )
                reply = waiting[0]  # taken off when it was told: interrupted, it is told so with the others
                if not reply.done():
                    reply.set_result(int(data[1:-2]))
                waiting.popleft()
                return
        self._pieces += 1
        try:
            most = MOST_OF_LOOKING if self._answered < self._looks_until else MOST
            reader.feed(self._bounds.check(self._view[:count].tobytes(), most))
        except ProtocolError as error:
            self._foreign(error)
            return
        while (message := self._gets()) is not False:
            self._bounds.whole()
            if not waiting:
                self.unasked(message)
                continue
            reply = waiting[0]
            self._answered += 1
            if not reply.done():
                reply.set_result(message)
            waiting.popleft()

    def _gets(self) -> Reply:
        try:
            return self._reader.gets()
        except UNREADABLE as error:
            self._foreign(error)
            return False

    def _foreign(self, error: Exception) -> None:
        self.fail(Disconnected(f"what answers at {self.where} does not speak as Redis does: {error}"))

    def unasked(self, message: Reply) -> None:
        if self._listener is not None:
            self._listener.heard(message)
            return
        self.fail(Disconnected(f"Redis at {self.where} said something unasked: {message!r:.80}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(Disconnected(f"lost the connection to Redis at {self.where}: {error or 'the server closed it'}"))


async def open_pipe(
    address: Address, tls: SSLContext | None, timeout: float, listener: Listener | None, deadline: float
) -> Pipe:
    """Connected, by a deadline of the driver's clock; OSError: it was not."""
    pipe = Pipe(address, timeout, listener)
    try:
        if address[1]:
            await open_protocol(address, tls, deadline, LoopBell(), lambda plain: pipe)
        else:
            async with asyncio.timeout(deadline - boot_time()):
                await pipe.loop.create_unix_connection(lambda: pipe, address[0])
    except BaseException:
        pipe.fail(Unavailable("given up"))
        raise
    ends_with_this_loop(pipe, Pipe.end_with_loop)
    return pipe
