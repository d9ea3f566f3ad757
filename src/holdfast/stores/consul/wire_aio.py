"""The same in asyncio: a task takes a connection for one conversation and puts it back. Cancelled, it drops it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl

from ...drivers.aio import LoopBell
from ...drivers.base import boot_time as _clock
from ..turns import Turns
from .http import Answer, Reader, most_of, request
from .url import Address, Target, show
from .wire import (
    _CHUNK,
    _MOST_IDLE,
    MOST_AT_ONCE,
    Unreachable,
    full,
    lost,
    no_tls,
    share,
    tls_context,
    unreachable,
)


class _Connection:
    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self.reader = reader
        self.writer = writer

    async def ask(self, sent: bytes, most: int) -> tuple[Answer, bool]:
        reader = Reader(most)
        self.writer.write(sent)
        while True:
            data = await self.reader.read(_CHUNK)
            if not data:
                return reader.end(), False
            answer = reader.feed(data)
            if answer is not None:
                return answer, reader.keeps_alive

    @property
    def usable(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())

    def close(self) -> None:
        self.writer.transport.abort()

    def disown(self) -> None:
        """In a forked child, or when the loop was closed: let the socket go without touching the loop or its selector.

        The selector is the parent's as well: to take the socket off it would make the parent deaf. So the number goes to
        something harmless, which whoever still owns the transport may close, or take off, as it likes.
        """
        plain = self.writer.get_extra_info("socket")
        if plain is not None and plain.fileno() >= 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, plain.fileno())
            os.close(nothing)


class AioWire:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._tls = tls_context(target) if target.tls else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._at = 0
        self._closed = False
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._room = Turns(LoopBell, asyncio.current_task, MOST_AT_ONCE)

    def _here(self) -> None:
        """Connections belong to a loop; in another one they are started afresh."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._loop.is_closed():
                self.forked()
            self._loop = loop
            self._idle, self._busy = [], set()
            self._room = Turns(LoopBell, asyncio.current_task, MOST_AT_ONCE)

    async def ask(self, method: str, path: str, body: bytes, within: float) -> Answer:
        self._here()
        deadline = _clock() + within
        turn = self._room.turn()
        try:
            if not await turn.come(deadline):
                raise full(self.where)
            return await self.ask_apart(method, path, body, deadline - _clock())
        finally:
            turn.over()

    async def ask_apart(self, method: str, path: str, body: bytes, within: float) -> Answer:
        self._here()
        deadline = _clock() + within
        connection = await self._take(deadline)
        done = False
        try:
            async with asyncio.timeout(share(self.target, deadline) - _clock()):
                sent = request(self.target, connection.address, method, path, body)
                answer, done = await connection.ask(sent, most_of(path))
        except (OSError, EOFError, ValueError, ssl.SSLError) as error:
            self._pass_over(connection.address)
            raise lost(connection.address, error, within) from error
        finally:
            self._put_back(connection, done)
        if answer.status >= 500:
            self._pass_over(connection.address)  # it may be cut off from the quorum, and another may not
        return answer

    async def _take(self, deadline: float) -> _Connection:
        if self._closed:
            raise Unreachable("this connection to Consul was closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._busy.add(connection)
                return connection
            connection.close()
        failures = []
        addresses = self.target.addresses
        for step in range(len(addresses)):
            left = deadline - _clock()
            if left <= 0:
                break
            at = (self._at + step) % len(addresses)
            host, port = addresses[at]
            try:
                async with asyncio.timeout(left / (len(addresses) - step)):
                    streams = await asyncio.open_connection(host, port, ssl=self._tls)
            except ssl.SSLError as error:
                raise no_tls(addresses[at], error) from error
            except OSError as error:
                failures.append(f"{show(addresses[at])}: {str(error) or 'no answer in time'}")
                continue
            self._at = at
            connection = _Connection(addresses[at], *streams)
            self._busy.add(connection)
            return connection
        raise unreachable(failures, self.where)

    def _put_back(self, connection: _Connection, whole: bool) -> None:
        self._busy.discard(connection)
        if whole and not self._closed and len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _pass_over(self, address: Address) -> None:
        addresses = self.target.addresses
        if addresses[self._at] == address:
            self._at = (self._at + 1) % len(addresses)
        for one in [one for one in self._idle if one.address == address]:
            self._idle.remove(one)
            one.close()

    def forked(self) -> None:
        for one in (*self._idle, *self._busy):
            one.disown()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(RuntimeError):  # their loop is closed, and they with it
            for one in [*self._idle, *self._busy]:
                one.close()
        self._idle = []
