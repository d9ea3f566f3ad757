"""Transactions of many tasks, sent as one: while some are under way, those that come meanwhile gather for the next.

etcd takes a transaction of transactions, and all of it is one entry of its log, so one fsync. What makes it right:

Rule 1: a name stands in one gathering once. Two claims of one name would share a revision, and so a token. And etcd decides
        all compares before it does anything, so a claim beside the release of the same name would see it taken, and then
        watch from a revision that is past the release.
Rule 2: what is refused is refused for all of them (etcd does all of it or nothing): each is then asked alone.
Rule 3: nothing overtakes a transaction of its name that was given up (its task was cancelled) while it was under way: the
        release that follows would find nothing to release yet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from .proto import Done, op_txn, read_txn, txn
from .refusals import Refused

MOST = 100  # etcd's own limit is 128 (--max-txn-ops)
MOST_BYTES = 48_000  # within HTTP/2's first window of 64 KiB: one flight

FLIGHTS = 2  # at once: while etcd writes one to its disks, we write the next
MOST_FLIGHTS = 16  # if they are about names that are under way: a hot name does not wait for its own last answer


class Waiting(NamedTuple):
    name: str
    transaction: bytes
    answer: asyncio.Future[Done]


class Gatherer:
    def __init__(self, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._waiting: list[Waiting] = []
        self._flying: set[asyncio.Task[None]] = set()
        self._names: Counter[str] = Counter()  # that are under way
        self._given_up: Counter[str] = Counter()
        self._called = False

    async def transact(self, name: str, transaction: bytes) -> Done:
        one = Waiting(name, transaction, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._call()
        try:
            return await one.answer
        except asyncio.CancelledError:
            if one in self._waiting:
                self._waiting.remove(one)
            elif name in self._names:
                self._given_up[name] += 1
            raise

    def _call(self) -> None:
        """Depart, but after everybody who is awake now has come: one answer wakes many."""
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._depart)

    def _depart(self) -> None:
        self._called = False
        while self._waiting and len(self._flying) < MOST_FLIGHTS:
            hot = len(self._flying) >= FLIGHTS
            batch = self._next(hot=hot)
            if not batch:
                return
            self._names.update(one.name for one in batch)
            task = asyncio.get_running_loop().create_task(self._fly(batch), name="holdfast-etcd-gatherer")
            self._flying.add(task)

    def _next(self, *, hot: bool) -> list[Waiting]:
        """`hot`: only of names that are under way."""
        batch: list[Waiting] = []
        later: list[Waiting] = []
        names: set[str] = set()
        size = 0
        for one in self._waiting:
            name = one.name
            full = len(batch) >= MOST or (batch and size + len(one.transaction) > MOST_BYTES)
            if full or name in names or name in self._given_up or (hot and name not in self._names):
                later.append(one)
            else:
                size += len(one.transaction)
                batch.append(one)
            names.add(name)  # nor may a later one of this name overtake it
        self._waiting = later
        return batch

    async def _fly(self, batch: list[Waiting]) -> None:
        """Not a part of anybody's call: a task that is cancelled takes no other's transaction with it."""
        answers: list[Done] | Exception = []
        try:
            answers = await self._answers(batch)
        except Exception as error:
            answers = error
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._flying.discard(task)
            for name, _, answer in batch:
                _less(self._names, name)
                if answer.cancelled():
                    _less(self._given_up, name)
        if isinstance(answers, Refused) and len(batch) > 1:
            self._names.update(one.name for one in batch)
            self._flying.add(task)
            for one in batch:
                await self._fly([one])
            return
        for at, one in enumerate(batch):
            if one.answer.done():
                continue
            if isinstance(answers, Exception):
                one.answer.set_exception(answers)
            else:
                one.answer.set_result(answers[at])
        if self._waiting:
            self._call()

    async def _answers(self, batch: list[Waiting]) -> list[Done]:
        if len(batch) == 1:
            return [read_txn(await self._ask(batch[0].transaction))]
        whole = read_txn(await self._ask(txn([], [op_txn(one.transaction) for one in batch])))
        # The parts know no revision of their own: they are all of the one of the whole.
        return [Done(one.succeeded, one.answers, whole.header) for one in whole.answers if isinstance(one, Done)]


def _less(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if counter[name] <= 0:
        del counter[name]
