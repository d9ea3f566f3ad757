"""Streams for asyncio: a protocol on the loop, be it asyncio's own or uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .base import Address, Bell, boot_time
from .dialing import dial
from .loops import ends_with_this_loop, give_up_socket
from .sockets import has_something, take_back, void

P = TypeVar("P", bound=asyncio.BaseProtocol)
_MOST_UNREAD = 1 << 18  # bytes; above it, the server has to wait until somebody reads


class TransportStream(asyncio.Protocol):
    """May be closed, or hung up, from any thread, and after its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plain: socket.socket) -> None:
        self._loop = loop
        self._plain = plain  # asked for its number each time: uvloop closes it with the loop, and the number is free
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._ended = False
        self._trouble: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._full = False  # what was sent has not gone yet

    async def send(self, data: bytes, deadline: float) -> None:
        if self._ended or self._transport is None:
            raise self._trouble or ConnectionResetError("the server hung up")
        self._transport.write(data)
        while self._full and not self._ended:
            self._writer = self._loop.create_future()
            try:
                await self._until(self._writer, deadline)
            finally:
                self._writer = None

    async def receive(self, deadline: float) -> bytes:
        while not self._unread:
            if self._trouble is not None:
                raise self._trouble
            if self._ended:
                return b""
            self._reader = self._loop.create_future()
            try:
                await self._until(self._reader, deadline)
            finally:
                self._reader = None
        data = bytes(self._unread)
        self._unread.clear()
        if len(data) > _MOST_UNREAD and self._transport is not None and not self._ended:
            self._transport.resume_reading()
        return data

    async def _until(self, told: asyncio.Future[None], deadline: float) -> None:
        left = deadline - boot_time()
        if left <= 0:
            raise TimeoutError("no answer in time")
        timer = self._loop.call_later(left, _too_late, told)
        try:
            await told
        finally:
            timer.cancel()

    def is_stale(self) -> bool:
        if self._ended or self._unread or asyncio._get_running_loop() is not self._loop:
            return True
        # What the loop has not told us yet counts as well. (TLS has words of its own, which say nothing to us.)
        transport = self._transport
        return transport is None or (transport.get_extra_info("ssl_object") is None and has_something(self._plain))

    def hang_up(self) -> None:
        self.close()

    def close(self) -> None:
        if self._transport is None:
            return
        if asyncio._get_running_loop() is self._loop:
            self._transport.abort()
        elif self._loop.is_closed():
            self._ended = True
            give_up_socket(self._plain, self._loop)
        else:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._transport.abort)

    def give_up(self) -> None:
        take_back(self._plain.fileno())
        self.close()

    def disown(self) -> None:
        """In a forked child: let the socket go without touching the loop or its selector.

        The selector is the parent's as well: to take the socket off it would make the parent deaf. So the number goes to
        something harmless, which whoever still owns the transport may close, or take off, as it likes.
        """
        self._ended = True
        void(self._plain)

    # ---- what the loop tells us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by birth

    def data_received(self, data: bytes) -> None:
        before = len(self._unread)
        self._unread += data
        if before <= _MOST_UNREAD < len(self._unread) and self._transport is not None:
            self._transport.pause_reading()
        _tell(self._reader)

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._trouble = exc if isinstance(exc, OSError) or exc is None else ConnectionResetError(str(exc))
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _tell(self._writer)

    def _wake(self) -> None:
        _tell(self._reader)
        _tell(self._writer)


def _tell(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _too_late(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError("no answer in time"))


async def connect(address: Address, tls: ssl.SSLContext | None, deadline: float, bell: Bell) -> TransportStream:
    loop = asyncio.get_running_loop()
    stream = await open_protocol(address, tls, deadline, bell, lambda plain: TransportStream(loop, plain))
    ends_with_this_loop(stream, TransportStream.close)
    return stream


async def open_protocol(
    address: Address,
    tls: ssl.SSLContext | None,
    deadline: float,
    bell: Bell,
    make: Callable[[socket.socket], P],
) -> P:
    """What is made of a socket that is connected, with TLS set up if there is any."""
    loop = asyncio.get_running_loop()

    async def open_one(plain: socket.socket, where: Any, share: float) -> P:
        try:
            async with asyncio.timeout(share - boot_time()):
                await loop.sock_connect(plain, where)
            protocol = make(plain)
            async with asyncio.timeout(deadline - boot_time()):
                host = address[0] if tls is not None else None
                await loop.create_connection(lambda: protocol, sock=plain, ssl=tls, server_hostname=host)
        except TimeoutError:
            raise TimeoutError("no answer in time") from None
        return protocol

    return await dial(address, bell, deadline, open_one)
