"""How threads hear bells from Redis: subscribed to the store's own channel. See ../ears.py for why none is lost.

A bell is a message on the channel of the waiter's store, and names the place that is rung.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ...errors import Misuse, Unavailable
from .. import ears
from .keys import pack
from .replies import Reply, ReplyError, explained

PING_AFTER = 3.0  # seconds of silence; after as many again, the connection is taken for dead
_PING = pack("PING")


class Line(Protocol):
    """A connection, as far as an ear needs one."""

    def limit(self, timeout: float) -> None: ...
    def send(self, request: bytes) -> None: ...
    def receive(self) -> Reply: ...
    def close(self) -> None: ...
    def hang_up(self) -> None: ...


ThreadBell = ears.ThreadBell[bytes]


class ThreadEar(ears.ThreadEar[bytes, Line]):
    def __init__(self, dial: Callable[[], Line], prefix: str) -> None:
        self._dial = dial
        self._prefix = prefix
        super().__init__()

    def _fresh(self) -> None:
        """With another channel: the old one is the parent's."""
        super()._fresh()
        self.channel = f"{self._prefix}:bell:{os.urandom(8).hex()}".encode()
        self._sending = threading.Lock()

    def forked(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None
        self._fresh()

    async def open(self) -> None:
        """Connected and subscribed, or an error."""
        with self._mutex:
            if self._line is not None:
                return
            line = self._dial()
            try:
                line.send(pack("SUBSCRIBE", self.channel))
                reply = line.receive()
                if isinstance(reply, ReplyError):
                    raise explained(reply, "this address", self._prefix)
                if reply is False:
                    raise Unavailable("Redis did not confirm a subscription in time")
            except BaseException:
                line.close()
                raise
            self._line = line

    async def follow(self, bell: ThreadBell, timeout: float) -> None:
        """Subscribe to the channel that the bell is called like; returns when that is confirmed."""
        await self.open()
        self._send(pack("SUBSCRIBE", bell.what))
        await self.hear(bell, timeout)

    def unfollow(self, bell: ThreadBell) -> None:
        self.forget(bell)
        if bell.what not in self._bells:
            self._send(pack("UNSUBSCRIBE", bell.what))

    # ---- in the thread that listens

    def _read(self, line: Line, mine: ThreadBell, deadline: float) -> None:
        heard, pinged = time.monotonic(), False
        while not mine.rung and (now := time.monotonic()) < deadline:
            if now - heard > PING_AFTER:
                if pinged:
                    raise Unavailable("Redis has fallen silent")
                heard, pinged = now, True
                self._send(_PING)
            line.limit(min(deadline - now, heard + PING_AFTER - now + 0.01))
            message = line.receive()
            if message is not False:
                heard, pinged = time.monotonic(), False
                self._dispatch(message)

    def _dispatch(self, message: Reply) -> None:
        if isinstance(message, ReplyError):
            raise Misuse(str(explained(message, "this address", self._prefix)))
        kind, channel, *rest = message
        if kind == b"message" and channel == self.channel:
            what = rest[0]
        elif kind in (b"message", b"subscribe"):
            what = channel
        else:
            return
        self.ring(what)

    def _send(self, request: bytes) -> None:
        line = self._line
        if line is not None:
            try:
                with self._sending:
                    line.send(request)
            except Unavailable:
                self.lose()
