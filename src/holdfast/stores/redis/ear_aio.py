"""How tasks hear bells from Redis: subscribed to the store's own channel. See ../ears.py for why none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from ...errors import HoldfastError, Unavailable
from .. import ears_aio
from .keys import pack
from .pipe import Pipe
from .replies import Reply, ReplyError, explained, heard
from .url import Address

if TYPE_CHECKING:
    from .wire_aio import AioWire

_PING_AFTER = 3.0
_PING = pack("PING")


LoopBell = ears_aio.LoopBell[bytes]


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


class LoopEar(ears_aio.LoopEar[bytes]):
    """The ear of one store."""

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
        self._fresh()

    @property
    def is_open(self) -> bool:
        return self._pipe is not None and self._pipe.open and not self._pipe.loop.is_closed()

    async def open(self, within: float) -> None:
        deadline = asyncio.get_running_loop().time() + min(within, self._wire.target.timeout)
        try:
            async with asyncio.timeout_at(deadline), self._opening():
                if not self.is_open:
                    await self._subscribe(deadline)
        except TimeoutError as error:
            raise Unavailable(f"Redis did not confirm a subscription within {within:.3g} s") from error

    async def _subscribe(self, deadline: float) -> None:
        pipe = await self._wire.dial(lambda address: EarPipe(address, self._wire.target.timeout, self), deadline)
        assert isinstance(pipe, EarPipe)
        try:
            reply = await pipe.ask(pack("SUBSCRIBE", self.channel))
            if isinstance(reply, ReplyError):
                raise explained(reply, pipe.where, self._prefix)
        except BaseException:
            pipe.fail(Unavailable("not subscribed"))
            raise
        self._pipe = pipe
        pipe.begin()

    async def follow(self, bell: LoopBell, within: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        await self.open(within)
        if self._pipe is not None:
            self._pipe.tell(pack("SUBSCRIBE", bell.what))
            await self.hear(bell, deadline - loop.time())

    def unfollow(self, bell: LoopBell) -> None:
        self.forget(bell)
        if bell.what not in self._bells and self._pipe is not None:
            self._pipe.tell(pack("UNSUBSCRIBE", bell.what))

    def dispatch(self, message: Reply) -> None:
        try:
            what = heard(message, self.channel, self._wire.where, self._prefix)
        except HoldfastError as error:
            if self._pipe is not None:
                self._pipe.fail(Unavailable(str(error)))
            return
        if what is not None:
            self.ring(what)

    def lost(self, pipe: EarPipe) -> None:
        if self._pipe is pipe:
            self._pipe = None
        self.ring_all()

    def lose(self) -> None:
        if self._pipe is not None:
            self._pipe.fail(Unavailable("closed"))

    def wake_waiters(self) -> None:
        """All who hear now, from any thread."""
        if self._pipe is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there
                self._pipe.loop.call_soon_threadsafe(self.lose)
