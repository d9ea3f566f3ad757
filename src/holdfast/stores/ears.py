"""How threads hear bells: one connection a store that listens, read by whoever waits. What is read, a store's own ear knows.

Of the threads that wait, one reads the connection, wakes the others whose bells it hears, and hands the reading on when it
leaves: a process with one waiter needs no second thread, and one with a thousand no second connection.

No wake-up is lost: an ear is open (listening is confirmed) before a claim says where to ring, a bell that rings before the
wait is remembered, and when the connection breaks or falls silent, every waiter is woken to look for itself.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from ..errors import Unavailable


class Connection(Protocol):
    """A connection, as far as any ear needs one."""

    def hang_up(self) -> None: ...
    def close(self) -> None: ...


What = TypeVar("What", bound=Hashable)  # which bell it is, in the words of the store
AnyConnection = TypeVar("AnyConnection", bound=Connection)


class ThreadBell(Generic[What]):
    """One waiter's. The lock is held while there is nothing to wake for."""

    __slots__ = ("lock", "rung", "waiting", "what")

    def __init__(self, what: What) -> None:
        self.what: What = what
        self.rung = False
        self.waiting = False
        self.lock = threading.Lock()
        self.lock.acquire()

    def ring(self) -> None:
        self.rung = True
        self.nudge()

    def nudge(self) -> None:
        try:
            self.lock.release()
        except RuntimeError:
            return  # nudged already, and not yet awake


class ThreadEar(ABC, Generic[What, AnyConnection]):
    """The ear of one store."""

    def __init__(self) -> None:
        self._connection: AnyConnection | None = None
        self._fresh()

    def _fresh(self) -> None:
        self._bells: dict[What, list[ThreadBell[What]]] = {}
        self._mutex = threading.Lock()
        self._listener: ThreadBell[What] | None = None  # whose thread reads the connection

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def expect(self, what: What) -> ThreadBell[What]:
        bell = ThreadBell(what)
        with self._mutex:
            self._bells[what] = [*self._bells.get(what, ()), bell]
        return bell

    def forget(self, bell: ThreadBell[What]) -> None:
        with self._mutex:
            others = tuple(one for one in self._bells.get(bell.what, ()) if one is not bell)
            if others:
                self._bells[bell.what] = list(others)
            else:
                self._bells.pop(bell.what, None)

    async def hear(self, bell: ThreadBell[What], timeout: float) -> None:
        """Until it rings, or the connection breaks, or `timeout`."""
        deadline = time.monotonic() + timeout
        try:
            bell.waiting = True
            while not bell.rung and (left := deadline - time.monotonic()) > 0:
                if self._connection is None:
                    break  # lost before we came: look again, which opens it anew
                with self._mutex:
                    if self._listener is None:
                        self._listener = bell
                if self._listener is bell:
                    self._listen(bell, deadline)
                    self._stop_listening(bell)
                else:
                    bell.lock.acquire(timeout=left)
            self._leave(bell)
        except BaseException:  # an interruption, at any line: also of the one above
            self._leave(bell)
            raise

    def ring(self, what: What) -> None:
        for bell in self._bells.get(what, ()):
            bell.ring()

    def lose(self) -> None:
        """The connection is no good: wake everybody to look for themselves."""
        with self._mutex:
            connection, self._connection = self._connection, None
            bells = [bell for some in self._bells.values() for bell in some]
        if connection is not None:
            # A thread may be reading it: closed under its feet, the descriptor could become somebody else's.
            connection.hang_up()
            if self._listener is None:
                connection.close()
            for bell in bells:
                bell.ring()

    def wake_waiters(self) -> None:
        """All who hear now, from any thread: whoever reads the connection can only be woken by its end."""
        self.lose()

    # ---- in the thread that listens

    @abstractmethod
    def _read(self, connection: AnyConnection, mine: ThreadBell[What], deadline: float) -> None:
        """Ring what is heard, until `mine` has rung or `deadline`; Unavailable if the connection is no good."""

    def _listen(self, mine: ThreadBell[What], deadline: float) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            self._read(connection, mine, deadline)
        except Unavailable:
            self.lose()
        except BaseException:  # Ctrl-C in mid-message: what was read of it is gone
            self.lose()
            raise
        finally:
            if self._connection is not connection:
                connection.close()

    def _stop_listening(self, mine: ThreadBell[What]) -> None:
        with self._mutex:
            if self._listener is mine:
                self._listener = None

    def _leave(self, mine: ThreadBell[What]) -> None:
        """Somebody else has to listen, if anybody waits and nobody does."""
        mine.waiting = mine.rung = False
        self._stop_listening(mine)
        if self._listener is not None or (len(self._bells) == 1 and len(self._bells.get(mine.what, ())) <= 1):
            return
        with self._mutex:
            other = next((one for some in self._bells.values() for one in some if one.waiting), None)
        if other is not None:
            other.nudge()
