"""Groups and queues for asyncio: the same names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any

from ...claim import valid_timeout
from ...drivers.base import boot_time
from ...errors import HoldfastError, StaleToken
from ..patience import Patience
from .line import ASYNCIO, Line
from .membership import Member, OnChange
from .messages import Batch, Message
from .shared import AnyGroup, AnyQueue, AnyWorker


class Worker(AnyWorker):
    """A member of a group, made by `group.join()`. Owns the partitions that are its share, and keeps them while it lives."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._kicked = asyncio.Event()
        self._changed = asyncio.Condition()
        self._stop = False
        self._task: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        member.kick = lambda: loop.call_soon_threadsafe(self._kicked.set)

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until our share is in our hands, and nothing else. False: not within `timeout` seconds."""
        try:
            async with asyncio.timeout(valid_timeout(timeout)), self._changed:
                await self._changed.wait_for(lambda: self._stop or self._member.settled())
        except TimeoutError:
            return False
        return self._member.settled()

    async def leave(self) -> None:
        """Finish what is in our hands, for as long as the group's `drain`, and give everything back."""
        if self._stop:
            return
        self._stop = True
        self._kicked.set()
        if self._task is not None:
            await self._task
        give_up = boot_time() + self._member.plan.drain + 1
        while not await self._member.depart() and boot_time() < give_up:
            await self._pause(0.05)
        async with self._changed:
            self._changed.notify_all()

    async def __aenter__(self) -> Worker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.leave()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while not self._stop:
            with contextlib.suppress(HoldfastError):  # the store is away: leases run out, and `working` knows
                await self._member.look()
            async with self._changed:
                self._changed.notify_all()
            await self._pause(self._member.pause())

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._kicked.wait()
        self._kicked.clear()


class Group(AnyGroup):
    """Workers that share the partitions of a name, over any store of holdfast."""

    async def workers(self) -> list[str]:
        """Who is here now."""
        return await self._plan.workers()

    async def owner(self, key: str) -> str:
        """Whose key it is, by who is here now. `Misuse` if nobody is."""
        return await self._plan.owner(key)

    async def join(
        self, worker: str | None = None, *, on_gained: OnChange | None = None, on_lost: OnChange | None = None
    ) -> Worker:
        """Become a worker, until `leave()`. The callbacks get the partition's number and its lease."""
        made = Worker(Member(self._plan, worker, on_gained, on_lost))
        await made._member.join()
        made._start()
        return made


class Queue(AnyQueue):
    """Messages in order for each key, at least once; each partition in the hands of one consumer at a time."""

    _world = ASYNCIO

    async def create_table(self) -> None:
        """Create the tables if there are none. Redis needs none."""
        await self._line.shelf.create()

    async def put(self, key: str, data: Any) -> None:
        """Add a message behind all others of this key. In an open transaction, it is part of that."""
        await self._line.put(key, data)

    async def take(self, most: int = 50, *, timeout: float | None = 0.0) -> Batch | None:
        """The next messages of a partition that nobody else has; None if there are none within `timeout` seconds.

        They are ours until `release`, or until `ttl` seconds after the last `ack`; then somebody else may have them, and
        our token is refused.
        """
        wait = valid_timeout(timeout)
        await self._give_back()
        return await taken(self._line, most, wait)

    async def ack(self, batch: Batch, message: Message) -> bool:
        """It is done, and will not come again. `StaleToken` if somebody else has the partition; False: it was acknowledged.

        On PostgreSQL, in an open transaction, it is part of that: what the message changed, and that it is done, are one.
        """
        return await self._line.ack(batch, message)

    async def release(self, batch: Batch) -> bool:
        """Let others have the partition. What was not acknowledged comes again. False: somebody has it already."""
        return await self._line.release(batch)

    async def consume(self, *, timeout: float | None = None) -> AsyncGenerator[Message, None]:
        """Messages, one after the other; each is acknowledged when the loop comes back for the next.

        Leaving the loop, by an error too, gives back what was not. Ends after `timeout` seconds without a message.
        """
        while (batch := await self.take(timeout=timeout)) is not None:
            try:
                for message in batch.messages:
                    yield message
                    await self.ack(batch, message)
            except StaleToken:
                continue  # overtaken: what is left of it is somebody else's
            finally:
                if self._line.shelf.crowded():
                    self._left.append(batch)  # given back with the next `take`; contextlib.aclosing does it at once
                else:
                    await self.release(batch)

    async def _give_back(self) -> None:
        """What a loop had in its hands that was left when nothing could be said."""
        while self._left:
            await self.release(self._left.pop())

    async def waiting(self) -> int:
        """How many messages are not acknowledged yet."""
        return await self._line.shelf.count()


async def taken(line: Line, most: int, timeout: float | None) -> Batch | None:
    patience = Patience(timeout)
    listening = False
    try:
        while (batch := await line.take(most)) is None and not patience.over():
            if not listening:
                await line.shelf.listen()
                listening = True
            elif not await line.shelf.wait(patience.block()):
                await asyncio.sleep(patience.pause())
        return batch
    finally:
        if listening:
            await line.shelf.unlisten()
