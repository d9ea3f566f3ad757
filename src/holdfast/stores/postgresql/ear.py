"""How a process hears bells from PostgreSQL: listening to the store's own channel. See ../kit/ear.py for why none is lost.

A bell is a notification on the channel of the waiter's store, and names the waiter.

The ear holds an advisory lock of its own number for as long as it lives: so whoever rings can see that it is gone.

PostgreSQL has one queue of notifications, for all that listen: who does not read what it is told keeps everything in it, until
nobody can notify, or release a lock that somebody waits for, any more. A loop reads always; threads only while one of them
waits. So there an ear at which nobody waits is closed after a while.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ...errors import Unavailable
from ..kit import ear
from ..kit.alarm import NEVER, Alarm
from . import migration
from .connection import Broken
from .replies import ServerError
from .wires import ListeningConnection

if TYPE_CHECKING:
    from .wire import Wire


_UNREAD = 10.0  # seconds: so long an ear that nobody reads is kept for the next who waits


def new_number() -> int:
    return int.from_bytes(os.urandom(8), "big") >> 1 or 1


def listening(number: int, schema_name: str) -> str:
    """As it was said, whatever that is: where a database does not know its encoding (SQL_ASCII), the server would end the
    connection of whoever is to be told something that is no UTF-8."""
    return (
        "SET client_encoding = 'SQL_ASCII'; "
        f'LISTEN "holdfast_{number}"; LISTEN "{migration.watch(schema_name)}"; '
        f"SELECT pg_catalog.pg_advisory_lock({number})"
    )


def watch_key(name_in_hex: str) -> str:
    return f"w{name_in_hex}"


class Ear(ear.Ear[str, ListeningConnection]):
    """Opened by the first waiter; when it was lost, or closed, by whoever needs it next."""

    def __init__(self, wire: Wire, kind: type[ListeningConnection]) -> None:
        self._wire = wire
        self._kind = kind
        super().__init__(wire.driver, read_by_waiters=not kind.shares)

    def _fresh(self) -> None:
        super()._fresh()
        self.number = 0
        self._turns = self._wire.turns()
        self._unread_since = 0.0
        self._alarm = Alarm(self._driver, "holdfast-ear", _UNREAD, self._due, self._close_if_unread)

    @property
    def is_open(self) -> bool:
        connection = self._connection
        return connection is not None and not connection.unread

    async def open(self, within: float) -> None:
        """Connected and listening, or an error. With a new number each time: the old one may live on for a moment."""
        deadline = self._driver.now() + within
        turn = self._turns.turn()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"PostgreSQL did not let us listen within {within:.3g} s")
            if self.is_open:
                return
            self.lose()  # one of a loop that is over, or stands still
            connection, number = await self._wire.open(self._kind, deadline), new_number()
            connection.listens = True
            try:
                await connection.tell(listening(number, self._wire.target.schema), deadline)
                self.number = number
                self._connection = connection
                connection.attend(self.heard, self.lost)
                self._expect_nobody()
                if self._wire.closed:  # meanwhile, when there was nothing to close yet
                    self.lose()
                    raise Unavailable("this connection was closed")
            except BaseException as error:
                if self._connection is not connection:
                    connection.close()
                if isinstance(error, (ServerError, Broken)):
                    raise Unavailable(f"PostgreSQL does not let us listen: {error}") from None
                raise
        finally:
            turn.over()

    def heard(self, channel: str, payload: str) -> None:
        """Which bell it is: a seat's number, or a watched name in hex."""
        self.ring(payload if channel == f"holdfast_{self.number}" else watch_key(payload))

    def lost(self, connection: ListeningConnection) -> None:
        if self._connection is connection:
            self.lose()

    def forget(self, bell: ear.Bell[str]) -> None:
        super().forget(bell)
        self._expect_nobody()

    def _expect_nobody(self) -> None:
        if self._read_by_waiters and not self._bells:
            self._unread_since = self._driver.now()
            with contextlib.suppress(RuntimeError):  # no thread to be had: the next who leaves tries again
                self._alarm.expect(self._unread_since + _UNREAD)

    def _due(self) -> float:
        return NEVER if self._bells or self._connection is None else self._unread_since + _UNREAD

    async def _close_if_unread(self) -> None:
        if self._due() <= self._driver.now():
            self.lose()

    def _read(self, connection: ListeningConnection, mine: ear.Bell[str], within: float) -> None:
        connection.read(mine, self._driver.now() + within)

    def close(self) -> None:
        self.lose()
        self._alarm.close()

    def forked(self) -> None:
        if self._connection is not None:
            self._connection.disown()
        self._connection = None
        self._fresh()
