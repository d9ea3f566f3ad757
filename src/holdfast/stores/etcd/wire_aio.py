"""The connections of a store in asyncio: one that all tasks share, one for renewals, one ear."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from ...drivers.base import Bell
from ...errors import Misuse, Unavailable
from .channel import Channel, Status
from .ear import HAS_LEADER, PING_AFTER, Watch, Watches
from .gather import Gatherer
from .proto import AUTHENTICATE, TXN, WATCH, Done, login, read_login, watch_cancel, watch_create
from .refusals import Refused, failure
from .url import Address, Target, show, tls_context
from .wire import Call, Metadata

OnMessage = Callable[[bytes], None]
OnEnd = Callable[[], None]


class LoopConnection(asyncio.Protocol):
    """One connection of one event loop. Any number of calls at once; a call that is given up disturbs no other."""

    def __init__(self, target: Target, address: Address) -> None:
        self.where = show(address)
        self.channel = Channel(self.where, tls=target.tls)
        self.loop = asyncio.get_running_loop()
        self.heard = self.loop.time()
        self.open = True
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, tuple[asyncio.Future[bytes], list[bytes]]] = {}
        self._streams: dict[int, tuple[OnMessage, OnEnd]] = {}

    async def ask_all(self, calls: Sequence[Call], metadata: Metadata, deadline: float) -> list[bytes]:
        if not self.open:
            raise Unavailable(f"the connection to etcd at {self.where} was lost")
        futures: dict[int, asyncio.Future[bytes]] = {}
        for path, message in calls:
            try:
                number = self.channel.call(path, message, metadata)
            except ConnectionError as error:
                raise Unavailable(f"the connection to etcd at {self.where} carries no more calls: {error}") from error
            future: asyncio.Future[bytes] = self.loop.create_future()
            futures[number] = future
            self._calls[number] = (future, [])
        self.flush()
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.wait(futures.values())
        except TimeoutError:
            silent = Unavailable(f"etcd at {self.where} did not answer in time")
            self.fail(silent)
            raise silent from None
        finally:
            for number, future in futures.items():
                if not future.done():
                    self._calls.pop(number, None)
                    self.channel.forget(number)
                    future.cancel()
                elif not future.cancelled():
                    future.exception()  # looked at, so that the loop does not complain of it
            self.flush()
        return [future.result() for future in futures.values()]

    def stream(self, path: bytes, message: bytes, metadata: Metadata, on_message: OnMessage, on_end: OnEnd) -> int:
        number = self.channel.call(path, message, metadata, end=False)
        self._streams[number] = (on_message, on_end)
        self.flush()
        return number

    def flush(self) -> None:
        waiting = self.channel.outgoing()
        if waiting and self._transport is not None and self.open:
            self._transport.write(waiting)

    def fail(self, error: Unavailable) -> None:
        """It carries nothing more: whoever waits is told."""
        if not self.open:
            return
        self.open = False
        if self._transport is not None:
            self._transport.abort()
        calls, self._calls = self._calls, {}
        for future, _ in calls.values():
            if not future.done():
                future.set_exception(error)
        streams, self._streams = self._streams, {}
        for _, on_end in streams.values():
            on_end()

    def disown(self) -> None:
        """In a forked child: close the descriptor, say nothing, touch no loop."""
        self.open = False
        transport = self._transport
        if transport is not None:
            plain = transport.get_extra_info("socket")
            if plain is not None:
                os.close(plain.fileno())

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        try:
            for number, message, status in self.channel.feed(data):
                if status is not None:
                    self._ended(number, status)
                elif number in self._calls:
                    self._calls[number][1].append(message)
                elif number in self._streams:
                    self._streams[number][0](message)
        except ConnectionError as error:
            self.fail(Unavailable(f"lost the connection to etcd at {self.where}: {error}"))
            return
        self.flush()

    def _ended(self, number: int, status: Status) -> None:
        if number in self._streams:
            self._streams.pop(number)[1]()
        if number not in self._calls:
            return
        future, messages = self._calls.pop(number)
        if future.done():
            return
        if status.code:
            future.set_exception(failure(status, self.where))
        else:
            future.set_result(messages[0] if messages else b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(Unavailable(f"lost the connection to etcd at {self.where}: {exc or 'the server closed it'}"))


class AioWire:
    mutex = asyncio.Lock

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self.member = os.urandom(1)[0] % len(target.addresses)
        self._metadata: Metadata = ()
        self._tls = tls_context(target) if target.tls else None
        self._connections: dict[str, LoopConnection] = {}
        self._dialling: dict[str, asyncio.Lock] = {}
        self.ear = LoopEar(self)
        self._gatherer = Gatherer(lambda message: self.ask(TXN, message))

    async def ask(self, path: bytes, message: bytes) -> bytes:
        return (await self._converse("shared", ((path, message),), self.target.timeout))[0]

    async def transact(self, name: str, transaction: bytes) -> Done:
        """A transaction about one name; those of several tasks at once go out together."""
        return await self._gatherer.transact(name, transaction)

    async def ask_apart(self, calls: Sequence[Call], within: float) -> list[bytes]:
        return await self._converse("renewals", calls, min(within, self.target.timeout))

    def forked(self) -> None:
        for connection in self._connections.values():
            connection.disown()
        self._connections = {}
        self._dialling = {}
        self.ear.forked()
        self._gatherer = Gatherer(lambda message: self.ask(TXN, message))

    async def close(self) -> None:
        self.ear.lose()
        for connection in list(self._connections.values()):
            connection.fail(Unavailable("this connection was closed"))
        self._connections = {}

    # ---- connections

    async def open_watch(self, use: str) -> tuple[LoopConnection, Metadata]:
        deadline = asyncio.get_running_loop().time() + self.target.timeout
        connection = await self._connected(use, deadline)
        if self.target.username:
            await self._log_in(connection, deadline)
        return connection, self._metadata

    async def _converse(self, use: str, calls: Sequence[Call], within: float) -> list[bytes]:
        deadline = asyncio.get_running_loop().time() + within
        connection = await self._connected(use, deadline)
        try:
            if self.target.username and not self._metadata:
                await self._log_in(connection, deadline)
            try:
                return await connection.ask_all(calls, self._metadata, deadline)
            except Refused as refused:
                if not (self.target.username and refused.is_login_stale):
                    raise
                await self._log_in(connection, deadline)
                return await connection.ask_all(calls, self._metadata, deadline)
        except Unavailable as error:
            if connection is self._connections.get(use):
                del self._connections[use]
                self.member += 1
            connection.fail(error)
            raise

    async def _log_in(self, connection: LoopConnection, deadline: float) -> None:
        words = login(self.target.username, self.target.password)
        (answer,) = await connection.ask_all(((AUTHENTICATE, words),), (), deadline)
        self._metadata = ((b"token", read_login(answer)),)

    async def _connected(self, use: str, deadline: float) -> LoopConnection:
        connection = self._connections.get(use)
        if connection is not None and connection.open and connection.loop is asyncio.get_running_loop():
            return connection
        async with self._dialling.setdefault(use, asyncio.Lock()):
            connection = self._connections.get(use)
            if connection is None or not connection.open:
                connection = self._connections[use] = await self._dial(deadline)
            return connection

    async def _dial(self, deadline: float) -> LoopConnection:
        """To the first member that can be connected to, beginning with the one that served last."""
        loop = asyncio.get_running_loop()
        addresses = self.target.addresses
        failures = []
        for left in range(len(addresses), 0, -1):
            now = loop.time()
            if now >= deadline:
                break
            address = addresses[self.member % len(addresses)]
            try:
                async with asyncio.timeout_at(now + (deadline - now) / left):
                    _, connection = await loop.create_connection(
                        lambda to=address: LoopConnection(self.target, to), *address, ssl=self._tls
                    )
                return connection
            except ssl.SSLError as error:
                raise Misuse(
                    f"no TLS with etcd at {show(address)}: {error}; see the options ca, cert, cert_key"
                ) from error
            except OSError as error:
                failures.append(f"cannot connect to etcd at {show(address)}: {error or 'no answer in time'}")
                self.member += 1
        raise Unavailable("; ".join(failures) or f"no time was left to connect to etcd at {self.where}")


class LoopEar:
    """How tasks hear: see ear.py for why nothing is lost."""

    def __init__(self, wire: AioWire) -> None:
        self._wire = wire
        self.forked()

    def forked(self) -> None:
        self._line: LoopConnection | None = None
        self._stream = 0
        self._watches = Watches()
        self._opening = asyncio.Lock()
        self._metadata: Metadata = ()

    async def watch(self, key: bytes, range_end: bytes, since: int, bell: Bell) -> Watch:
        if self._line is None or not self._line.open:
            async with self._opening:
                if self._line is None or not self._line.open:
                    self._line, metadata = await self._wire.open_watch("ear")
                    self._metadata = (*metadata, *HAS_LEADER)
                    self._stream = 0
                    self._ping(self._line)
        watch = self._watches.add(key, range_end, since, bell)
        self._send(watch_create(watch.number, key, range_end))
        return watch

    def cancel(self, watch: Watch) -> None:
        if self._watches.remove(watch):
            self._send(watch_cancel(watch.number))

    def lose(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.fail(Unavailable("the watch was closed"))
        self._watches.lose()

    def _send(self, message: bytes) -> None:
        line = self._line
        if line is None or not line.open:
            self._watches.lose()
            return
        try:
            if self._stream:
                line.channel.send(self._stream, message)
                line.flush()
            else:
                self._stream = line.stream(WATCH, message, self._metadata, self._hear, self.lose)
        except ConnectionError:
            self.lose()

    def _hear(self, message: bytes) -> None:
        answer = self._watches.hear(message)
        if answer is not None:
            self._send(answer)

    def _ping(self, line: LoopConnection) -> None:
        """A connection that has fallen silent is asked, and given up."""
        if line is not self._line or not line.open:
            return
        silent = line.loop.time() - line.heard
        if silent > 2.5 * PING_AFTER:
            self.lose()
            return
        if silent > PING_AFTER:
            line.channel.ping()
            line.flush()
        line.loop.call_later(PING_AFTER, self._ping, line)
