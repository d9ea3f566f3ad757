"""Transactions of many tasks, sent as one: while one is under way, those that come meanwhile gather for the next.

etcd takes a transaction of transactions, and all of it is one entry of its log, so one fsync. What makes it right:

Rule 1: a name stands in a gathering once. Two claims of one name would share a revision, and so a token. And etcd decides all
        compares before it does anything, so a claim beside the release of the same name would see it taken, and then
        watch from a revision that is past the release.
Rule 2: what is refused is refused for all of them (etcd does all of it or nothing): each is then asked alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .proto import Done, op_txn, read_txn, txn
from .refusals import Refused

MOST = 100  # etcd's own limit is 128 (--max-txn-ops)
MOST_BYTES = 48_000  # within HTTP/2's first window of 64 KiB: one flight

Waiting = tuple[str, bytes, "asyncio.Future[Done]"]


class Gatherer:
    def __init__(self, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._waiting: list[Waiting] = []
        self._running: asyncio.Task[None] | None = None

    async def transact(self, name: str, transaction: bytes) -> Done:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Done] = loop.create_future()
        self._waiting.append((name, transaction, future))
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._run(), name="holdfast-etcd-gatherer")
        return await future

    async def _run(self) -> None:
        """Not a part of anybody's call: a task that is cancelled takes no other's transaction with it."""
        while batch := self._next():
            try:
                await self._send(batch)
            except asyncio.CancelledError:  # the loop is ending
                for _, _, future in [*batch, *self._waiting]:
                    future.cancel()
                self._waiting = []
                raise

    def _next(self) -> list[Waiting]:
        batch: list[Waiting] = []
        later: list[Waiting] = []
        names: set[str] = set()
        size = 0
        for one in self._waiting:
            name, transaction, future = one
            if future.done():
                continue  # cancelled before it was sent
            if name in names or len(batch) >= MOST or (batch and size + len(transaction) > MOST_BYTES):
                later.append(one)
                names.add(name)  # nor may a later one of this name overtake it
                continue
            names.add(name)
            size += len(transaction)
            batch.append(one)
        self._waiting = later
        return batch

    async def _send(self, batch: list[Waiting]) -> None:
        try:
            if len(batch) == 1:
                done = read_txn(await self._ask(batch[0][1]))
                answers: list[Done] = [done]
            else:
                whole = read_txn(await self._ask(txn([], [op_txn(transaction) for _, transaction, _ in batch])))
                # The parts know no revision of their own: they are all of the one of the whole.
                answers = [one._replace(header=whole.header) for one in whole.answers if isinstance(one, Done)]
        except Refused as refused:
            if len(batch) == 1:
                self._fail(batch, refused)
            else:
                for one in batch:
                    await self._send([one])
            return
        except Exception as error:
            self._fail(batch, error)
            return
        for (_, _, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    @staticmethod
    def _fail(batch: list[Waiting], error: Exception) -> None:
        for _, _, future in batch:
            if not future.done():
                future.set_exception(error)
