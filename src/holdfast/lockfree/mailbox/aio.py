"""Mailboxes for asyncio: the same names. They belong to one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ...claim import valid_timeout
from . import box as boxes
from .box import FAIR, Box, Boxes, Envelope, OnFailure, Rules, check_chain, full, told, unfinished
from .handling import Journaled, Plain
from .remote_aio import Post, Reply, serve
from .threads import log_failure, tell_failure

__all__ = ["Mailboxes", "Post", "serve"]


class Mailboxes:
    """One actor a key, made by `actor(key)` when its first message comes; its `receive` handles one message at a time.

    A `receive` that raises ends that actor; its asker is told, and the next message gets a new one. After more than
    `restarts` such failures within so many seconds, the key is given up until `revive`. With a `journal`, `receive` returns
    `Record(event, …, reply=…)`, and `apply(event)` changes the state.
    """

    def __init__(
        self,
        actor: Callable[[str], Any],
        *,
        capacity: int = 1000,
        restarts: int = 3,
        within: float = 60.0,
        most_keys: int = 100_000,
        on_failure: OnFailure | None = None,
        journal: Any = None,
        prefix: str = "",
        snapshot_every: int = 100,
    ) -> None:
        self._boxes = Boxes(Rules(capacity, restarts, within, most_keys), evict=journal is not None)
        self._capacity = capacity
        self._on_failure = on_failure or log_failure
        self._pumps: set[asyncio.Task[None]] = set()
        self._handling: Plain | Journaled = (
            Plain(actor) if journal is None else Journaled(actor, journal, prefix, snapshot_every, asyncio.Lock())
        )

    def __repr__(self) -> str:
        return repr(self._boxes)

    async def tell(self, key: str, message: Any, *, timeout: float | None = 30.0) -> None:
        """Leave a message. Waits while the mailbox is full, and then raises `MailboxFull`."""
        box = self._boxes.get(key)
        if len(box.queue) >= self._capacity:
            await self._wait_for_room(box, valid_timeout(timeout))
        box.queue.append(told(message))
        if not box.running:
            self._start(box)

    async def ask(self, key: str, message: Any, *, timeout: float | None = 30.0) -> Any:
        """Leave a message and wait for what `receive` returns, or raises. `TimeoutError` says whether it was begun."""
        return await self._ask(key, message, timeout, Reply(loop=asyncio.get_running_loop()))

    async def _ask(self, key: str, message: Any, timeout: float | None, reply: Reply) -> Any:
        asked_by = check_chain(self, key)
        wait = valid_timeout(timeout)
        envelope = Envelope(message, reply, asked_by)
        box: Box | None = None
        try:
            async with asyncio.timeout(wait) as limit:
                target = self._boxes.get(key)
                if len(target.queue) >= self._capacity:
                    await self._wait_for_room(target, wait)
                box = target
                box.queue.append(envelope)
                if not box.running:
                    self._start(box)
                return await reply
        except TimeoutError:
            if not limit.expired():
                raise  # it was the actor's own
            begun = box is not None and not box.withdraw(envelope)
            raise unfinished(key, timeout, begun) from None

    async def revive(self, key: str) -> bool:
        """Make an actor anew that was given up; what it was told meanwhile is handled. False: it was not given up."""
        box = self._boxes.find(key)
        if box is None or box.given_up is None:
            return False
        box.given_up = None
        box.failures.clear()
        if box.queue and not box.running:
            self._start(box)
        return True

    async def forget(self, key: str) -> bool:
        """Drop the actor of a key and its state. False: there is none, or it has something to do."""
        return self._boxes.forget(key)

    async def waiting(self, key: str) -> int:
        """How many messages wait for this key."""
        box = self._boxes.find(key)
        return len(box.queue) if box else 0

    async def close(self, timeout: float | None = 30.0) -> int:
        """Take no more, finish what was taken, and return how many messages are left after `timeout` seconds."""
        wait = valid_timeout(timeout)
        self._boxes.closed = True
        if self._pumps:
            _, pending = await asyncio.wait(set(self._pumps), timeout=wait)
            for pump in pending:
                pump.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        return sum(len(box.queue) for box in self._boxes)

    async def __aenter__(self) -> Mailboxes:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _wait_for_room(self, box: Box, timeout: float | None) -> None:
        if timeout == 0 or (id(self), box.key) in boxes.chain.get():
            raise full(
                box, self._capacity, 0
            )  # in its own message, only we could make room, and not while we wait for it
        if box.room is None:
            box.room = deque()
        try:
            async with asyncio.timeout(timeout):
                while len(box.queue) >= self._capacity and box.given_up is None:
                    room = asyncio.get_running_loop().create_future()
                    box.room.append(room)
                    await room
        except TimeoutError:
            raise full(box, self._capacity, timeout) from None
        self._boxes.get(box.key)  # it may have been given up meanwhile

    def _start(self, box: Box) -> None:
        box.running = True
        pump = asyncio.get_running_loop().create_task(self._pump(box))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    async def _pump(self, box: Box) -> None:
        handle, queue, me = self._handling.handle, box.queue, ((id(self), box.key),)
        enough = self._capacity // 2  # let senders in by the half mailbox, not one by one
        turns = 0
        asked_by: tuple[tuple[int, str], ...] | None = None
        try:
            while queue and box.given_up is None:
                message, reply, asking = queue.popleft()
                if box.room and len(queue) <= enough:
                    _let_in(box)
                if asking is not asked_by:
                    asked_by = asking
                    boxes.chain.set(asking + me)
                if reply is not None:
                    if reply.done():
                        continue  # the asker has left
                    reply.begun = True
                try:
                    answer = await handle(box, message)
                except Exception as error:
                    self._failed(box, Envelope(message, reply, asking), error)
                else:
                    if reply is not None and not reply.done():
                        reply.set_result(answer)
                turns += 1
                if turns % FAIR == 0:
                    await asyncio.sleep(0)
        finally:
            box.running = False
            if box.room:  # given up, or done: let those who wait for room hear of it
                _let_in(box)

    def _failed(self, box: Box, envelope: Envelope, error: Exception) -> None:
        asking = [] if box.failed(error, self._boxes.rules) else box.askers()
        if envelope.reply is not None and not envelope.reply.done():
            envelope.reply.set_exception(error)
        for one in asking:
            if not one.reply.done():
                one.reply.set_exception(box.refused(self._boxes.rules))
        tell_failure(self._on_failure, box.key, envelope.message, error)


def _let_in(box: Box) -> None:
    """Wake all who wait for room; those who find none wait again."""
    while box.room:
        room = box.room.popleft()
        if not room.done():
            room.set_result(None)
