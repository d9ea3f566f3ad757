"""How threads hear bells: one connection a store, subscribed to the store's own channel, read by whoever waits.

A bell is a message on the channel of the waiter's store, and names the place that is rung. Of the threads that wait, one
reads the connection, wakes the others whose bells it hears, and hands the reading on when it leaves: a process with one
waiter needs no second thread, and one with a thousand no second connection.

No wake-up is lost: the subscription is confirmed before a claim names the channel, a bell that rings before the wait is
remembered, and when the connection breaks (or falls silent: it is pinged), every waiter is woken to look for itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ...errors import Misuse, Unavailable
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


class ThreadBell:
    """One waiter's. The lock is held while there is nothing to wake for."""

    __slots__ = ("lock", "rung", "waiting", "what")

    def __init__(self, what: bytes) -> None:
        self.what = what
        self.rung = False
        self.waiting = False
        self.lock = threading.Lock()
        self.lock.acquire()

    def nudge(self) -> None:
        try:
            self.lock.release()
        except RuntimeError:
            return  # nudged already, and not yet awake


class ThreadEar:
    def __init__(self, dial: Callable[[], Line], prefix: str) -> None:
        self._dial = dial
        self._prefix = prefix
        self.forked()

    def forked(self) -> None:
        """Start afresh, with another channel: the old one is the parent's."""
        line: Line | None = getattr(self, "_line", None)
        if line is not None:
            line.close()
        self._line: Line | None = None
        self.channel = f"{self._prefix}:bell:{os.urandom(8).hex()}".encode()
        self._bells: dict[bytes, list[ThreadBell]] = {}
        self._mutex = threading.Lock()
        self._sending = threading.Lock()
        self._listening = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self._line is not None

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

    def expect(self, what: bytes) -> ThreadBell:
        bell = ThreadBell(what)
        with self._mutex:
            self._bells[what] = [*self._bells.get(what, ()), bell]
        return bell

    def forget(self, bell: ThreadBell) -> None:
        with self._mutex:
            others = [one for one in self._bells.get(bell.what, ()) if one is not bell]
            if others:
                self._bells[bell.what] = others
            else:
                self._bells.pop(bell.what, None)

    async def follow(self, bell: ThreadBell, timeout: float) -> None:
        """Subscribe to the channel that the bell is called like; returns when that is confirmed."""
        await self.open()
        self._send(pack("SUBSCRIBE", bell.what))
        await self.hear(bell, timeout)

    def unfollow(self, bell: ThreadBell) -> None:
        self.forget(bell)
        if bell.what not in self._bells:
            self._send(pack("UNSUBSCRIBE", bell.what))

    async def hear(self, bell: ThreadBell, timeout: float) -> None:
        """Until it rings, or the connection breaks, or `timeout`."""
        deadline = time.monotonic() + timeout
        bell.waiting = True
        try:
            while not bell.rung and (left := deadline - time.monotonic()) > 0:
                if self._line is None:
                    return  # lost before we came: look again, which opens it anew
                if self._listening.acquire(blocking=False):
                    try:
                        self._listen(bell, deadline)
                    finally:
                        self._listening.release()
                else:
                    bell.lock.acquire(timeout=left)
        finally:
            bell.waiting = False
            bell.rung = False
            self._hand_on(bell)

    def lose(self) -> None:
        """The connection is no good: wake everybody to look for themselves."""
        with self._mutex:
            line, self._line = self._line, None
            bells = [bell for some in self._bells.values() for bell in some]
        if line is not None:
            # A thread may be reading it: closed under its feet, the descriptor could become somebody else's.
            line.hang_up()
            if self._listening.acquire(blocking=False):
                line.close()
                self._listening.release()
            for bell in bells:
                bell.rung = True
                bell.nudge()

    # ---- in the thread that listens

    def _listen(self, mine: ThreadBell, deadline: float) -> None:
        line = self._line
        if line is None:
            return
        heard, pinged = time.monotonic(), False
        try:
            while not mine.rung and (now := time.monotonic()) < deadline:
                if now - heard > PING_AFTER:
                    if pinged:
                        self.lose()
                        return
                    heard, pinged = now, True
                    self._send(_PING)
                line.limit(min(deadline - now, heard + PING_AFTER - now + 0.01))
                message = line.receive()
                if message is not False:
                    heard, pinged = time.monotonic(), False
                    self._dispatch(message)
        except Unavailable:
            self.lose()
        except BaseException:  # Ctrl-C in mid-message: what was read of it is gone
            self.lose()
            raise
        finally:
            if self._line is not line:
                line.close()

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
        for bell in self._bells.get(what, ()):
            bell.rung = True
            bell.nudge()

    def _hand_on(self, mine: ThreadBell) -> None:
        """Somebody else has to listen, if anybody waits and nobody does."""
        if len(self._bells) == 1 and len(self._bells.get(mine.what, ())) <= 1:
            return
        if self._listening.locked():
            return
        with self._mutex:
            other = next((one for some in self._bells.values() for one in some if one.waiting), None)
        if other is not None:
            other.nudge()

    def _send(self, request: bytes) -> None:
        line = self._line
        if line is not None:
            try:
                with self._sending:
                    line.send(request)
            except Unavailable:
                self.lose()
