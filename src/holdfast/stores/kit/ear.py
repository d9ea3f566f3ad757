"""How a process hears bells: one connection a store that listens. What is said there, a store's own ear knows.

An event loop reads it by itself. Of threads that wait, one reads it, wakes the others whose bells it hears, and hands the
reading on when it leaves: a process with one waiter needs no second thread, and one with a thousand no second connection.

No wake-up is lost: an ear is open (listening is confirmed) before a claim says where to ring, a bell that rings before the
wait is remembered, and when the connection breaks or falls silent, every waiter is woken to look for itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from ...drivers import base
from ...errors import Unavailable


class Connection(Protocol):
    """A connection, as far as any ear needs one."""

    def hang_up(self) -> None: ...
    def close(self) -> None: ...


What = TypeVar("What", bound=Hashable)  # which bell it is, in the words of the store
AnyConnection = TypeVar("AnyConnection", bound=Connection)


class Bell(Generic[What]):
    """One waiter's."""

    __slots__ = ("nudge", "rung", "wait", "waiting", "what")

    def __init__(self, what: What, bell: base.Bell) -> None:
        self.what: What = what
        self.rung = False
        self.waiting = False
        self.nudge = bell.ring  # without having rung: to look whether anybody reads
        self.wait = bell.wait

    def ring(self) -> None:
        self.rung = True
        self.nudge()


class Ear(ABC, Generic[What, AnyConnection]):
    """The ear of one store."""

    def __init__(self, driver: base.Driver, *, read_by_waiters: bool) -> None:
        self._driver = driver
        self._read_by_waiters = read_by_waiters
        self._connection: AnyConnection | None = None
        self._fresh()

    def _fresh(self) -> None:
        self._bells: dict[What, list[Bell[What]]] = {}
        self._mutex = self._driver.mutex()
        self._reader: Bell[What] | None = None  # whose thread reads the connection

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def expect(self, what: What) -> Bell[What]:
        bell = Bell(what, self._driver.bell())
        with self._mutex:
            self._bells[what] = [*self._bells.get(what, ()), bell]
        return bell

    def forget(self, bell: Bell[What]) -> None:
        with self._mutex:
            others = tuple(one for one in self._bells.get(bell.what, ()) if one is not bell)
            if others:
                self._bells[bell.what] = list(others)
            else:
                self._bells.pop(bell.what, None)

    async def hear(self, bell: Bell[What], timeout: float) -> None:
        """Until it rings, or the connection breaks, or `timeout`."""
        now = self._driver.now
        deadline = now() + timeout
        try:
            bell.waiting = True
            while not bell.rung and (left := deadline - now()) > 0:
                if not self.is_open:
                    break  # lost before we came: look again, which opens it anew
                if self._read_by_waiters:
                    with self._mutex:
                        if self._reader is None:
                            self._reader = bell
                if self._reader is bell:
                    self._listen(bell, left)
                    self._stop_reading(bell)
                else:
                    await bell.wait(left)
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
            if self._reader is None:
                connection.close()
            for bell in bells:
                bell.ring()

    def wake_waiters(self) -> None:
        """All who hear now, from any thread. Whoever reads the connection can only be woken by its end."""
        if self._read_by_waiters:
            self.lose()
            return
        with self._mutex:
            bells = [bell for some in self._bells.values() for bell in some]
        for bell in bells:
            bell.ring()

    # ---- in the thread that reads

    @abstractmethod
    def _read(self, connection: AnyConnection, mine: Bell[What], within: float) -> None:
        """Ring what is heard, until `mine` has rung, or so many seconds; Unavailable if the connection is no good."""

    def _listen(self, mine: Bell[What], within: float) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            self._read(connection, mine, within)
        except Unavailable:
            self.lose()
        except BaseException:  # Ctrl-C in mid-message: what was read of it is gone
            self.lose()
            raise
        finally:
            if self._connection is not connection:
                connection.close()

    def _stop_reading(self, mine: Bell[What]) -> None:
        with self._mutex:
            if self._reader is mine:
                self._reader = None

    def _leave(self, mine: Bell[What]) -> None:
        """Somebody else has to read, if anybody waits and nobody does."""
        mine.waiting = mine.rung = False
        if not self._read_by_waiters:
            return
        self._stop_reading(mine)
        if self._reader is not None or (len(self._bells) == 1 and len(self._bells.get(mine.what, ())) <= 1):
            return
        with self._mutex:
            other = next((one for some in self._bells.values() for one in some if one.waiting), None)
        if other is not None:
            other.nudge()
