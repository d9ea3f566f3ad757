"""The connections of a store in asyncio: one that all tasks share, one for renewals, one ear. They belong to one event loop."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from ...drivers.aio import LoopBell
from ...drivers.base import Bell, boot_time
from ...errors import Misuse, Unavailable
from ..kit.turns import Turns
from .channel import Channel, Status
from .ear import GIVE_UP_AFTER, HAS_LEADER, PING_AFTER, Watch, Watches
from .gather import Gatherer
from .proto import AUTHENTICATE, TXN, WATCH, Done, Garbled, login, read_login, watch_cancel, watch_create
from .refusals import Refused, failure
from .talk import Call, Outcome, Unreachable, answer_of, share
from .url import Address, Target, show, tls_context
from .wire import HUNG_UP, Metadata

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
        self.retired = False  # what is under way may go on, nothing more is asked
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, tuple[asyncio.Future[bytes], list[bytes]]] = {}
        self._streams: dict[int, tuple[OnMessage, OnEnd]] = {}

    async def ask_all(self, calls: Sequence[Call], metadata: Metadata, deadline: float) -> list[Outcome]:
        """What has no answer by the deadline is Unavailable, alone; and if nothing else was heard, the connection retires."""
        asked = self.loop.time()
        futures: dict[int, asyncio.Future[bytes]] = {}
        lost = Unavailable(f"the connection to etcd at {self.where} was lost")
        try:
            if self.open:
                for path, message in calls:
                    number = self.channel.call(path, message, metadata)
                    futures[number] = self.loop.create_future()
                    self._calls[number] = (futures[number], [])
                self.flush()
        except ConnectionError as error:
            lost = Unavailable(f"the connection to etcd at {self.where} carries no more calls: {error}")
            self.retired = True
        try:
            if futures:
                await asyncio.wait(futures.values(), timeout=max(deadline - boot_time(), 0.0))
        finally:
            for number, future in futures.items():
                if not future.done():
                    self._calls.pop(number, None)
                    self.channel.forget(number)
                    future.cancel()
                elif not future.cancelled():
                    future.exception()  # looked at, so that the loop does not complain of it
            self.flush()
            if self.retired:
                self.retire()
        silent = Unavailable(f"etcd at {self.where} did not answer in time")
        self.retired |= self.heard < asked
        outcomes = [silent if one.cancelled() else one.exception() or one.result() for one in futures.values()]
        return cast(list[Outcome], outcomes) + [lost] * (len(calls) - len(futures))

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

    def retire(self) -> None:
        self.retired = True
        if not self._calls and not self._streams:
            self.fail(Unavailable(f"the connection to etcd at {self.where} was given up"))

    def disown(self) -> None:
        """In a forked child, or when the loop was closed: let the socket go without touching the loop or its selector.

        The number is kept taken by something harmless: whoever still owns the transport will close it once more.
        """
        self.open = False
        plain = None if self._transport is None else self._transport.get_extra_info("socket")
        if plain is not None and plain.fileno() >= 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, plain.fileno())
            os.close(nothing)

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
        except (ConnectionError, EOFError, Garbled) as error:
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
    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self.member = os.urandom(1)[0] % len(target.addresses)
        self._metadata: Metadata = ()
        self._tls = tls_context(target) if target.tls else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._connections: dict[str, LoopConnection] = {}
        self._dialling: dict[str, Turns] = {}
        self.ear = LoopEar(self)
        self._gatherer = Gatherer(lambda message, deadline: self.ask(TXN, message, deadline), self.where)

    def here(self) -> None:
        """In another event loop than before, everything starts afresh."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._loop.is_closed():
                self._disown()
            self._loop = loop
            self._start()

    async def ask(self, path: bytes, message: bytes, deadline: float) -> bytes:
        return answer_of((await self._converse("shared", ((path, message),), deadline))[0])

    async def transact(self, name: str, transaction: bytes, deadline: float) -> Done:
        """A transaction about one name; those of several tasks at once go out together."""
        self.here()
        return await self._gatherer.transact(name, transaction, deadline)

    async def ask_apart(self, calls: Sequence[Call], deadline: float) -> list[Outcome]:
        return await self._converse("renewals", calls, deadline)

    def forked(self) -> None:
        self._disown()
        self._loop = None
        self._start()

    async def close(self) -> None:
        self._closed = True
        self.ear.lose()
        for connection in list(self._connections.values()):
            connection.fail(Unavailable("this connection was closed"))
        self._connections = {}

    # ---- connections

    def _disown(self) -> None:
        for connection in self._connections.values():
            connection.disown()

    async def open_watch(self, deadline: float) -> tuple[LoopConnection, Metadata]:
        connection = await self._connected("ear", deadline)
        if self.target.username:
            await self._log_in(connection, deadline)
        return connection, self._metadata

    async def _converse(self, use: str, calls: Sequence[Call], deadline: float) -> list[Outcome]:
        connection = await self._connected(use, deadline)
        until = share(deadline, len(self.target.addresses))
        try:
            if self.target.username and not self._metadata:
                await self._log_in(connection, until)
            outcomes = await connection.ask_all(calls, self._metadata, until)
            stale = [at for at, one in enumerate(outcomes) if isinstance(one, Refused) and one.is_login_stale]
            if self.target.username and stale:
                await self._log_in(connection, until)
                again = await connection.ask_all([calls[at] for at in stale], self._metadata, until)
                for at, outcome in zip(stale, again, strict=True):
                    outcomes[at] = outcome
        except (Unavailable, Refused) as error:  # the login's
            outcomes = [error] * len(calls)
        if any(isinstance(one, Unavailable) for one in outcomes) and connection is self._connections.get(use):
            del self._connections[use]  # the next conversation is with the next member
            connection.retire()
            self.member += 1
        return outcomes

    async def _log_in(self, connection: LoopConnection, deadline: float) -> None:
        words = login(self.target.username, self.target.password)
        answer = answer_of((await connection.ask_all(((AUTHENTICATE, words),), (), deadline))[0])
        self._metadata = ((b"token", read_login(answer)),)

    async def _connected(self, use: str, deadline: float) -> LoopConnection:
        self.here()
        connection = self._connections.get(use)
        if connection is not None and connection.open and not connection.retired:
            return connection
        turn = self._dialling.setdefault(use, Turns(LoopBell, asyncio.current_task)).turn()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"etcd at {self.where} did not answer in time")
            connection = self._connections.get(use)
            if connection is None or not connection.open or connection.retired:
                connection = self._connections[use] = await self._dial(deadline)
            return connection
        finally:
            turn.over()

    async def _dial(self, deadline: float) -> LoopConnection:
        """To the first member that can be connected to, beginning with the one that served last."""
        if self._closed:
            raise Unreachable("this connection to etcd was closed")
        loop = asyncio.get_running_loop()
        addresses = self.target.addresses
        failures = []
        for left in range(len(addresses), 0, -1):
            time_left = deadline - boot_time()
            if time_left <= 0:
                break
            address = addresses[self.member % len(addresses)]
            try:
                async with asyncio.timeout(time_left / left):
                    _, connection = await loop.create_connection(
                        lambda to=address: LoopConnection(self.target, to), *address, ssl=self._tls
                    )
                return connection
            except OSError as error:
                if isinstance(error, ssl.SSLError) and not isinstance(error, HUNG_UP):
                    raise Misuse(
                        f"no TLS with etcd at {show(address)}: {error}; see the options ca, cert, cert_key"
                    ) from error
                failures.append(f"cannot connect to etcd at {show(address)}: {str(error) or 'no answer in time'}")
                self.member += 1
        raise Unreachable("; ".join(failures) or f"no time was left to connect to etcd at {self.where}")


