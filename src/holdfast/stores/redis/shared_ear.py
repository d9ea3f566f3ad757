"""How tasks hear bells from Redis: subscribed to the store's own channel. See ../kit/ear.py for why none is lost."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Unavailable
from ..kit.turns import Turns
from .keys import pack
from .replies import Reply, ReplyError, explained, heard
from .wiring import Pipe

if TYPE_CHECKING:
    from .shared_wire import SharedWire

PING_AFTER = 3.0  # seconds of silence; after as many again, and a half, the connection is taken for dead
_PING = pack("PING")


class EarBell:
    """One waiter's."""

    __slots__ = ("bell", "what")

    def __init__(self, what: bytes, bell: Bell) -> None:
        self.what = what
        self.bell = bell


class SharedEar:
    """The ear of one store."""

    def __init__(self, wire: SharedWire, driver: Driver, prefix: str) -> None:
        self._wire = wire
        self._driver = driver
        self._prefix = prefix
        self._pipe: Pipe | None = None
        self.forked()

    def forked(self) -> None:
        """With another channel: the old one is the parent's."""
        if self._pipe is not None:
            self._pipe.disown()
        self._pipe = None
        self.channel = f"{self._prefix}:bell:{os.urandom(8).hex()}".encode()
        self._bells: dict[bytes, list[EarBell]] = {}
        self._opening = Turns(self._driver)
        self._heard = 0.0  # when something was
        self._pinger: Bell | None = None

    @property
    def is_open(self) -> bool:
        return self._pipe is not None and self._pipe.is_alive()

    async def open(self, within: float) -> None:
        """Connected and subscribed, or an error. One does it, the others wait for it, each for its own time only."""
        deadline = self._driver.now() + min(within, self._wire.target.timeout)
        turn = self._opening.turn()
        try:
            while not self.is_open:
                if await turn.come(deadline):
                    if not self.is_open:
                        await self._subscribe(deadline)
                elif self._driver.now() >= deadline:
                    raise Unavailable(f"Redis did not confirm a subscription within {within:.3g} s")
        finally:
            turn.over()

    async def _subscribe(self, deadline: float) -> None:
        pipe = await self._wire.dial(deadline, self._wire.target.timeout, self)
        try:
            reply = await self._wire.answer(pipe, pack("SUBSCRIBE", self.channel), deadline)
            if isinstance(reply, ReplyError):
                raise explained(reply, self._wire.where, self._prefix)
        except BaseException:
            pipe.fail(Unavailable("not subscribed"))
            raise
        before, self._pipe = self._pipe, pipe
        if before is not None:
            before.fail(Unavailable("its event loop stands still"))
        self._heard = self._driver.now()
        self._pinger = self._driver.bell()
        self._driver.spawn(partial(self._ping, pipe, self._pinger), "holdfast-ear")

    async def _ping(self, pipe: Pipe, bell: Bell) -> None:
        while self._pipe is pipe and pipe.is_alive():  # it may have been lost before it was ours
            await bell.wait(PING_AFTER)
            silent = self._driver.now() - self._heard
            if silent > 2.5 * PING_AFTER:
                pipe.fail(Unavailable("the server has fallen silent"))
            elif silent > PING_AFTER:
                pipe.tell(_PING)

    def expect(self, what: bytes) -> EarBell:
        bell = EarBell(what, self._driver.bell())
        self._bells.setdefault(what, []).append(bell)
        return bell

    def forget(self, bell: EarBell) -> None:
        some = self._bells.get(bell.what, [])
        if bell in some:
            some.remove(bell)
        if not some:
            self._bells.pop(bell.what, None)

    async def hear(self, bell: EarBell, timeout: float) -> None:
        """Until it rings, or the connection breaks, or `timeout`."""
        if self.is_open:
            await bell.bell.wait(timeout)

    async def follow(self, bell: EarBell, within: float) -> None:
        """Subscribe to the channel that the bell is called like; returns when that is confirmed."""
        deadline = self._driver.now() + within
        await self.open(within)
        if self._pipe is not None:
            self._pipe.tell(pack("SUBSCRIBE", bell.what))
            await self.hear(bell, deadline - self._driver.now())

    def unfollow(self, bell: EarBell) -> None:
        self.forget(bell)
        if bell.what not in self._bells and self._pipe is not None:
            self._pipe.tell(pack("UNSUBSCRIBE", bell.what))

    # ---- told by the connection

    def heard(self, message: Reply) -> None:
        self._heard = self._driver.now()
        try:
            what = heard(message, self.channel, self._wire.where, self._prefix)
        except HoldfastError as error:
            if self._pipe is not None:
                self._pipe.fail(Unavailable(str(error)))
            return
        for one in self._bells.get(what, ()) if what is not None else ():
            one.bell.ring()

    def lost(self, pipe: Pipe) -> None:
        """It is no good: wake everybody to look for themselves."""
        if self._pipe is pipe:
            self._pipe = None
            if self._pinger is not None:
                self._pinger.ring()
        for some in list(self._bells.values()):
            for one in some:
                one.bell.ring()

    def lose(self) -> None:
        if self._pipe is not None:
            self._pipe.fail(Unavailable("closed"))

    def wake_waiters(self) -> None:
        """All who hear now, from any thread."""
        if self._pipe is not None:
            self._pipe.in_its_loop(self.lose)
