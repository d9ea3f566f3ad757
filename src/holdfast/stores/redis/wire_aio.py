"""The connections of a store in asyncio: one that all tasks share, one for renewals, one ear."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...drivers.aio import LoopBell
from ...drivers.base import boot_time
from ...drivers.dialing import dial
from ...errors import HoldfastError, Misuse, Unavailable
from ..ears_aio import OneAtATime
from ..kit.url import tls_context
from .connection import Disconnected, no_tls
from .dialing import as_sentinel, master_address, master_question
from .ear_aio import LoopEar
from .pipe import Pipe
from .replies import Reply, check_greeting, greeting
from .url import Address, Target, show

PipeFactory = Callable[[Address], Pipe]


class AioWire:
    """The connections of one store: one for all tasks, one for renewals, one ear."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._timeout = target.timeout
        self._shared: Pipe | None = None
        self._renewing: Pipe | None = None
        self._dialing = OneAtATime()
        self._known = False
        self._closed = False
        self.ear = LoopEar(self, target.prefix)

    def ready(self) -> Pipe | None:
        """The shared connection, if it is there to be used."""
        pipe = self._shared
        return None if pipe is None or not pipe.open or pipe.loop is not asyncio.get_running_loop() else pipe

    def ask(self, request: bytes, within: float) -> Awaitable[Reply]:
        pipe = self._shared
        if within < self._timeout or pipe is None or not pipe.open or pipe.loop is not get_running_loop():
            return self.ask_once(request, within)
        return pipe.ask(request)  # a future, as it is: another coroutine around it would only cost time

    def post(self, request: bytes, answered: Callable[[bool | None], None]) -> bool:
        """Ask, and do not wait: the answer is read when it comes. None: nobody knows."""
        pipe = self.ready()
        if pipe is None:
            return False

        def done(reply: asyncio.Future[Reply]) -> None:
            told = None if reply.cancelled() or reply.exception() is not None else reply.result()
            answered(bool(told) if type(told) is int else None)

        pipe.ask(request).add_done_callback(done)
        return True

    async def ask_once(self, request: bytes, within: float) -> Reply:
        deadline = asyncio.get_running_loop().time() + min(within, self._timeout)
        try:
            async with asyncio.timeout_at(deadline):
                return await (self.ready() or await self._connected(deadline)).ask(request)
        except TimeoutError as error:
            raise self._late(within) from error

    async def ask_all(self, requests: Sequence[bytes], within: float, *, once: bool = False) -> list[Reply]:
        """In order, on one connection; nothing of others in between."""
        deadline = asyncio.get_running_loop().time() + within
        try:
            return await self._converse(requests, within)
        except Disconnected:
            left = deadline - asyncio.get_running_loop().time()
            if once or left <= 0:
                raise
        return await self._converse(requests, left)

    async def _converse(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        deadline = asyncio.get_running_loop().time() + min(within, self._timeout)
        try:
            async with asyncio.timeout_at(deadline):
                pipe = self.ready() or await self._connected(deadline)
                return await _all([pipe.look(request) for request in requests])
        except TimeoutError as error:
            raise self._late(within) from error

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """On a connection that user work cannot keep busy. For a request that got no answer: why not."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        replies = await self._ask_apart(requests, deadline)
        if isinstance(replies[-1], Disconnected) and loop.time() < deadline:
            replies = await self._ask_apart(requests, deadline)
        return replies

    @staticmethod
    async def ask_each_apart(asked: Sequence[tuple[Any, Sequence[bytes]]], within: float) -> list[list[Reply]]:
        """The same of many wires, all at once: trouble of one is its own."""
        return list(await asyncio.gather(*(wire.ask_apart(requests, within) for wire, requests in asked)))

    async def _ask_apart(self, requests: Sequence[bytes], deadline: float) -> list[Reply]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        futures: list[asyncio.Future[Reply]] = []
        failure: HoldfastError | None = None
        try:
            async with asyncio.timeout_at(deadline):
                pipe = self._renewing
                if pipe is None or not pipe.open or pipe.loop is not loop:
                    before, pipe = pipe, await self.dial(self._renewing_pipe, deadline)
                    if self._renewing is not before and self._renewing is not None:
                        self._renewing.fail(Disconnected("another was opened at the same time"))
                    self._renewing = pipe
                futures = [pipe.ask(request) for request in requests]
                await asyncio.wait(futures)
        except TimeoutError:
            failure = self._late(deadline - started)
            if self._renewing is not None:
                self._renewing.fail(failure)
        except HoldfastError as error:
            failure = error
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        if not futures:
            return [failure] * len(requests)
        return [future.exception() or future.result() for future in futures]

    def _late(self, within: float) -> Unavailable:
        return Unavailable(f"Redis at {self.where} did not answer within {max(0.0, min(within, self._timeout)):.3g} s")

    def _pipe(self, address: Address) -> Pipe:
        return Pipe(address, self._timeout)

    def _renewing_pipe(self, address: Address) -> Pipe:
        return Pipe(address, 600.0)  # a renewal has a deadline of its own

    async def _connected(self, deadline: float) -> Pipe:
        async with self._dialing():
            return self.ready() or await self._dial_shared(deadline)

    async def _dial_shared(self, deadline: float) -> Pipe:
        self._shared = pipe = await self.dial(self._pipe, deadline)
        return pipe

    async def dial(self, factory: PipeFactory, deadline: float) -> Pipe:
        """To the server, to any node of a cluster, or to the one that the Sentinels call master."""
        if self._closed:
            raise Misuse(f"this connection to Redis at {self.where} was closed")
        pipe = await self._dial(factory, deadline)
        if self._closed:  # meanwhile
            pipe.fail(Unavailable("closed"))
        return pipe

    async def _dial(self, factory: PipeFactory, deadline: float) -> Pipe:
        target = self.target
        loop = asyncio.get_running_loop()
        deadline = min(deadline, loop.time() + self._timeout)
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
        pipe = await self._dial_one(as_sentinel(target), self._pipe, sentinel, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                return master_address(target, sentinel, await pipe.ask(master_question(target)))
        except TimeoutError as error:
            raise Unavailable(f"the Sentinel at {show(sentinel)} did not answer in time") from error
        finally:
            pipe.fail(Unavailable("done"))

    async def _dial_one(self, target: Target, factory: PipeFactory, address: Address, deadline: float) -> Pipe:
        pipe = factory(address)
        known = self._known and not target.database and target.kind == self.target.kind != "sentinel"
        try:
            async with asyncio.timeout_at(deadline):
                await _open(pipe, target, address, deadline)
                replies = [pipe.ask(request) for request in greeting(target, known=known)]
                if known:  # not waited for: see dialing.py
                    for reply in replies:
                        reply.cancel()
                else:
                    check_greeting(target, address, await _all(replies))
        except ssl.SSLError as error:
            raise no_tls(error, address) from error
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

    async def parts(self, within: float) -> Sequence[AioWire]:
        return [self]

    def reset(self) -> None:
        """The server is not what it was (a failover): connect anew."""
        for pipe in (self._shared, self._renewing):
            if pipe is not None:
                pipe.fail(Disconnected("the server's role has changed"))
        self.ear.lose()

    def forked(self) -> None:
        for pipe in (self._shared, self._renewing):
            if pipe is not None:
                pipe.disown()
                _inherited.append(pipe)
        self._shared = self._renewing = None
        self._dialing = OneAtATime()
        self.ear.forked()

    async def close(self) -> None:
        self._closed = True
        self.reset()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next turn


_inherited: list[Pipe] = []  # kept, so that collecting them does not touch the parent's loop


async def _open(pipe: Pipe, target: Target, address: Address, deadline: float) -> None:
    loop, (host, port) = pipe.loop, address
    if not port:
        await loop.create_unix_connection(lambda: pipe, host)
        return
    tls = tls_context(target.ca, target.cert, target.cert_key) if target.tls else None

    async def open_one(plain: socket.socket, where: Any, until: float) -> None:
        async with asyncio.timeout(until - boot_time()):
            await loop.sock_connect(plain, where)
        await loop.create_connection(lambda: pipe, sock=plain, ssl=tls, server_hostname=host if tls else None)

    await dial(address, LoopBell(), boot_time() + deadline - loop.time(), open_one)


async def _all(replies: list[asyncio.Future[Reply]]) -> list[Reply]:
    try:
        return [await reply for reply in replies]
    except BaseException:
        for reply in replies:
            reply.cancel()
        raise
