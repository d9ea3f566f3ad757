"""How threads hear bells from Redis: subscribed to the store's own channel. See ../kit/ear.py for why none is lost.

A bell is a message on the channel of the waiter's store, and names the place that is rung.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ...drivers.base import finish
from ...drivers.threads import Threads
from ...errors import Unavailable
from ..kit import ear
from .connection import Connection, Dialler
from .keys import pack
from .replies import Reply, ReplyError, explained, heard

PING_AFTER = 3.0  # seconds of silence; after as many again, the connection is taken for dead
_PING = pack("PING")
_NOBODY: tuple[object, float] = (None, 0.0)


Bell = ear.Bell[bytes]


class ThreadEar(ear.Ear[bytes, Connection]):
    def __init__(self, dial: Callable[[float], Connection], prefix: str) -> None:
        self._dial = dial
        self._prefix = prefix
        self.driver = Threads()
        super().__init__(self.driver, read_by_waiters=True)

    def _fresh(self) -> None:
        """With another channel: the old one is the parent's."""
        super()._fresh()
        self.channel = f"{self._prefix}:bell:{os.urandom(8).hex()}".encode()
        self._opening = _NOBODY  # whose turn it is to connect, and until when

    def forked(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._fresh()

    async def open(self, within: float) -> None:
        """Connected and subscribed, or an error. One thread does it, the others wait for it, each for its own time only."""
        deadline = time.monotonic() + within
        turn: tuple[object, float] = (object(), deadline)
        while self._connection is None:
            with self._mutex:
                # Whoever was interrupted in the middle of it has its turn no longer than it had time.
                if self._opening[1] < time.monotonic():
                    self._opening = turn
            if self._opening is turn:
                try:
                    self._connection = self._subscribed(deadline)
                finally:
                    self._opening = _NOBODY
            elif time.monotonic() >= deadline:
                raise Unavailable(f"Redis did not confirm a subscription within {within:.3g} s")
            else:
                time.sleep(0.005)  # noqa: ASYNC251 - run by threads

    def _subscribed(self, deadline: float) -> Connection:
        connection = self._dial(deadline)
        try:
            reply = finish(Dialler().ask(connection, pack("SUBSCRIBE", self.channel), deadline))
            if isinstance(reply, ReplyError):
                raise explained(reply, "this address", self._prefix)
        except BaseException:
            connection.close()
            raise
        return connection

    async def follow(self, bell: Bell, within: float) -> None:
        """Subscribe to the channel that the bell is called like; returns when that is confirmed."""
        deadline = time.monotonic() + within
        await self.open(within)
        self._send(pack("SUBSCRIBE", bell.what))
        await self.hear(bell, deadline - time.monotonic())

    def unfollow(self, bell: Bell) -> None:
        self.forget(bell)
        if bell.what not in self._bells:
            self._send(pack("UNSUBSCRIBE", bell.what))

    # ---- in the thread that reads

    def _read(self, connection: Connection, mine: Bell, within: float) -> None:
        heard, pinged = time.monotonic(), False
        deadline = heard + within
        while not mine.rung and (now := time.monotonic()) < deadline:
            if now - heard > PING_AFTER:
                if pinged:
                    raise Unavailable("Redis has fallen silent")
                heard, pinged = now, True
                self._send(_PING)
            if connection.wait(min(deadline, heard + PING_AFTER + 0.01)):
                connection.step()
                while (message := connection.next()) is not False:
                    heard, pinged = time.monotonic(), False
                    self._dispatch(message)

    def _dispatch(self, message: Reply) -> None:
        what = heard(message, self.channel, "this address", self._prefix)
        if what is not None:
            self.ring(what)

    def _send(self, request: bytes) -> None:
        connection = self._connection
        if connection is not None:
            try:
                connection.send(request)
            except Unavailable:
                self.lose()
