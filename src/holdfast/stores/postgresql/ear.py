"""How threads hear bells: one connection a store that listens to the store's own channel, read by whoever waits.

A bell is a notification on the channel of the waiter's store, and names the waiter. Of the threads that wait, one reads
the connection, wakes the others whose bells it hears, and hands the reading on when it leaves: a process with one waiter
needs no second thread, and one with a thousand no second connection.

No wake-up is lost: LISTEN is confirmed before a claim names the channel, a bell that rings before the wait is
remembered, and when the connection breaks (or falls silent: it is asked), every waiter is woken to look for itself.

The ear holds an advisory lock of its own number for as long as it lives: so whoever rings can see that it is gone.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ...errors import Unavailable
from . import migration
from .replies import ServerError

ASK_AFTER = 3.0  # seconds of silence; after as many again, the connection is taken for dead


def new_number() -> int:
    return int.from_bytes(os.urandom(8), "big") >> 1 or 1


def listening(number: int, schema_name: str) -> str:
    return (
        f'LISTEN "holdfast_{number}"; LISTEN "{migration.watch(schema_name)}"; '
        f"SELECT pg_catalog.pg_advisory_lock({number})"
    )


def key_of(channel: str, payload: str, number: int) -> str:
    """Which bell it is: a seat's number, or a watched name in hex."""
    return payload if channel == f"holdfast_{number}" else watch_key(payload)


def watch_key(name_in_hex: str) -> str:
    return f"w{name_in_hex}"


class ListeningLine(Protocol):
    """A connection, as far as an ear needs one."""

    def tell(self, sql: str, timeout: float) -> Any: ...
    def say(self, sql: str) -> None: ...
    def flushed(self) -> bool: ...
    def take(self) -> None: ...
    def rows(self, found: list[Any]) -> Any: ...
    def bells(self) -> list[tuple[str, str]]: ...
    def fileno(self) -> int: ...
    def hang_up(self) -> None: ...
    def close(self) -> None: ...
    def disown(self) -> None: ...


class ThreadBell:
    """One waiter's. The lock is held while there is nothing to wake for."""

    __slots__ = ("lock", "rung", "waiting", "what")

    def __init__(self, what: str) -> None:
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
    def __init__(self, dial: Callable[[], ListeningLine], schema_name: str) -> None:
        self._dial = dial
        self._schema = schema_name
        self._line: ListeningLine | None = None
        self._fresh()

    def _fresh(self) -> None:
        self.number = 0
        self._bells: dict[str, list[ThreadBell]] = {}
        self._mutex = threading.Lock()
        self._listening = threading.Lock()

    def forked(self) -> None:
        if self._line is not None:
            self._line.disown()
        self._line = None
        self._fresh()

    @property
    def is_open(self) -> bool:
        return self._line is not None

    async def open(self) -> None:
        """Connected and listening, or an error. With a new number each time: the old one may live on for a moment."""
        with self._mutex:
            if self._line is not None:
                return
            line = self._dial()
            number = new_number()
            try:
                line.tell(listening(number, self._schema), 10.0)
            except ServerError as error:
                line.close()
                raise Unavailable(f"PostgreSQL does not let us listen: {error}") from None
            except BaseException:
                line.close()
                raise
            self._line, self.number = line, number

    def expect(self, what: str) -> ThreadBell:
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
        poll = select.poll()
        poll.register(line.fileno(), select.POLLIN)
        heard, asked = time.monotonic(), False
        try:
            while True:
                self._dispatch(line)
                if mine.rung or (now := time.monotonic()) >= deadline:
                    return
                if now - heard > ASK_AFTER:
                    if asked:
                        self.lose()
                        return
                    heard, asked = now, True
                    line.say("")
                    line.flushed()
                if poll.poll(max(0.0, min(deadline, heard + ASK_AFTER + 0.01) - now) * 1000):
                    line.take()
                    if asked and line.rows([]) is None:
                        continue
                    heard, asked = time.monotonic(), False
        except (Unavailable, ServerError):
            self.lose()
        except BaseException:  # Ctrl-C in mid-message: what was read of it is gone
            self.lose()
            raise
        finally:
            if self._line is not line:
                line.close()

    def _dispatch(self, line: ListeningLine) -> None:
        for channel, payload in line.bells():
            for bell in self._bells.get(key_of(channel, payload, self.number), ()):
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
