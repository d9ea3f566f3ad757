"""Groups and queues for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from ...claim import valid_timeout
from ...drivers.base import boot_time, finish
from ...drivers.starting import start
from ...drivers.threads import Flag
from ...errors import HoldfastError, StaleToken
from ..patience import Patience
from .line import THREADS, Line
from .membership import Member, OnChange
from .messages import Batch, Message
from .shared import AnyGroup, AnyQueue, AnyWorker


class Worker(AnyWorker):
    """A member of a group, made by `group.join()`. Owns the partitions that are its share, and keeps them while it lives."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._kicked = Flag()
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._stop = False
        self._thread: threading.Thread | None = None
        member.kick = self._kicked.set

    def ready(self, timeout: float | None = None) -> bool:
        """Wait until our share is in our hands, and nothing else. False: not within `timeout` seconds."""
        with self._mutex:
            self._changed.wait_for(lambda: self._stop or self._member.settled(), valid_timeout(timeout))
        return self._member.settled()

    def leave(self) -> None:
        """Finish what is in our hands, for as long as the group's `drain`, and give everything back."""
        if self._stop:
            return
        self._stop = True
        self._kicked.set()
        if self._thread is not None:
            self._thread.join()
        give_up = boot_time() + self._member.plan.drain + 1
        while not finish(self._member.depart()) and boot_time() < give_up:
            self._kicked.clear()
            self._kicked.wait(0.05)
        with self._mutex:
            self._changed.notify_all()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave()

    def _run(self) -> None:
        while not self._stop:
            with suppress(HoldfastError):  # the store is away: leases run out, and `working` knows
                finish(self._member.look())
            with self._mutex:
                self._changed.notify_all()
            self._kicked.wait(self._member.pause())
            self._kicked.clear()


class Group(AnyGroup):
    """Workers that share the partitions of a name, over any store of holdfast."""

    def workers(self) -> list[str]:
        """Who is here now."""
        return finish(self._plan.workers())

    def owner(self, key: str) -> str:
        """Whose key it is, by who is here now. `Misuse` if nobody is."""
        return finish(self._plan.owner(key))

    def join(
        self, worker: str | None = None, *, on_gained: OnChange | None = None, on_lost: OnChange | None = None
    ) -> Worker:
        """Become a worker, until `leave()`. The callbacks get the partition's number and its lease."""
        made = Worker(Member(self._plan, worker, on_gained, on_lost))
        finish(made._member.join())
        try:
            made._thread = start(made._run, f"holdfast-worker-{made._member.worker}")
        except BaseException:  # interrupted: nobody has it, so it shall not stay
            made._stop = True
            raise
        return made


class Queue(AnyQueue):
    """Messages in order for each key, at least once; each partition in the hands of one consumer at a time."""

    _world = THREADS

    def create_table(self) -> None:
        """Create the tables if there are none. Redis needs none."""
        finish(self._line.shelf.create())

    def put(self, key: str, data: Any) -> None:
        """Add a message behind all others of this key. In an open transaction, it is part of that."""
        finish(self._line.put(key, data))

    def take(self, most: int = 50, *, timeout: float | None = 0.0) -> Batch | None:
        """The next messages of a partition that nobody else has; None if there are none within `timeout` seconds.

        They are ours until `release`, or until `ttl` seconds after the last `ack`; then somebody else may have them, and
        our token is refused.
        """
        return taken(self._line, most, valid_timeout(timeout))

    def ack(self, batch: Batch, message: Message) -> bool:
        """It is done, and will not come again. `StaleToken` if somebody else has the partition; False: it was acknowledged.

        On PostgreSQL, in an open transaction, it is part of that: what the message changed, and that it is done, are one.
        """
        return finish(self._line.ack(batch, message))

    def release(self, batch: Batch) -> bool:
        """Let others have the partition. What was not acknowledged comes again. False: somebody has it already."""
        return finish(self._line.release(batch))

    def consume(self, *, timeout: float | None = None) -> Iterator[Message]:
        """Messages, one after the other; each is acknowledged when the loop comes back for the next.

        Leaving the loop, by an error too, gives back what was not. Ends after `timeout` seconds without a message.
        """
        while (batch := self.take(timeout=timeout)) is not None:
            try:
                for message in batch.messages:
                    yield message
                    self.ack(batch, message)
            except StaleToken:
                continue  # overtaken: what is left of it is somebody else's
            finally:
                self.release(batch)

    def waiting(self) -> int:
        """How many messages are not acknowledged yet."""
        return finish(self._line.shelf.count())


def taken(line: Line, most: int, timeout: float | None) -> Batch | None:
    patience = Patience(timeout)
    listening = False
    try:
        while (batch := finish(line.take(most))) is None and not patience.over():
            if not listening:
                finish(line.shelf.listen())
                listening = True
            elif not finish(line.shelf.wait(patience.block())):
                time.sleep(patience.pause())
        return batch
    finally:
        if listening:
            finish(line.shelf.unlisten())
