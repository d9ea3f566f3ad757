"""A connection that many share, over a stream of whatever driver: for the simulator, and for drivers of one's own.

asyncio has one of its own, for speed: pipe.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from weakref import ref

from ...claim import ROUND
from ...drivers.base import Driver, Stream
from ...errors import HoldfastError, Misuse, Unavailable
from .connection import BROKEN, Disconnected
from .replies import MOST, MOST_OF_LOOKING, UNREADABLE, Bounds, ProtocolError, Reader, Reply
from .url import Address, show
from .wiring import Answers, Doubted, Listener, OpenPipe, Told

if TYPE_CHECKING:
    from ssl import SSLContext

_FOREVER = float("inf")


class StreamPipe:
    def __init__(
        self, stream: Stream, driver: Driver, address: Address, timeout: float, listener: Listener | None
    ) -> None:
        self.where = show(address)
        self._stream = stream
        self._driver = driver
        self.timeout = timeout
        self._listener = listener
        self.heard = 0
        self._open = True
        self._reader = Reader()
        self._bounds = Bounds(self._reader)
        self._most = MOST
        self._unsent: list[bytes] = []
        self._sending = False
        self._owed: deque[tuple[Told, float]] = deque()  # and when it was asked
        driver.spawn(self._read, "holdfast-pipe")

    @property
    def doubted(self) -> ref[Doubted] | None:
        """Nobody is asked: what these are for have no paths of which one is lost."""
        return None

    @doubted.setter
    def doubted(self, by: ref[Doubted] | None) -> None:
        pass

    def is_good(self) -> bool:
        if self._owed and self._driver.now() - self._owed[0][1] > self.timeout:
            self.fail(Unavailable(f"Redis at {self.where} did not answer within {self.timeout:g} s"))
        return self._open

    def is_alive(self) -> bool:
        return self._open

    async def ask(self, request: bytes) -> Reply:
        answers = Answers(1, self._driver.bell())
        self.put(request, answers)
        if not await answers.are_there(self._driver, self._driver.now() + self.timeout):
            self.fail(Unavailable(f"Redis at {self.where} did not answer within {self.timeout:g} s"))
        (reply,) = answers.replies
        if isinstance(reply, HoldfastError):
            raise reply
        return reply

    def put(self, request: bytes, reply: Told) -> None:
        if not self._open:
            reply.set_exception(Disconnected(f"lost the connection to Redis at {self.where}"))
            return
        self._owed.append((reply, self._driver.now()))
        self.tell(request)

    def tell(self, request: bytes) -> None:
        self._unsent.append(request)
        if not self._sending and self._open:
            self._sending = True
            self._driver.spawn(self._send, "holdfast-pipe")

    def expect_long(self, count: int) -> None:
        self._most = MOST_OF_LOOKING

    def owed(self) -> Iterable[Told]:
        return [reply for reply, _ in self._owed]

    def in_its_loop(self, action: Callable[[], None]) -> None:
        action()

    async def _send(self) -> None:
        try:
            while self._unsent and self._open:
                unsent, self._unsent = self._unsent, []
                await self._stream.send(b"".join(unsent), self._driver.now() + ROUND)
        except BROKEN as error:
            self._broken(error)
        finally:
            self._sending = False

    async def _read(self) -> None:
        try:
            while self._open:
                data = await self._stream.receive(_FOREVER)
                if not data:
                    raise EOFError("the server closed it")
                self.heard += 1
                self._reader.feed(self._bounds.check(data, self._most))
                while self._open and (reply := self._gets()) is not False:
                    self._bounds.whole()
                    self._take(reply)
        except BROKEN as error:
            self._broken(error)

    def _gets(self) -> Reply:
        try:
            return self._reader.gets()
        except UNREADABLE as error:
            raise ProtocolError(str(error)) from error

    def _take(self, reply: Reply) -> None:
        if self._owed:
            self._owed.popleft()[0].set_result(reply)
        elif self._listener is not None:
            self._listener.heard(reply)
        else:
            self.fail(Disconnected(f"Redis at {self.where} said something unasked: {reply!r:.80}"))

    def _broken(self, error: BaseException) -> None:
        self.fail(Disconnected(f"lost the connection to Redis at {self.where}: {error}"))

    def fail(self, error: Unavailable) -> None:
        if not self._open:
            return
        self._open = False
        self._stream.close()
        owed, self._owed = self._owed, deque()
        for reply, _ in owed:
            reply.set_exception(type(error)(str(error)))
        if self._listener is not None:
            self._listener.lost(self)

    def give_up(self, error: Unavailable) -> None:
        if self._open:
            self._stream.give_up()
        self.fail(error)

    def close(self) -> None:
        self.fail(Unavailable("it is not needed"))

    def disown(self) -> None:
        self._open = False
        self._stream.disown()


def by_streams(driver: Driver) -> OpenPipe:
    async def open_pipe(
        address: Address, tls: SSLContext | None, timeout: float, listener: Listener | None, deadline: float
    ) -> StreamPipe:
        if not address[1]:
            raise Misuse("Unix sockets are for threads and asyncio")
        return StreamPipe(await driver.connect(address, tls, deadline), driver, address, timeout, listener)

    return open_pipe
