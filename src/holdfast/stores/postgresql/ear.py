"""How threads hear bells from PostgreSQL: listening to the store's own channel. See ../ears.py for why none is lost.

A bell is a notification on the channel of the waiter's store, and names the waiter.

The ear holds an advisory lock of its own number for as long as it lives: so whoever rings can see that it is gone.
"""

from __future__ import annotations

import os
import select
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from ...drivers.base import boot_time
from ...errors import Unavailable
from .. import ears
from . import migration
from .connection import BlockingConnection, Broken
from .replies import ServerError

if TYPE_CHECKING:
    from .wire import Wire
    from .wires import Connection

AnyConnection = TypeVar("AnyConnection", bound="Connection")
ASK_AFTER = 3.0  # seconds of silence; after as many again, the connection is taken for dead


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


def key_of(channel: str, payload: str, number: int) -> str:
    """Which bell it is: a seat's number, or a watched name in hex."""
    return payload if channel == f"holdfast_{number}" else watch_key(payload)


def watch_key(name_in_hex: str) -> str:
    return f"w{name_in_hex}"


class Opening(ABC, Generic[AnyConnection]):
    """What an ear is in both worlds: one connection that listens, opened anew by whoever needs it next."""

    def __init__(self, wire: Wire, kind: type[AnyConnection]) -> None:
        self._wire = wire
        self._kind = kind
        self._connection: AnyConnection | None = None
        self._start()

    def _start(self) -> None:
        self.number = 0
        self._turns = self._wire.turns()
        self._fresh()

    @abstractmethod
    def _fresh(self) -> None:
        """Nobody waits."""

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @abstractmethod
    def lose(self) -> None:
        """The connection is no good: everybody looks for themselves."""

    def forked(self) -> None:
        if self._connection is not None:
            self._connection.disown()
        self._connection = None
        self._start()

    async def open(self, within: float) -> None:
        """Connected and listening, or an error. With a new number each time: the old one may live on for a moment."""
        deadline = boot_time() + within
        turn = self._turns.turn()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"PostgreSQL did not let us listen within {within:.3g} s")
            if self.is_open:
                return
            connection, number = await self._wire.open(self._kind, deadline), new_number()
            connection.listens = True
            try:
                await connection.tell(listening(number, self._wire.target.schema), deadline)
                self.number = number
                self._connection = connection
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

    def close(self) -> None:
        self.lose()


ThreadBell = ears.ThreadBell[str]


class ThreadEar(ears.ThreadEar[str, BlockingConnection], Opening[BlockingConnection]):
    def __init__(self, wire: Wire) -> None:
        Opening.__init__(self, wire, BlockingConnection)

    def wake_all(self) -> None:
        self.lose()  # nothing else wakes the one who reads

    # ---- in the thread that listens

    def _read(self, connection: BlockingConnection, mine: ThreadBell, deadline: float) -> None:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        heard, asked = time.monotonic(), False
        while True:
            for channel, payload in connection.bells():
                self.ring(key_of(channel, payload, self.number))
            if mine.rung or (now := time.monotonic()) >= deadline:
                return
            if now - heard > ASK_AFTER:
                if asked:
                    raise Unavailable("PostgreSQL has fallen silent")
                heard, asked = now, True
                connection.say("")
            if poll.poll(max(0.0, min(deadline, heard + ASK_AFTER + 0.01) - now) * 1000):
                try:
                    connection.take()
                    if asked and connection.rows([]) is None:
                        continue
                except ServerError as error:
                    raise Unavailable(str(error)) from error
                heard, asked = time.monotonic(), False
