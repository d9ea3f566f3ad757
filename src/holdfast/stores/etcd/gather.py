"""Transactions of many tasks, sent as one: while some are under way, those that come meanwhile gather for the next.

etcd takes a transaction of transactions, and all of it is one entry of its log, so one fsync. What makes it right:

Rule 1: a name stands in one gathering once. Two claims of one name would share a revision, and so a token. And etcd decides
        all compares before it does anything, so a claim beside the release of the same name would see it taken, and then
        watch from a revision that is past the release.
Rule 2: what is refused is refused for all of them (etcd does all of it or nothing): each is then asked alone.
Rule 3: a flight of several is no part of anybody's call: a task that is cancelled takes no other's transaction with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...drivers.base import Bell, Driver
from ...errors import Unavailable
from .replies import Done, Garbled, Refused, read_txn
from .requests import TXN, op_txn, txn

MOST = 100  # etcd's own limit is 128 (--max-txn-ops)
MOST_BYTES = 48_000  # within HTTP/2's first window of 64 KiB: one flight

FLIGHTS = 2  # at once: while etcd writes one to its disks, we write the next
MOST_FLIGHTS = 16  # if they are about names that are under way: a hot name does not wait for its own last answer
_CALLED = 0.5  # seconds: should the event loop end before it departs, the next who comes calls again


class Waiting:
    __slots__ = ("answer", "bell", "deadline", "name", "transaction")

    def __init__(self, name: str, transaction: bytes, deadline: float, bell: Bell | None) -> None:
        self.name = name
        self.transaction = transaction
        self.deadline = deadline
        self.bell = bell  # none, of one that flies alone
        self.answer: Done | Exception | None = None

    def tell(self, answer: Done | Exception) -> None:
        if self.answer is None:
            self.answer = answer
            if self.bell is not None:
                self.bell.ring()


class Gatherer:
    def __init__(self, ask: Callable[[bytes, bytes, float], Awaitable[bytes]], driver: Driver, where: str) -> None:
        self._ask = ask
        self._driver = driver
        self._where = where
        self._waiting: list[Waiting] = []
        self._flying: list[list[Waiting]] = []
        self._called_until = 0.0

    async def transact(self, name: str, transaction: bytes, deadline: float) -> Done:
        if not self._waiting and not self._flying:  # nobody to go with
            return await self._alone(name, transaction, deadline)
        bell = self._driver.bell()
        one = Waiting(name, transaction, deadline, bell)
        self._waiting.append(one)
        try:
            while one.answer is None:
                self._call()
                left = deadline - self._driver.now()
                if left <= 0:
                    raise Unavailable(f"etcd at {self._where} did not answer in time")
                await bell.wait(left)
        finally:
            if one.answer is None and one in self._waiting:
                self._waiting.remove(one)
        if isinstance(one.answer, Exception):
            raise one.answer
        return one.answer

    async def _alone(self, name: str, transaction: bytes, deadline: float) -> Done:
        batch = [Waiting(name, transaction, deadline, None)]
        self._flying.append(batch)
        try:
            return read_txn(await self._ask(TXN, transaction, deadline))
        finally:
            if batch in self._flying:
                self._flying.remove(batch)
            if self._waiting:
                self._call()

    def _call(self) -> None:
        """Depart, but after everybody who is awake now has come: one answer wakes many."""
        now = self._driver.now()
        if now >= self._called_until and self._waiting:
            self._called_until = now + _CALLED
            self._driver.spawn(self._depart, "holdfast-etcd-gatherer")

    async def _depart(self) -> None:
        self._called_until = 0.0
        batch = self._next()
        if not batch:
            return
        self._flying.append(batch)
        landed = False
        try:
            self._call()  # for those who did not fit
            await self._fly(batch)
            landed = True
        finally:
            if batch in self._flying:
                self._flying.remove(batch)
            if not landed:
                self._tell_of_the_loss(batch)
        self._call()

    def _tell_of_the_loss(self, batch: list[Waiting]) -> None:
        lost = Unavailable(f"a conversation with etcd at {self._where} was cancelled by somebody else")
        for one in batch:
            one.tell(lost)
        for one in self._waiting:  # the first who is there will call, if the loop goes on
            if one.bell is not None and not one.bell.asleep and one.bell.ring():
                return

    def _next(self) -> list[Waiting]:
        """Those of the next flight. If two are under way, only of names that are under way as well."""
        now = self._driver.now()
        self._flying = [batch for batch in self._flying if max(one.deadline for one in batch) >= now]
        if len(self._flying) >= MOST_FLIGHTS:
            return []
        hot = len(self._flying) >= FLIGHTS
        under_way = {one.name for batch in self._flying for one in batch} if hot else set()
        batch: list[Waiting] = []
        later: list[Waiting] = []
        names: set[str] = set()
        size = 0
        for one in self._waiting:
            name = one.name
            full = len(batch) >= MOST or (batch and size + len(one.transaction) > MOST_BYTES)
            if full or name in names or (hot and name not in under_way):
                later.append(one)
            else:
                size += len(one.transaction)
                batch.append(one)
            names.add(name)  # nor may a later one of this name overtake it
        self._waiting = later
        return batch

    async def _fly(self, batch: list[Waiting]) -> None:
        try:
            answers: list[Done | Exception] = list(await self._answers(batch))
        except Refused as refused:
            if len(batch) > 1:
                for one in batch:
                    if one.answer is None and one.deadline > self._driver.now():  # else nobody waits for it any more
                        await self._fly([one])
                return
            answers = [refused]
        except Exception as error:
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            one.tell(answer)

    async def _answers(self, batch: list[Waiting]) -> list[Done]:
        deadline = max(one.deadline for one in batch)
        if len(batch) == 1:
            return [read_txn(await self._ask(TXN, batch[0].transaction, deadline))]
        whole = read_txn(await self._ask(TXN, txn([], [op_txn(one.transaction) for one in batch]), deadline))
        # The parts know no revision of their own: they are all of the one of the whole.
        parts = [Done(one.succeeded, one.answers, whole.header) for one in whole.answers if isinstance(one, Done)]
        if len(parts) != len(batch):
            raise Garbled("not every transaction was answered")
        return parts