class LoopEar:
    """How tasks hear: see ear.py for why nothing is lost."""

    def __init__(self, wire: AioWire) -> None:
        self._wire = wire
        self._line: LoopConnection | None = None
        self._stream = 0
        self._watches = Watches()
        self._opening = Turns(LoopBell, asyncio.current_task)
        self._metadata: Metadata = ()

    async def watch(self, key: bytes, range_end: bytes, since: int, bell: Bell, deadline: float) -> Watch:
        self._wire.here()
        if self is not self._wire.ear:  # ours was that of another loop
            return await self._wire.ear.watch(key, range_end, since, bell, deadline)
        if self._line is None or not self._line.open:
            await self._open(deadline)
        watch = self._watches.add(key, range_end, since, bell)
        self._send(watch_create(watch.number, key, range_end))
        return watch

    async def _open(self, deadline: float) -> None:
        turn = self._opening.turn()
        try:
            if await turn.come(deadline) and (self._line is None or not self._line.open):
                line, metadata = await self._wire.open_watch(deadline)
                self._line, self._stream, self._metadata = line, 0, (*metadata, *HAS_LEADER)
                self._ping(line, 0.0)
        finally:
            turn.over()

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

    def _ping(self, line: LoopConnection, asked: float) -> None:
        """A connection that has fallen silent is asked, and given up."""
        if line is not self._line or not line.open:
            return
        now, silent = line.loop.time(), line.loop.time() - line.heard
        if silent > GIVE_UP_AFTER and asked > line.heard:
            self.lose()
            return
        if silent > PING_AFTER and now - asked > PING_AFTER and self._stream:
            asked = now
            line.channel.ping()
            line.flush()
        line.loop.call_later(1.0, self._ping, line, asked)
