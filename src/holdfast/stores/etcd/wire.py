"""gRPC to etcd: any number of calls in one conversation, one conversation at a time on a connection of the pool.

Nothing is sent twice: when a connection fails in mid-conversation, the caller is told Unavailable, and the next conversation
goes to the next member. Only what certainly did nothing (no connection; a login that ran out) is tried again here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...drivers.base import Driver
from ...errors import Unavailable
from ..kit.doubts import MOMENT
from ..kit.members import Members
from ..kit.pool import Connection, Loan, Pool
from ..kit.url import tls_context
from .channel import REFUSED, Channel, Status
from .ear import Ear
from .gather import Gatherer
from .replies import Done, Garbled, Refused, explained, failure, garbled, read_login, read_txn, revised
from .requests import AUTHENTICATE, TXN, login, op_delete, txn
from .url import Target

Call = tuple[bytes, bytes]  # the method's path, the message
Outcome = bytes | Exception  # Refused by etcd, or Unavailable: no answer
Metadata = tuple[tuple[bytes, bytes], ...]

MOST_AT_ONCE = 128
_GLANCE = 0.05  # seconds, for what has come to be read


class Wire:
    """The connections of one store. Raises Unavailable when they fail, Refused when etcd says no."""

    def __init__(self, target: Target, driver: Driver) -> None:
        tls = tls_context(target.ca, target.cert, target.cert_key, "h2") if target.tls else None
        first = int(driver.uniform(0, len(target.addresses)))  # not all clients of a fleet at the same
        members = Members(target.addresses[first:] + target.addresses[:first])
        self.target = target
        self.where = target.shown()
        self.pool = Pool(driver, "etcd", members, tls, MOST_AT_ONCE, self._is_over, self._answers)
        self.ear = Ear(self.pool, self.log_in, driver)
        self._driver = driver
        self._gatherer = Gatherer(self.ask, driver, self.where) if driver.spawns_lightly else None
        self._metadata: Metadata = ()

    async def ask(self, path: bytes, message: bytes, deadline: float) -> bytes:
        (outcome,) = await self._converse(((path, message),), deadline)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def transact(self, name: str, transaction: bytes, deadline: float) -> Done:
        """A transaction about one name; those of several tasks at once go out together.

        Refused is raised only if a lease is gone; everything else is explained.
        """
        try:
            if self._gatherer is not None:
                return revised(await self._gatherer.transact(name, transaction, deadline))
            return revised(read_txn(await self.ask(TXN, transaction, deadline)))
        except Refused as refused:
            if refused.is_lease_gone:
                raise
            raise explained(refused, self.where, self.target.prefix) from refused
        except Garbled as error:
            raise garbled(error, self.where) from error

    async def ask_apart(self, calls: Sequence[Call], deadline: float) -> list[Outcome]:
        """All at once, on a connection that user work cannot keep busy."""
        return await self._converse(calls, deadline, apart=True)

    async def log_in(self, connection: Connection, deadline: float) -> Metadata:
        """What to show with every call. For a stream of watches it is always new: it is looked at for as long as that lasts."""
        self.channel_of(connection)
        if self.target.username:
            words = login(self.target.username, self.target.password)
            answer = answer_of((await self._exchange(connection, ((AUTHENTICATE, words),), (), deadline))[0])
            self._metadata = ((b"token", read_login(answer)),)
        return self._metadata

    def forked(self) -> None:
        self.pool.forked()

    def close(self) -> None:
        self.ear.close()
        self.pool.close()

    # ---- conversations

    async def _converse(self, calls: Sequence[Call], deadline: float, *, apart: bool = False) -> list[Outcome]:
        loan, whole = Loan(), False
        try:
            connection = await self.pool.lend(loan, deadline, apart=apart)
            until = loan.deadline
            try:
                if self.target.username and not self._metadata:
                    await self.log_in(connection, until)
                outcomes = await self._exchange(connection, calls, self._metadata, until, loan)
                if self.target.username and (stale := _stale(outcomes)):
                    await self.log_in(connection, until)
                    again = await self._exchange(connection, [calls[at] for at in stale], self._metadata, until, loan)
                    for at, outcome in zip(stale, again, strict=True):
                        outcomes[at] = outcome
            except (Unavailable, Refused) as error:  # the login's
                outcomes = [error] * len(calls)
            whole = True
            for one in outcomes:
                whole = whole and not isinstance(one, Unavailable)
            if (
                not whole and not connection.alone
            ):  # what made it fail has most likely failed all connections to this member
                self.pool.pass_over(connection.address)
        finally:
            self.pool.take_back(loan, whole=whole)
        return outcomes

    async def _exchange(
        self,
        connection: Connection,
        calls: Sequence[Call],
        metadata: Metadata,
        deadline: float,
        loan: Loan | None = None,
    ) -> list[Outcome]:
        """As many at once as the server takes. What has no answer by the deadline is Unavailable, alone."""
        stream, channel = connection.stream, self.channel_of(connection)
        asked: dict[int, int] = {}  # by the number of its stream, which of the calls it was
        answers: dict[int, bytes] = {}
        ends: dict[int, Status] = {}
        unasked = deque(range(len(calls)))
        refused: set[int] = set()
        began = heard = self._driver.now()
        trouble: Outcome = b""
        try:
            while True:
                while unasked and len(channel.streams) < channel.most_streams:
                    at = unasked.popleft()
                    asked[channel.call(*calls[at], metadata)] = at
                if waiting := channel.outgoing():
                    await stream.send(waiting, deadline)
                try:
                    came = await stream.receive(deadline if loan is None else min(deadline, heard + MOMENT))
                except TimeoutError:
                    if loan is None:
                        raise
                    came = await self.pool.receive(loan)
                for number, message, status in channel.feed(came):
                    if status is REFUSED and asked[number] not in refused:  # we did not know yet how many it takes
                        refused.add(asked[number])
                        unasked.append(asked[number])
                    elif status is not None:
                        ends[asked[number]] = status
                    elif number:
                        answers[asked[number]] = message
                # What is to be said after the last answer (that we have read it) goes along with the next question.
                if len(ends) == len(calls):
                    break
                heard = self._driver.now()
                if heard >= deadline:  # it may have much to say, and never an answer
                    raise TimeoutError
        except OSError as error:
            trouble = self.pool.lost(connection, error, deadline - began)
        outcomes: list[Outcome] = []
        for at in range(len(calls)):
            end = ends.get(at)
            if end is None:
                outcomes.append(trouble)
            elif end.code:
                outcomes.append(failure(end, connection.shown))
            else:  # no answer of etcd's is empty
                outcomes.append(
                    answers.get(at) or Unavailable(f"etcd at {connection.shown} ended a call without an answer")
                )
        return outcomes

    def channel_of(self, connection: Connection) -> Channel:
        if connection.state is None:
            connection.state = Channel(connection.shown, tls=self.target.tls)
        channel: Channel = connection.state
        return channel

    async def _answers(self, connection: Connection, deadline: float) -> None:
        """A change of nothing: it is for the disks of a majority, as a claim is, and comes after all that was asked before."""
        nothing = ((TXN, txn([], [op_delete(f"{self.target.prefix}/@none".encode())])),)
        (outcome,) = await self._exchange(connection, nothing, self._metadata, deadline)
        if isinstance(outcome, Exception):  # also a refusal, of our login say: for that it needs no disk
            raise outcome

    async def _is_over(self, connection: Connection) -> bool:
        """Did etcd hang up while the connection lay idle? What else it said meanwhile (a ping, a wider window) is answered."""
        try:
            until = self._driver.now() + _GLANCE
            connection.state.feed(await connection.stream.receive(until))
            if waiting := connection.state.outgoing():
                await connection.stream.send(waiting, until)
        except (OSError, RuntimeError):  # RuntimeError: it is of another event loop
            return True
        return connection.stream.is_stale()


def _stale(outcomes: Sequence[Outcome]) -> list[int]:
    return [at for at, one in enumerate(outcomes) if isinstance(one, Refused) and one.is_login_stale]


def answer_of(outcome: Outcome) -> bytes:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
