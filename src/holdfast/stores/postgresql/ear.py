"""How threads hear bells from PostgreSQL: listening to the store's own channel. See ../ears.py for why none is lost.

A bell is a notification on the channel of the waiter's store, and names the waiter.

The ear holds an advisory lock of its own number for as long as it lives: so whoever rings can see that it is gone.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from ...drivers.base import boot_time
from ...errors import Unavailable
from .. import ears
from . import migration
from .connection import BlockingConnection
from .replies import ServerError

if TYPE_CHECKING:
    from .wire import Wire

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


ThreadBell = ears.ThreadBell[str]


class ThreadEar(ears.ThreadEar[str, BlockingConnection]):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.number = 0
        self._closed = False
        super().__init__()

    def forked(self) -> None:
        if self._connection is not None:
            self._connection.disown()
        self._connection = None
        self.number = 0
        self._fresh()

    def _fresh(self) -> None:
        super()._fresh()
        self._turns = self._wire.turns()

    async def open(self, within: float) -> None:
        """Connected and listening, or an error. With a new number each time: the old one may live on for a moment."""
        deadline = boot_time() + within
        turn = self._turns.turn()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"PostgreSQL did not let us listen within {within:.3g} s")
            if self._connection is None:
                connection, number = await self._wire.open(BlockingConnection, deadline), new_number()
                try:
                    await connection.tell(listening(number, self._wire.target.schema), deadline)
                    self.number = number
                    self._connection = connection
                    if self._closed:  # meanwhile, when there was nothing to close yet
                        self.lose()
                        raise Unavailable("this connection was closed")
                except ServerError as error:
                    connection.close()
                    raise Unavailable(f"PostgreSQL does not let us listen: {error}") from None
                except BaseException:
                    if self._connection is not connection:
                        connection.close()
                    raise
        finally:
            turn.over()

    def close(self) -> None:
        self._closed = True
        self.lose()

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
