"""Connections of one store: lent for one conversation, and taken back if nothing went wrong. Nothing is retried here.

A host that cannot be reached is passed over before anything was sent. One that fails in mid-conversation ends that
conversation, since nobody knows what became of the request, and the next one goes to the next host.

A `Loan` first, then at once `try`, `lend`, talk; `finally`, `take_back`: whatever interrupts, nothing stays lent. Each step on
the lists here is a single one of the interpreter, so threads need no mutex.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ...drivers.base import Address, Bell, Driver, Stream
from ...errors import Misuse, Unavailable
from .doubts import MOMENT, Doubts
from .members import Members
from .url import show

if TYPE_CHECKING:
    from ssl import SSLContext

_MOST_IDLE = 16


class Unreachable(Unavailable):
    """No host could be connected to: to try again at once would not help."""


class Closed(Unreachable, Misuse):
    """Closed by its own user."""


class Connection:
    """A stream, and who is at its other end."""

    __slots__ = ("address", "alone", "shown", "state", "stream")

    def __init__(self, address: Address, stream: Stream) -> None:
        self.alone = False  # whatever becomes of it says nothing of its server
        self.address = address
        self.shown = show(address)
        self.stream = stream
        self.state: Any = None  # what the store's protocol has to remember of it

    def close(self) -> None:
        self.stream.close()


class Loan:
    """One conversation: the connection that it has, and until when this one host may take."""

    __slots__ = ("connection", "deadline", "over")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.deadline = 0.0
        self.over = float("inf")  # by then it has ended, whatever has become of whoever had it


class Pool:
    def __init__(
        self,
        driver: Driver,
        system: str,
        members: Members,
        tls: SSLContext | None,
        most_at_once: int,
        is_over: Callable[[Connection], Awaitable[bool]] | None = None,
        answers: Callable[[Connection, float], Awaitable[None]] | None = None,
    ) -> None:
        """`is_over`: asked of a connection that seems stale, where servers say something between two conversations.

        `answers(connection, deadline)`: has the server do something harmless, for which it needs all that a claim needs.
        """
        self.where = ",".join(map(show, members.addresses))
        self._driver = driver
        self._system = system
        self._members = members
        self._tls = tls
        self._room = most_at_once
        self._is_over = is_over
        self._answers = answers
        self._doubts = Doubts(driver)
        self._idle: list[Connection] = []
        self._lent: dict[
            Loan, None
        ] = {}  # in the order in which they were lent: a simulation is told the same each time
        self._apart: dict[Loan, None] = {}
        self._coming: list[Bell] = []  # those who wait for room, first come, first served
        self._closed = False
        self._reached = False

    @property
    def reached(self) -> bool:
        """See Store. Whoever is about to be let in may ask for others too."""
        return self._reached or bool(self._lent or self._apart)

    async def lend(self, loan: Loan, deadline: float, *, apart: bool = False) -> Connection:
        """`apart`: however many others are waiting for one. For renewals, and for those who listen."""
        loan.over = deadline
        if apart:
            self._apart[loan] = None
        else:
            if len(self._lent) >= self._room or self._coming:
                await self._wait_for_room(loan, deadline)
            self._lent[loan] = None
        while True:
            if self._closed:
                raise Closed(f"this connection to {self._system} was closed: connect() again")
            if self._idle:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    loan.connection = self._idle.pop()
            found = loan.connection
            if found is None:
                found = loan.connection = await self._dial(deadline)
            elif found.stream.is_stale() and (self._is_over is None or await self._is_over(found)):
                loan.connection = None
                found.stream.close()
                continue
            now = self._driver.now()
            loan.deadline = now + (deadline - now) * self._members.share
            return found

    async def receive(self, loan: Loan) -> bytes:
        """What comes next, by the deadline, on a connection that is lent and was silent for a `MOMENT`. If it is alone with its
        silence, an OSError. For what the server answers at once, or not at all.
        """
        connection = loan.connection
        assert connection is not None
        now, stream = self._driver.now, connection.stream
        while self._answers is not None and (left := loan.deadline - now()) > 0:
            if said := await self._doubted(connection, left):
                return said
            with contextlib.suppress(TimeoutError):
                return await stream.receive(min(loan.deadline, now() + MOMENT))
        return await stream.receive(loan.deadline)

    async def _doubted(self, connection: Connection, left: float) -> bytes:
        """What it has to say after all."""
        said = b""

        async def newcomer(within: float) -> Connection:
            deadline = self._driver.now() + within
            stream = await self._driver.connect(connection.address, self._tls, deadline)
            another = Connection(connection.address, stream)
            try:
                another.alone = True
                assert self._answers is not None
                await self._answers(another, deadline)
                another.alone = False
            except BaseException:
                another.close()
                raise
            return another

        async def speaks(within: float) -> bool:
            nonlocal said
            said = await connection.stream.receive(self._driver.now() + within)
            return bool(said)

        another = await self._doubts.instead(newcomer, speaks, left)
        if another is None:
            return said
        self._drop_idle_at(connection.address)  # what has silenced one has most likely silenced all that lie here
        self._idle.append(another)
        if self._closed:
            self._drop_idle()
        connection.alone = True
        raise ConnectionResetError("it has fallen silent, while the server answers on another")

    def take_back(self, loan: Loan, *, whole: bool) -> None:
        self._apart.pop(loan, None)
        self._lent.pop(loan, None)
        connection, loan.connection = loan.connection, None
        if connection is not None:
            if whole and not self._closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                if self._closed:  # meanwhile, by another thread
                    self._drop_idle()
            elif whole:
                connection.stream.close()
            else:
                connection.stream.give_up()
        if self._coming:
            self._ring_first()

    async def _wait_for_room(self, loan: Loan, deadline: float) -> None:
        bell = self._driver.bell()
        try:
            self._coming.append(bell)
            while len(self._lent) >= self._room or self._coming[0] is not bell:
                now = self._driver.now()
                if now >= deadline:
                    raise Unavailable(
                        f"{self._system} at {self.where}: {self._room} requests of this process were before this one"
                    )
                for one in list(self._lent):
                    if one.over < now:
                        self._lent.pop(one, None)
                if self._coming[0] is not bell:
                    self._ring_first()  # should it be of an event loop that was closed, nobody else would notice
                await bell.wait(deadline - now)
            self._lent[loan] = None
        finally:
            with contextlib.suppress(ValueError):
                self._coming.remove(bell)
            if len(self._lent) < self._room:
                self._ring_first()

    def _ring_first(self) -> None:
        for bell in list(self._coming):
            if bell.ring():
                return
            with contextlib.suppress(ValueError):
                self._coming.remove(bell)  # of an event loop that was closed under it

    async def _dial(self, deadline: float) -> Connection:
        failures = []
        for address, left in self._members.in_turn():
            now = self._driver.now()
            if now >= deadline:
                break
            try:
                stream = await self._driver.connect(address, self._tls, now + (deadline - now) / left)
            except OSError as error:
                if self._tls is not None:
                    self._no_tls(address, error)
                failures.append(f"{show(address)}: {str(error) or 'it hung up'}")
                continue
            self._members.serves(address)
            self._reached = True
            return Connection(address, stream)
        shown = "; ".join(failures) or f"{self.where}: no time was left"
        raise Unreachable(f"cannot connect to {self._system} at {shown}")

    def _no_tls(self, address: Address, error: OSError) -> None:
        from ssl import SSLError

        if not isinstance(error, SSLError):
            return
        raise Misuse(
            f"no TLS with {self._system} at {show(address)}: {error}; see the options ca, cert, cert_key"
        ) from error

    def lost(self, connection: Connection, error: Exception, within: float) -> Unavailable:
        """What to raise for a conversation that broke off. Others do not go there for now."""
        if not connection.alone:
            self.pass_over(connection.address)
        if isinstance(error, TimeoutError):
            return Unavailable(f"{self._system} at {connection.shown} did not answer within {max(within, 0.0):.3g} s")
        return Unavailable(f"lost the connection to {self._system} at {connection.shown}: {error}")

    def pass_over(self, address: Address) -> None:
        self._members.pass_over(address)
        self._drop_idle_at(address)

    def _drop_idle_at(self, address: Address) -> None:
        for one in [one for one in list(self._idle) if one.address == address]:
            with contextlib.suppress(ValueError):  # lent meanwhile
                self._idle.remove(one)
                one.stream.close()

    def forked(self) -> None:
        for one in (*self._idle, *self._talking()):
            one.stream.disown()

    def close(self) -> None:
        """Hang up, also under those who are listening."""
        self._closed = True
        for one in self._talking():
            one.stream.hang_up()
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread took the last one
                self._idle.pop().stream.close()

    def _talking(self) -> list[Connection]:
        return [loan.connection for loan in (*self._lent, *self._apart) if loan.connection is not None]
