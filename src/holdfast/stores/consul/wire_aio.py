"""The same in asyncio: a task takes a connection for one conversation and puts it back. Cancelled, it drops it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from types import TracebackType

from ...errors import Unavailable
from .http import Answer, Reader, request
from .url import Address, Target, show
from .wire import _CHUNK, _MOST_IDLE, GATE_PATIENCE, MOST_AT_ONCE, Gate, crowded, lost, no_tls, share, tls_context


class _Connection:
    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self.reader = reader
        self.writer = writer

    async def ask(self, sent: bytes) -> tuple[Answer, bool]:
        reader = Reader()
        self.writer.write(sent)
        while True:
            data = await self.reader.read(_CHUNK)
            if not data:
                raise EOFError("the agent closed it")
            answer = reader.feed(data)
            if answer is not None:
                return answer, reader.keeps_alive

    @property
    def usable(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())

    def close(self) -> None:
        self.writer.transport.abort()


class _LoopGate:
    def __init__(self, target: Target) -> None:
        self._lock = asyncio.Lock()
        self._patience = GATE_PATIENCE * target.timeout

    async def __aenter__(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._lock.acquire()
        except TimeoutError:
            raise crowded(self._patience) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class AioWire:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._at = 0
        self._closed = False
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    def _here(self) -> None:
        """Connections belong to a loop; in another one they are started afresh."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._idle, self._busy = [], set()
            self._room = asyncio.Semaphore(MOST_AT_ONCE)

    def gate(self) -> Gate:
        return _LoopGate(self.target)

    async def ask(self, method: str, path: str, body: bytes, within: float) -> Answer:
        self._here()
        async with self._room:
            return await self.ask_apart(method, path, body, within)

    async def ask_apart(self, method: str, path: str, body: bytes, within: float) -> Answer:
        self._here()
        within = share(self.target, within)
        connection = await self._take(within)
        done = False
        try:
            async with asyncio.timeout(within):
                answer, done = await connection.ask(request(self.target, connection.address, method, path, body))
        except (OSError, EOFError, ValueError, ssl.SSLError) as error:
            self._pass_over(connection.address)
            raise lost(connection.address, error, within) from error
        finally:
            self._put_back(connection, done)
        if answer.status >= 500:
            self._pass_over(connection.address)  # it may be cut off from the quorum, and another may not
        return answer

    async def _take(self, within: float) -> _Connection:
        if self._closed:
            raise Unavailable("this connection to Consul was closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._busy.add(connection)
                return connection
            connection.close()
        failures = []
        addresses = self.target.addresses
        context = tls_context(self.target) if self.target.tls else None
        for step in range(len(addresses)):
            at = (self._at + step) % len(addresses)
            host, port = addresses[at]
            try:
                async with asyncio.timeout(within):
                    streams = await asyncio.open_connection(host, port, ssl=context)
            except ssl.SSLError as error:
                raise no_tls(addresses[at], error) from error
            except OSError as error:
                failures.append(f"{show(addresses[at])}: {error}")
                continue
            self._at = at
            connection = _Connection(addresses[at], *streams)
            self._busy.add(connection)
            return connection
        raise Unavailable(f"cannot connect to Consul at {'; '.join(failures)}")

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

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(RuntimeError):  # their loop is closed, and they with it
            for one in [*self._idle, *self._busy]:
                one.close()
        self._idle = []
