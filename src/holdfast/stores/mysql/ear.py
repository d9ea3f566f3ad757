"""How a process hears bells: one connection that sleeps in the server until somebody ends its sleep.

Every connection of ours holds a named lock (GET_LOCK), and that of this one is the bell's name: whoever rings asks the server
which connection has it, and ends its statement. When the process dies, or its network, the lock is nobody's, and whoever would
ring it knows at once: it then has a moment to come back with another bell before its place is given away. Nothing is lost
between two listenings: a place that is rung is marked in its row before the sleep is ended, and listening begins with a look at
the marks.

In MariaDB two whose SLEEPs are ended at the same moment, or one that is ended twice, may keep each other, and all who sleep in
that server, for two seconds. Waiting for a named lock is ended without that; so there a second connection has one that nobody
gives away, and the first sleeps by waiting for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Unavailable
from .connections import Connection
from .faults import INTERRUPTED, ServerError

_NAPS, _NAP = (
    10,
    0.5,
)  # a ring that could not be delivered is found after a nap; with nobody waiting, it is over after ten
_AGAIN = 0.003  # when all that are marked have been told, and have not yet asked again


class Ear:
    def __init__(self, dial: Callable[[float], Awaitable[Connection]], driver: Driver, timeout: float) -> None:
        self._dial = dial
        self._driver = driver
        self._timeout = timeout
        self._connection: Connection | None = None
        self._quiet: Connection | None = None  # has the lock that the other waits for
        self.wakes = 0  # how often everybody was woken
        # Asleep, if the loop is over, or stands still, in which all this is: nobody listens there.
        self._here: Bell | None = None
        self.forked()

    def forked(self) -> None:
        for connection in (self._connection, self._quiet):
            if connection is not None:
                connection.disown()
        self._connection = self._quiet = None
        self.name = ""
        self._listening = False
        self._bells: dict[str, Any] = {}
        self._told: set[str] = set()
        self._mutex = self._driver.mutex()
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    async def open(self, within: float) -> str:
        """Connected and listening; or an error. Returns the bell's name."""
        give_up = self._driver.now() + min(within, self._timeout)
        if self._here is not None and self._here.asleep:
            self._begin_anew()
        while self._connection is None:
            connection, here = await self._dial(max(give_up - self._driver.now(), 0.001)), self._driver.bell()
            with self._mutex:
                if self._connection is None and not self._closed:
                    self._here, self._connection, self.name = self._here or here, connection, connection.name
                    break
            connection.close()  # another thread or task was faster
            if self._closed:
                raise Unavailable("this connection was closed")
        with self._mutex:
            name, home, start = self.name, self._here, not self._listening
            self._listening = True
        if start:
            try:
                self._driver.spawn(partial(self._listen, home), "holdfast-ear")
            except BaseException:
                self._listening = False
                raise
        return name

    def expect(self, holder: str) -> None:
        """From now on, remember when it rings. Before the claim that names the bell."""
        with self._mutex:
            if holder not in self._bells:
                self._bells[holder] = self._driver.bell()
            self._told.discard(holder)

    def forget(self, holder: str) -> None:
        with self._mutex:
            self._bells.pop(holder, None)
            self._told.discard(holder)

    def expects(self, holder: str) -> bool:
        return holder in self._bells

    async def hear(self, holder: str, timeout: float) -> None:
        bell = self._bells.get(holder)
        if bell is None or self._connection is None:  # lost before we came: ask again, which opens it anew
            await self._driver.sleep(min(timeout, self._driver.uniform(0.005, 0.02)))
        else:
            await bell.wait(timeout)

    async def _listen(self, home: Bell | None) -> None:
        idle = False
        pause = _AGAIN
        while True:
            with self._mutex:
                connection, name = self._connection, self.name
                if self._here is not home:
                    return  # our loop stood still, and somebody listens in another
                if connection is None or (idle and not self._bells):
                    self._listening = False
                    return
                idle = not self._bells
            try:
                await self._keep_quiet(connection)
                (rows,) = await connection.ask(
                    f"CALL holdfast_listen_1('{name}', {_NAPS}, {_NAP})", _NAPS * _NAP + self._timeout
                )
                rung = {row[0].decode() for row in rows}
            except ServerError as error:
                if error.code not in INTERRUPTED:
                    self._lose(connection)
                    continue
                with self._mutex:  # rung in mid-look; if only one waits here, it needs no asking who was meant
                    rung = set(self._bells) if len(self._bells) == 1 else set()
            except BaseException as error:
                self._lose(connection)
                if not isinstance(error, Exception):
                    with self._mutex:
                        self._listening = self._listening and self._here is not home
                    raise
                continue
            with self._mutex:
                fresh = tuple(self._bells[holder] for holder in rung - self._told if holder in self._bells)
                known = bool(rung) and not fresh
                self._told |= rung & self._bells.keys()
            for bell in fresh:
                bell.ring()
            pause = min(2 * pause, 0.05) if known else _AGAIN
            if known:
                await self._driver.sleep(pause)

    async def _keep_quiet(self, connection: Connection) -> None:
        """Without it, if it is not to be had, bells are heard as well, only not always at once."""
        if "mariadb" not in connection.server.lower() or (self._quiet is not None and self._quiet.alive()):
            return
        with contextlib.suppress(HoldfastError, ServerError):
            quiet = await self._dial(self._timeout)
            try:
                await quiet.ask(f"DO GET_LOCK('holdfast:quiet:{connection.name}', 1)", self._timeout)
            except BaseException:
                quiet.close()
                raise
            surplus: Connection | None = quiet
            with self._mutex:
                if self._connection is connection:
                    surplus, self._quiet = self._quiet, quiet
            if surplus is not None:  # the one before; or ours, since the other was lost meanwhile
                surplus.close()

    def _lose(self, connection: Connection) -> None:
        """The connection is no good: wake everybody to look for themselves."""
        quiet = None
        with self._mutex:
            if self._connection is connection:
                self._connection, self.name = None, ""
                quiet, self._quiet = self._quiet, None
        connection.close()
        if quiet is not None:
            quiet.close()
        self.wake()

    def _begin_anew(self) -> None:
        with self._mutex:
            connection, self._here, self._listening = self._connection, None, False
        if connection is not None:
            self._lose(connection)

    def wake(self) -> None:
        """Everybody who waits here looks for themselves. From any thread."""
        self.wakes += 1
        with self._mutex:
            bells = list(self._bells.values())
        for bell in bells:
            bell.ring()

    def close(self) -> str:
        """Returns the name of a connection that sleeps on in the server; "" if there is none."""
        self._closed = True
        with self._mutex:
            connection, asleep = self._connection, self.name if self._listening else ""
        if connection is not None:
            self._lose(connection)
        return asleep
