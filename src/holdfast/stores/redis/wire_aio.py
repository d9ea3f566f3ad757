"""The connections of a store in asyncio: one that all tasks share, one for renewals, one ear."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Sequence

from ...errors import Misuse, Unavailable
from .ear_aio import LoopEar
from .pipe import Pipe
from .replies import Reply, check_greeting, greeting
from .url import Address, Target, show
from .wire import master_address, master_question, tls_context

PipeFactory = Callable[[Address], Pipe]


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
        """To the server, to any node of a cluster, or to the one that the Sentinels call master."""
        target = self.target
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if target.kind != "sentinel":
            *others, last = target.addresses
            for number, address in enumerate(others):
                share = loop.time() + (deadline - loop.time()) / (len(others) + 1 - number)
                with contextlib.suppress(Unavailable):
                    return await self._dial_one(target, factory, address, share)
            return await self._dial_one(target, factory, last, deadline)
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
