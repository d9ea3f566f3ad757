"""Transactions of many tasks, sent as one: while some are under way, those that come meanwhile gather for the next.

etcd takes a transaction of transactions, and all of it is one entry of its log, so one fsync. What makes it right:

Rule 1: a name stands in one gathering once. Two claims of one name would share a revision, and so a token. And etcd decides
        all compares before it does anything, so a claim beside the release of the same name would see it taken, and then
        watch from a revision that is past the release.
Rule 2: what is refused is refused for all of them (etcd does all of it or nothing): each is then asked alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...drivers.base import boot_time
from ...errors import Unavailable
from .proto import Done, Garbled, op_txn, read_txn, txn
from .refusals import Refused

MOST = 100  # etcd's own limit is 128 (--max-txn-ops)
MOST_BYTES = 48_000  # within HTTP/2's first window of 64 KiB: one flight

FLIGHTS = 2  # at once: while etcd writes one to its disks, we write the next
MOST_FLIGHTS = 16  # if they are about names that are under way: a hot name does not wait for its own last answer


class Waiting(NamedTuple):
    name: str
    transaction: bytes
    deadline: float
    answer: asyncio.Future[Done]


class Gatherer:
    def __init__(self, ask: Callable[[bytes, float], Awaitable[bytes]], where: str) -> None:
        self._ask = ask
        self._where = where
        self._waiting: list[Waiting] = []
        self._flying: dict[asyncio.Task[None], list[Waiting]] = {}
        self._names: Counter[str] = Counter()  # that are under way
        self._called = False

    async def transact(self, name: str, transaction: bytes, deadline: float) -> Done:
        one = Waiting(name, transaction, deadline, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._call()
        try:
            async with asyncio.timeout(max(deadline - boot_time(), 0.0)):
                return await one.answer
        except TimeoutError:
            self._take_back(one)
            raise Unavailable(f"etcd at {self._where} did not answer in time") from None
        except asyncio.CancelledError:
            self._take_back(one)
            raise

    def _take_back(self, one: Waiting) -> None:
        if one in self._waiting:
            self._waiting.remove(one)

    def _call(self) -> None:
        """Depart, but after everybody who is awake now has come: one answer wakes many."""
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._depart)

    def _depart(self) -> None:
        self._called = False
        while self._waiting and len(self._flying) < MOST_FLIGHTS:
            batch = self._next(hot=len(self._flying) >= FLIGHTS)
            if not batch:
                return
            self._names.update(one.name for one in batch)
            task = asyncio.get_running_loop().create_task(self._fly(batch), name="holdfast-etcd-gatherer")
            self._flying[task] = batch
            task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        for one in self._flying.pop(task):
            self._names[one.name] -= 1
            if not self._names[one.name]:
                del self._names[one.name]
            if not one.answer.done():
                one.answer.set_exception(
                    Unavailable(f"a conversation with etcd at {self._where} was cancelled by somebody else")
                )
        if self._waiting:
            self._call()

    def _next(self, *, hot: bool) -> list[Waiting]:
        """`hot`: only of names that are under way."""
        batch: list[Waiting] = []
        later: list[Waiting] = []
        names: set[str] = set()
        size = 0
        for one in self._waiting:
            name = one.name
            full = len(batch) >= MOST or (batch and size + len(one.transaction) > MOST_BYTES)
            if full or name in names or (hot and name not in self._names):
                later.append(one)
            else:
                size += len(one.transaction)
                batch.append(one)
            names.add(name)  # nor may a later one of this name overtake it
        self._waiting = later
        return batch

    async def _fly(self, batch: list[Waiting]) -> None:
        """Not a part of anybody's call: a task that is cancelled takes no other's transaction with it."""
        try:
            answers: list[Done | Exception] = list(await self._answers(batch))
        except Refused as refused:
            if len(batch) > 1:
                for one in batch:
                    if not one.answer.done():  # else nobody waits for it any more
                        await self._fly([one])
                return
            answers = [refused]
        except Exception as error:
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            if one.answer.done():
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)

    async def _answers(self, batch: list[Waiting]) -> list[Done]:
        deadline = max(one.deadline for one in batch)
        if len(batch) == 1:
            return [read_txn(await self._ask(batch[0].transaction, deadline))]
        whole = read_txn(await self._ask(txn([], [op_txn(one.transaction) for one in batch]), deadline))
        # The parts know no revision of their own: they are all of the one of the whole.
        parts = [Done(one.succeeded, one.answers, whole.header) for one in whole.answers if isinstance(one, Done)]
        if len(parts) != len(batch):
            raise Garbled("not every transaction was answered")
        return parts
