"""Mailboxes for threads: a few threads serve any number of actors."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from ...claim import valid_timeout
from ...drivers.base import boot_time, finish
from ...errors import Misuse
from ...events import report
from . import box as boxes
from .box import FAIR, Box, Boxes, Envelope, OnFailure, Rules, check_chain, full, unfinished
from .crew import Crew, waiting
from .handling import Journaled, Plain


class Reply(concurrent.futures.Future[Any]):
    """`begun`: an actor was given the message. Else whatever is said here, the message was not handled by anybody."""

    begun = False


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
        threads: int = 8,
        on_failure: OnFailure | None = None,
        journal: Any = None,
        prefix: str = "",
        snapshot_every: int = 100,
    ) -> None:
        if type(threads) is not int or threads < 1:
            raise Misuse(f"threads must be an int of at least 1, not {threads!r:.80}")
        self._boxes = Boxes(Rules(capacity, restarts, within, most_keys), evict=journal is not None)
        self._on_failure = on_failure or log_failure
        self._mutex = threading.Lock()
        self._quiet = threading.Condition(self._mutex)
        self._crew = Crew(threads, "holdfast-mailbox")
        self._busy = 0
        self._handling: Plain | Journaled = (
            Plain(actor) if journal is None else Journaled(actor, journal, prefix, snapshot_every, threading.Lock())
        )

    def __repr__(self) -> str:
        return repr(self._boxes)

    def tell(self, key: str, message: Any, *, timeout: float | None = 30.0) -> None:
        """Leave a message. Waits while the mailbox is full, and then raises `MailboxFull`."""
        self._put(key, Envelope(message), valid_timeout(timeout))

    def ask(self, key: str, message: Any, *, timeout: float | None = 30.0) -> Any:
        """Leave a message and wait for what `receive` returns, or raises. `TimeoutError` says whether it was begun."""
        return self._ask(key, message, timeout, Reply())

    def _ask(self, key: str, message: Any, timeout: float | None, reply: Reply) -> Any:
        asked_by = check_chain(self, key)
        give_up = None if (wait := valid_timeout(timeout)) is None else boot_time() + wait
        with waiting():
            self._put(key, Envelope(message, reply, asked_by), wait)
            try:
                return reply.result(None if give_up is None else max(0.0, give_up - boot_time()))
            except TimeoutError:
                if reply.done():
                    raise  # it was the actor's own
                raise unfinished(key, timeout, begun=not reply.cancel()) from None
            except BaseException:
                reply.cancel()
                raise

    def revive(self, key: str) -> bool:
        """Make an actor anew that was given up; what it was told meanwhile is handled. False: it was not given up."""
        with self._mutex:
            box = self._boxes.find(key)
            if box is None or box.given_up is None:
                return False
            box.given_up = None
            box.failures.clear()
            self._start(box)
            return True

    def forget(self, key: str) -> bool:
        """Drop the actor of a key and its state. False: there is none, or it has something to do."""
        with self._mutex:
            return self._boxes.forget(key)

    def waiting(self, key: str) -> int:
        """How many messages wait for this key."""
        with self._mutex:
            box = self._boxes.find(key)
            return len(box.queue) if box else 0

    def close(self, timeout: float | None = 30.0) -> int:
        """Take no more, finish what was taken, and return how many messages are left after `timeout` seconds."""
        wait = valid_timeout(timeout)
        with self._mutex:
            self._boxes.closed = True
            self._quiet.wait_for(lambda: self._busy == 0, wait)
            return sum(len(box.queue) for box in self._boxes)

    def __enter__(self) -> Mailboxes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _put(self, key: str, envelope: Envelope, timeout: float | None) -> None:
        with self._mutex:
            box = self._boxes.get(key)
            if len(box.queue) >= self._boxes.rules.capacity:
                self._wait_for_room(box, timeout)
            box.queue.append(envelope)
            self._start(box)

    def _wait_for_room(self, box: Box, timeout: float | None) -> None:
        capacity = self._boxes.rules.capacity
        if (id(self), box.key) in boxes.chain.get():
            raise full(box, capacity, 0)  # only we could make room, and not while we wait for it
        if box.room is None:
            box.room = threading.Condition(self._mutex)
        with waiting():
            room = box.room.wait_for(lambda: len(box.queue) < capacity or box.given_up is not None, timeout)
        if not room:
            raise full(box, capacity, timeout)
        self._boxes.get(box.key)  # it may have been given up meanwhile

    def _start(self, box: Box) -> None:
        if not box.running and box.queue:
            box.running = True
            self._busy += 1
            self._crew.submit(partial(self._pump, box))

    def _pump(self, box: Box) -> None:
        for _ in range(FAIR):
            with self._mutex:
                if not box.queue or box.given_up is not None:
                    self._rest(box)
                    return
                envelope = box.queue.popleft()
                if box.room is not None:
                    box.room.notify()
            self._one(box, envelope)
        self._crew.submit(partial(self._pump, box))

    def _rest(self, box: Box) -> None:
        box.running = False
        self._busy -= 1
        if not self._busy:
            self._quiet.notify_all()

    def _one(self, box: Box, envelope: Envelope) -> None:
        reply = envelope.reply
        if reply is not None:
            if not reply.set_running_or_notify_cancel():
                return  # the asker has left
            reply.begun = True
        mark = boxes.chain.set((*envelope.asked_by, (id(self), box.key)))
        try:
            answer = finish(self._handling.handle(box, envelope.message))
        except BaseException as error:
            self._failed(box, envelope, error)
        else:
            if reply is not None:
                reply.set_result(answer)
        finally:
            boxes.chain.reset(mark)

    def _failed(self, box: Box, envelope: Envelope, error: BaseException) -> None:
        asking: list[Envelope] = []
        with self._mutex:
            if not box.failed(error, self._boxes.rules):
                asking = box.askers()
                if box.room is not None:
                    box.room.notify_all()
        if envelope.reply is not None:
            envelope.reply.set_exception(error)
        for one in asking:
            if one.reply.set_running_or_notify_cancel():
                one.reply.set_exception(box.refused(self._boxes.rules))
        tell_failure(self._on_failure, box.key, envelope.message, error)


def log_failure(key: str, message: Any, error: BaseException) -> None:
    import logging

    logging.getLogger("holdfast").error("the actor %r failed at a message", key, exc_info=error)


def tell_failure(told: OnFailure, key: str, message: Any, error: BaseException) -> None:
    try:
        told(key, message, error)
    except Exception as another:
        report(another, f"on_failure of the actor {key!r}")
