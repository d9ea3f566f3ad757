"""Redis over the streams of whatever driver: for the simulator, and for drivers of one's own.

Threads and asyncio have wires of their own, for speed: wire.py, wire_aio.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...drivers.base import Address, Bell, Driver, Stream
from ...errors import HoldfastError, Misuse, Unavailable
from ..kit.url import tls_context
from .connection import BROKEN, Disconnected
from .keys import pack
from .replies import (
    MOST_GREETING,
    MOST_OF_LOOKING,
    Bounds,
    Reader,
    Reply,
    ReplyError,
    check_greeting,
    explained,
    greeting,
    heard,
)
from .url import Target, show

if TYPE_CHECKING:
    from ssl import SSLContext

_FOREVER = float("inf")


class Session:
    """One connection. After any failure in mid-conversation it is closed: the rest of its replies belongs to nobody."""

    def __init__(self, stream: Stream, address: Address) -> None:
        self.stream = stream
        self.where = show(address)
        self._reader = Reader()
        self._bounds = Bounds()

    async def ask(self, requests: Sequence[bytes], deadline: float, most: int) -> list[Reply]:
        """In order, in one piece."""
        with self.translated():
            await self.stream.send(b"".join(requests), deadline)
            return [await self.next(deadline, most) for _ in requests]

    async def next(self, deadline: float, most: int) -> Reply:
        while (reply := self._reader.gets()) is False:
            data = await self.stream.receive(deadline)
            if not data:
                raise EOFError("the server closed it")
            self._reader.feed(self._bounds.check(data, most))
        self._bounds.whole()
        return reply

    @contextlib.contextmanager
    def translated(self):  # type: ignore[no-untyped-def]
        try:
            yield
        except HoldfastError:
            raise
        except TimeoutError as error:
            raise Unavailable(f"Redis at {self.where} did not answer in time") from error
        except BROKEN as error:
            raise Disconnected(f"lost the connection to Redis at {self.where}: {error}") from error


class StreamWire:
    """As many connections as talk at once, and an ear."""

    def __init__(self, target: Target, driver: Driver) -> None:
        if target.kind != "redis" or not target.addresses[0][1]:
            raise Misuse("Sentinels, clusters and Unix sockets are for threads and asyncio")
        self.target = target
        self.where = target.shown()
        self._driver = driver
        self._idle: list[Session] = []
        self._closed = False
        self.ear = StreamEar(self, driver, target.prefix)

    async def ask(self, request: bytes, within: float) -> Reply:
        return (await self._converse([request], within))[0]

    async def ask_all(self, requests: Sequence[bytes], within: float, *, once: bool = False) -> list[Reply]:
        deadline = self._driver.now() + within
        try:
            return await self._converse(requests, within)
        except Disconnected:
            left = deadline - self._driver.now()
            if once or left <= 0:
                raise
        return await self._converse(requests, left)

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        try:
            return await self.ask_all(requests, within)
        except HoldfastError as error:
            return [error] * len(requests)

    async def _converse(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        deadline = self._driver.now() + min(within, self.target.timeout)
        session = self._taken() or await self.dial(deadline)
        whole = False
        try:
            replies = await session.ask(requests, deadline, MOST_OF_LOOKING)
            whole = not self._closed
        finally:
            if whole:
                self._idle.append(session)
            else:
                session.stream.close()
        return replies

    def _taken(self) -> Session | None:
        while self._idle:
            session = self._idle.pop()
            if not session.stream.is_stale():
                return session
            session.stream.close()
        return None

    async def dial(self, deadline: float) -> Session:
        if self._closed:
            raise Misuse(f"this connection to Redis at {self.where} was closed")
        target, (address, *_) = self.target, self.target.addresses
        tls: SSLContext | None = tls_context(target.ca, target.cert, target.cert_key) if target.tls else None
        try:
            session = Session(await self._driver.connect(address, tls, deadline), address)
        except OSError as error:
            raise Unavailable(f"cannot connect to Redis at {self.where}: {error}") from error
        try:
            words = greeting(target, known=False)
            check_greeting(target, address, await session.ask(words, deadline, MOST_GREETING))
        except BaseException:
            session.stream.close()
            raise
        return session

    async def parts(self, within: float) -> Sequence[StreamWire]:
        return [self]

    def reset(self) -> None:
        while self._idle:
            self._idle.pop().stream.close()
        self.ear.lose()

    def forked(self) -> None:
        for session in self._idle:
            session.stream.disown()
        self._idle = []
        self.ear.forked()

    async def close(self) -> None:
        self._closed = True
        self.reset()


class StreamBell:
    """One waiter's."""

    def __init__(self, what: bytes, bell: Bell) -> None:
        self.what = what
        self.bell = bell


class StreamEar:
    """Subscribed to the store's own channel, and read in the background while it is open."""

    def __init__(self, wire: StreamWire, driver: Driver, prefix: str) -> None:
        self._wire = wire
        self._driver = driver
        self._prefix = prefix
        self._session: Session | None = None
        self._fresh()

    def _fresh(self) -> None:
        self.channel = f"{self._prefix}:bell:{os.urandom(8).hex()}".encode()
        self._bells: list[StreamBell] = []

    @property
    def is_open(self) -> bool:
        return self._session is not None

    async def open(self, within: float) -> None:
        if self._session is not None:
            return
        deadline = self._driver.now() + within
        session = await self._wire.dial(deadline)
        try:
            (reply,) = await session.ask([pack("SUBSCRIBE", self.channel)], deadline, MOST_GREETING)
            if isinstance(reply, ReplyError):
                raise explained(reply, self._wire.where, self._prefix)
        except BaseException:
            session.stream.close()
            raise
        self.lose()  # should another have opened one meanwhile
        self._session = session
        self._driver.spawn(lambda: self._listen(session), "holdfast-ear")

    async def _listen(self, session: Session) -> None:
        try:
            while self._session is session:
                with session.translated():
                    what = heard(await session.next(_FOREVER, MOST_GREETING), self.channel, self._wire.where)
                for one in self._bells:
                    if one.what == what:
                        one.bell.ring()
        except HoldfastError:
            pass
        finally:
            if self._session is session:
                self.lose()

    def lose(self) -> None:
        """It is no good: wake everybody to look for themselves."""
        session, self._session = self._session, None
        if session is not None:
            session.stream.close()
            for one in self._bells:
                one.bell.ring()

    def expect(self, what: bytes) -> StreamBell:
        self._bells.append(StreamBell(what, self._driver.bell()))
        return self._bells[-1]

    def forget(self, bell: StreamBell) -> None:
        with contextlib.suppress(ValueError):
            self._bells.remove(bell)

    async def follow(self, bell: StreamBell, within: float) -> None:
        deadline = self._driver.now() + within
        await self.open(within)
        await self._tell("SUBSCRIBE", bell, deadline)
        await self.hear(bell, deadline - self._driver.now())

    def unfollow(self, bell: StreamBell) -> None:
        self.forget(bell)  # what is told of it from now on, nobody listens to

    async def hear(self, bell: StreamBell, timeout: float) -> None:
        if self._session is not None:
            await bell.bell.wait(timeout)

    async def _tell(self, word: str, bell: StreamBell, deadline: float) -> None:
        if self._session is not None:
            with self._session.translated():
                await self._session.stream.send(pack(word, bell.what), deadline)

    def wake_waiters(self) -> None:
        self.lose()

    def forked(self) -> None:
        if self._session is not None:
            self._session.stream.disown()
        self._session = None
        self._fresh()
