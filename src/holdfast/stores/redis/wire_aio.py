"""One connection for all tasks of a loop: requests are written as they come, replies belong to them in order.

Measured against redis-py's asyncio client, which takes a connection out of a pool for every command, at 64 tasks: see
benchmarks/redis.py. What tasks ask for in one turn of the loop leaves in one write. A task that is cancelled leaves its
future in the queue, so that its reply is still taken off, and given to nobody.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from asyncio import get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ...errors import Misuse, Unavailable
from .keys import pack
from .replies import Reader, Reply, ReplyError, check_greeting, explained, greeting
from .url import Address, Target, show
from .wire import master_address, master_question, tls_context

_PING_AFTER = 3.0
_PING = pack("PING")
_ENOUGH = 16  # requests to write without waiting for more: the server works on them while the loop goes on

PipeFactory: TypeAlias = "Callable[[Address], Pipe]"


class Pipe(asyncio.BufferedProtocol):
    """A connection that many share. Whatever breaks it fails all that wait for a reply, and it is not used again."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.where = show(address)
        self.open = False
        self._timeout = timeout
        self._reader = Reader()
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._waiting: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._unsent: list[bytes] = []
        self._together = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def ask(self, request: bytes) -> asyncio.Future[Reply]:
        reply = self.loop.create_future()
        if not self.open or self._transport is None:
            reply.set_exception(Unavailable(f"lost the connection to Redis at {self.where}"))
            return reply
        if self._unsent:
            self._unsent.append(request)
            if len(self._unsent) >= _ENOUGH:
                self._flush()
        elif self._waiting or self._together:  # others will follow in this turn of the loop
            self._unsent.append(request)
            self.loop.call_soon(self._flush)
        else:
            self._transport.write(request)
        self._waiting.append((reply, self.loop.time()))
        if self._watchdog is None:
            self._watchdog = self.loop.call_later(self._timeout, self._watch)
        return reply

    def _flush(self) -> None:
        if not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        # Tasks that ask together are answered together, and ask together again, if the first does not rush ahead.
        self._together = len(unsent) > 1
        if self._transport is not None and self.open:
            self._transport.write(b"".join(unsent))

    def _watch(self) -> None:
        """One timer for all requests: it looks at the oldest, and sleeps until that one is due."""
        self._watchdog = None
        if self._waiting:
            due = self._waiting[0][1] + self._timeout
            if self.loop.time() >= due - 0.001:
                self.fail(Unavailable(f"Redis at {self.where} did not answer within {self._timeout:g} s"))
            else:
                self._watchdog = self.loop.call_at(due, self._watch)

    def fail(self, error: Unavailable) -> None:
        if not self.open:
            return
        self.open = False
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for reply, _ in waiting:
            if not reply.done():
                reply.set_exception(Unavailable(str(error)))

    def disown(self) -> None:
        """In a forked child: give up our copy of the socket. The loop is the parent's too, so it is not touched."""
        self.open = False
        if self._transport is not None:
            inherited = self._transport.get_extra_info("socket")
            if inherited is not None and inherited.fileno() >= 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, inherited.fileno())
                os.close(nothing)

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, count: int) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(self._view[:count].tobytes())
        while (message := reader.gets()) is not False:
            if not waiting:
                self.unasked(message)
                continue
            reply, _ = waiting.popleft()
            if not reply.done():
                reply.set_result(message)

    def unasked(self, message: Reply) -> None:
        self.fail(Unavailable(f"Redis at {self.where} said something unasked: {message!r:.80}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(Unavailable(f"lost the connection to Redis at {self.where}: {error or 'the server closed it'}"))


class LoopBell:
    """One waiting task's."""

    __slots__ = ("rung", "waiter", "what")

    def __init__(self, what: bytes) -> None:
        self.what = what
        self.rung = False
        self.waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class EarPipe(Pipe):
    """A subscribed connection: what comes is not replies but bells."""

    def __init__(self, address: Address, timeout: float, ear: LoopEar) -> None:
        super().__init__(address, timeout)
        self._ear = ear
        self.heard = self.loop.time()
        self._pinger: asyncio.TimerHandle | None = None

    def tell(self, request: bytes) -> None:
        if self.open and self._transport is not None:
            self._transport.write(request)

    def unasked(self, message: Reply) -> None:
        self.heard = self.loop.time()
        self._ear.dispatch(message)

    def begin(self) -> None:
        self._pinger = self.loop.call_later(_PING_AFTER, self._ping)

    def _ping(self) -> None:
        silent = self.loop.time() - self.heard
        if silent > 2.5 * _PING_AFTER:
            self.fail(Unavailable("the server has fallen silent"))
        elif self.open:
            if silent > _PING_AFTER:
                self.tell(_PING)
            self._pinger = self.loop.call_later(_PING_AFTER, self._ping)

    def fail(self, error: Unavailable) -> None:
        if self._pinger is not None:
            self._pinger.cancel()
        was_open = self.open
        super().fail(error)
        if was_open:
            self._ear.lost(self)


class LoopEar:
    """How tasks hear bells: one connection a store, subscribed to the store's own channel. See ear.py for why none is lost."""

    def __init__(self, wire: AioWire, prefix: str) -> None:
        self._wire = wire
        self._prefix = prefix
        self._pipe: EarPipe | None = None
        self.forked()

    def forked(self) -> None:
        if self._pipe is not None:
            self._pipe.disown()
        self._pipe = None
        self.channel = f"{self._prefix}:bell:{os.urandom(8).hex()}".encode()
        self._bells: dict[bytes, list[LoopBell]] = {}
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._pipe is not None and self._pipe.open

    async def open(self) -> None:
        async with self._opening:
            if self.is_open:
                return
            loop = asyncio.get_running_loop()
            timeout = self._wire.target.timeout

            def factory(address: Address) -> EarPipe:
                return EarPipe(address, timeout, self)

            pipe = await self._wire.dial(factory, timeout)
            assert isinstance(pipe, EarPipe)
            try:
                async with asyncio.timeout_at(loop.time() + timeout):
                    reply = await pipe.ask(pack("SUBSCRIBE", self.channel))
                if isinstance(reply, ReplyError):
                    raise explained(reply, pipe.where, self._prefix)
            except BaseException as error:
                pipe.fail(Unavailable("not subscribed"))
                if isinstance(error, TimeoutError):
                    raise Unavailable(f"Redis at {pipe.where} did not confirm a subscription in time") from error
                raise
            self._pipe = pipe
            pipe.begin()

    def expect(self, what: bytes) -> LoopBell:
        bell = LoopBell(what)
        self._bells.setdefault(what, []).append(bell)
        return bell

    def forget(self, bell: LoopBell) -> None:
        some = self._bells.get(bell.what, [])
        if bell in some:
            some.remove(bell)
        if not some:
            self._bells.pop(bell.what, None)

    async def follow(self, bell: LoopBell, timeout: float) -> None:
        await self.open()
        if self._pipe is not None:
            self._pipe.tell(pack("SUBSCRIBE", bell.what))
            await self.hear(bell, timeout)

    def unfollow(self, bell: LoopBell) -> None:
        self.forget(bell)
        if bell.what not in self._bells and self._pipe is not None:
            self._pipe.tell(pack("UNSUBSCRIBE", bell.what))

    async def hear(self, bell: LoopBell, timeout: float) -> None:
        if not bell.rung and self.is_open:
            loop = asyncio.get_running_loop()
            bell.waiter = loop.create_future()
            timer = loop.call_later(max(timeout, 0.0), bell.wake)
            try:
                await bell.waiter
            finally:
                timer.cancel()
                bell.waiter = None
        bell.rung = False

    def dispatch(self, message: Reply) -> None:
        if isinstance(message, ReplyError):
            if self._pipe is not None:
                self._pipe.fail(Unavailable(str(message)))
            return
        kind, channel, *rest = message
        if kind == b"message" and channel == self.channel:
            what = rest[0]
        elif kind in (b"message", b"subscribe"):
            what = channel
        else:
            return
        for bell in self._bells.get(what, ()):
            bell.ring()

    def lost(self, pipe: EarPipe) -> None:
        if self._pipe is pipe:
            self._pipe = None
        for some in self._bells.values():
            for bell in some:
                bell.ring()

    def lose(self) -> None:
        if self._pipe is not None:
            self._pipe.fail(Unavailable("closed"))


class AioWire:
    """The connections of one store: one for all tasks, one for renewals, one ear."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._shared: Pipe | None = None
        self._renewing: Pipe | None = None
        self._dialing = asyncio.Lock()
        self._known = False
        self.ear = LoopEar(self, target.prefix)

    def ready(self) -> Pipe | None:
        """The shared connection, if it is there to be used."""
        pipe = self._shared
        return None if pipe is None or not pipe.open or pipe.loop is not asyncio.get_running_loop() else pipe

    def ask(self, request: bytes) -> Awaitable[Reply]:
        pipe = self._shared
        if pipe is None or not pipe.open or pipe.loop is not get_running_loop():
            return self.ask_anew(request)
        return pipe.ask(request)  # a future, as it is: another coroutine around it would only cost time

    async def ask_anew(self, request: bytes) -> Reply:
        return await (await self._connected()).ask(request)

    async def ask_all(self, requests: Sequence[bytes]) -> list[Reply]:
        """In order, on one connection; nothing of others in between."""
        pipe = self._shared
        if pipe is None or not pipe.open or pipe.loop is not asyncio.get_running_loop():
            pipe = await self._connected()
        return await _all([pipe.ask(request) for request in requests])

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """On a connection that user work cannot keep busy."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(loop.time() + min(within, self.target.timeout)):
                pipe = self._renewing
                if pipe is None or not pipe.open or pipe.loop is not loop:
                    pipe = self._renewing = await self.dial(self._pipe, within)
                return await _all([pipe.ask(request) for request in requests])
        except TimeoutError as error:
            if self._renewing is not None:
                self._renewing.fail(Unavailable("given up"))
            raise Unavailable(f"Redis at {self.where} did not answer a renewal within {within:g} s") from error

    def _pipe(self, address: Address) -> Pipe:
        return Pipe(address, self.target.timeout)

    async def _connected(self) -> Pipe:
        async with self._dialing:
            pipe = self._shared
            if pipe is None or not pipe.open or pipe.loop is not asyncio.get_running_loop():
                pipe = self._shared = await self.dial(self._pipe, self.target.timeout)
            return pipe

    async def dial(self, factory: PipeFactory, timeout: float) -> Pipe:
        """To the server, or to the one that the Sentinels call master."""
        target = self.target
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if target.kind != "sentinel":
            return await self._dial_one(target, factory, target.addresses[0], deadline)
        failures = []
        for sentinel in target.addresses:
            half = loop.time() + (deadline - loop.time()) / 2
            try:
                master = await self._master(sentinel, half)
                return await self._dial_one(target, factory, master, deadline)
            except Unavailable as error:
                failures.append(str(error))
        raise Unavailable(f"no Sentinel led to a master of {target.service!r}: {'; '.join(failures)}")

    async def _master(self, sentinel: Address, deadline: float) -> Address:
        target = self.target
        asked = target._replace(
            kind="redis", username=target.sentinel_username, password=target.sentinel_password, database=0
        )
        pipe = await self._dial_one(asked, self._pipe, sentinel, deadline)
        try:
            return master_address(target, sentinel, await pipe.ask(master_question(target)))
        finally:
            pipe.fail(Unavailable("done"))

    async def _dial_one(self, target: Target, factory: PipeFactory, address: Address, deadline: float) -> Pipe:
        loop = asyncio.get_running_loop()
        host, port = address
        pipe = factory(address)
        known = self._known and not target.database and target.kind == self.target.kind != "sentinel"
        try:
            async with asyncio.timeout_at(deadline):
                if not port:
                    await loop.create_unix_connection(lambda: pipe, host)
                elif target.tls:
                    await loop.create_connection(lambda: pipe, host, port, ssl=tls_context(target))
                else:
                    await loop.create_connection(lambda: pipe, host, port)
                replies = [pipe.ask(request) for request in greeting(target, known=known)]
                if known:  # not waited for: see wire.py
                    for reply in replies:
                        reply.cancel()
                else:
                    check_greeting(target, address, await _all(replies))
        except ssl.SSLError as error:
            raise Misuse(
                f"no TLS with Redis at {show(address)}: {error}; see the options ca, cert, cert_key"
            ) from error
        except TimeoutError as error:
            pipe.fail(Unavailable("too late"))
            raise Unavailable(f"Redis at {show(address)} did not answer in time") from error
        except OSError as error:
            pipe.fail(Unavailable("refused"))
            if isinstance(error, Unavailable):
                raise
            raise Unavailable(f"cannot connect to Redis at {show(address)}: {error}") from error
        except BaseException:
            pipe.fail(Unavailable("given up"))
            raise
        self._known = self._known or target.kind == self.target.kind
        return pipe

    async def parts(self) -> Sequence[AioWire]:
        return [self]

    def reset(self) -> None:
        """The server is not what it was (a failover): connect anew."""
        for pipe in (self._shared, self._renewing):
            if pipe is not None:
                pipe.fail(Unavailable("the server's role has changed"))
        self.ear.lose()

    def forked(self) -> None:
        for pipe in (self._shared, self._renewing):
            if pipe is not None:
                pipe.disown()
                _inherited.append(pipe)
        self._shared = self._renewing = None
        self._dialing = asyncio.Lock()
        self.ear.forked()

    async def close(self) -> None:
        self.reset()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next turn


_inherited: list[Pipe] = []  # kept, so that collecting them does not touch the parent's loop


async def _all(replies: list[asyncio.Future[Reply]]) -> list[Reply]:
    try:
        return [await reply for reply in replies]
    except BaseException:
        for reply in replies:
            reply.cancel()
        raise
