"""One ZooKeeper session, for threads and for asyncio alike: kazoo's connection thread does the talking, a driver's bell
wakes whoever asked. No thread a call, and no logic of locks.

Rule 1: a `Session` is one session of the server's. When that has ended, so has this object: nothing is carried over.
Rule 2: requests are answered in the order in which they were sent, so some are sent together and cost one round trip.
Rule 3: kazoo's own retries are off; who asks is told what became of it, or that nobody knows.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions
from kazoo.protocol.serialization import CheckVersion, Transaction
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Misuse, Unavailable
from .url import Target
from .wire import Client

_OVER = (exceptions.SessionExpiredError, exceptions.SessionMovedError)
# What says how things stand. Anything else, be it of the server or of kazoo, says nothing about that.
_ANSWERS = (
    exceptions.NoNodeError,
    exceptions.NodeExistsError,
    exceptions.NotEmptyError,
    exceptions.BadVersionError,
    exceptions.RolledBackError,  # in a transaction: because of one before it,
    exceptions.RuntimeInconsistency,  # and because of one after it
)


# A leader hears of a follower's clients with a delay. If it never hears of the last renewal, it counts from the one before,
# which was a third of a ttl earlier: so the session is a third longer than what a holder believes.
MARGIN = 4 / 3


class Batch:
    """Requests that were sent together, and what has been answered so far."""

    __slots__ = ("answers", "bell", "done", "generation")

    def __init__(self, size: int, bell: Bell, generation: int) -> None:
        self.answers: list[Any] = [None] * size
        self.done: list[int] = []
        self.bell = bell
        self.generation = generation  # of the connection that they were sent over

    @property
    def complete(self) -> bool:
        return len(self.done) == len(self.answers)


class _Reply:
    """What kazoo tells the answer to."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch: Batch | None = batch
        self._index = index

    def set(self, value: Any = None) -> None:
        batch, self._batch = self._batch, None  # kazoo may tell a failure twice
        if batch is not None:
            batch.answers[self._index] = value
            batch.done.append(self._index)
            if batch.complete:
                batch.bell.ring()

    set_exception = set


class _Nobody:
    """For requests whose answer does not matter."""

    def set(self, value: Any = None) -> None:
        return

    set_exception = set


class Watcher:
    """All who wait for one thing to happen to one node: a single watch, however many come and go."""

    def __init__(self, watchers: dict[tuple[type, str], Watcher], key: tuple[type, str]) -> None:
        self._watchers = watchers
        self._key = key
        self.bells: dict[int, Callable[[], object]] = {}

    def __call__(self, event: object) -> None:
        if self._watchers.get(self._key) is self:
            self._watchers.pop(self._key, None)
        for ring in list(self.bells.values()):
            ring()


class Session:
    def __init__(self, target: Target, seconds: float, driver: Driver) -> None:
        self.seconds = seconds  # as asked for; as negotiated, when it is open
        self.asked = seconds
        self.target = target
        self.dead = ""  # why
        self.acl = CREATOR_ALL_ACL if target.acl == "creator" else OPEN_ACL_UNSAFE
        # A member may lag behind what others have answered, the leader too, and a sync does not wait for that. A read behind a
        # write of the same session does: this one writes nothing, but takes its turn with all others.
        self.barrier = Transaction([CheckVersion(target.root, -1)])
        self.used = driver.now()  # when it was last of use to anybody
        self.suspended: float | None = driver.now()  # since when
        self._driver = driver
        self.id: int | None = None
        self._refused = False
        self._generation = 0
        self._heard = driver.now()  # when it last answered
        self._asked = 0.0  # when it was first asked something since
        self._openers: list[Any] = []
        self._watchers: dict[tuple[type, str], Watcher] = {}
        self._mutex = driver.mutex()
        self.client = Client(target, seconds, self._connected)
        self.client.add_listener(self._changed)
        self.client.start_async()

    # ---- in kazoo's thread

    def _connected(self, session: int, seconds: float) -> None:
        if self.id not in (None, session):
            self.dead = "its session ended while it was disconnected"
        self.id = session
        self._generation += 1
        self.seconds = seconds
        self.suspended = None
        self._heard = self._driver.now()
        self._tell()

    def _changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self.suspended = self._driver.now()
            self._generation += 1
        elif state == KazooState.LOST:
            self._refused = self.client.refused
            self.dead = self.dead or "its session has ended"
            self._tell()

    def _tell(self) -> None:
        with self._mutex:
            bells, self._openers = self._openers, []
        for bell in bells:
            bell.ring()

    # ---- for everybody

    async def opened(self, give_up: float) -> None:
        """Connected and authenticated, or an error. If `give_up` comes first, it goes on connecting for the next who asks."""
        began = self._driver.now()
        while self.id is None and not self.dead:
            bell = self._driver.bell()
            with self._mutex:
                self._openers.append(bell)
            left = give_up - self._driver.now()
            if self.id is None and not self.dead:
                if left <= 0:
                    raise self._unreachable(self._driver.now() - began)
                await bell.wait(left)
        if self._refused:
            raise Misuse(
                f"ZooKeeper at {self.target.shown()} refuses the user {self.target.username!r} or its password"
            )
        if self.dead:
            raise Unavailable(f"ZooKeeper at {self.target.shown()}: {self.dead}")

    def _unreachable(self, after: float) -> HoldfastError:
        trouble = self.client.trouble
        if isinstance(trouble, ssl.SSLError):
            return Misuse(
                f"no TLS with ZooKeeper at {self.target.shown()}: {trouble}; see the options ca, cert, cert_key"
            )
        why = f": {trouble}" if trouble else ""
        return Unavailable(f"cannot connect to ZooKeeper at {self.target.shown()} within {after:.2g} s{why}")

    async def ask(self, requests: Sequence[Any], give_up: float | None = None) -> list[Any]:
        """Sent together, answered in order; what ZooKeeper refuses is an answer like any other."""
        if give_up is None:
            give_up = self._driver.now() + self.target.timeout
        return await self.answered(self.send(requests, self._driver.bell()), give_up)

    async def answered(self, batch: Batch, give_up: float) -> list[Any]:
        while not batch.complete:
            left = give_up - self._driver.now()
            if left <= 0:
                raise self.silent(batch)
            await batch.bell.wait(left)
        return self.answers(batch)

    def send(self, requests: Sequence[Any], bell: Bell) -> Batch:
        """Without waiting: `bell` rings when all of them are answered."""
        if self._asked <= self._heard:
            self._asked = self._driver.now()
        batch = Batch(len(requests), bell, self._generation)
        replies = [_Reply(batch, index) for index in range(len(requests))]
        for request, reply in zip(requests, replies, strict=True):
            self.client.call(request, reply)
        return batch

    def answers(self, batch: Batch) -> list[Any]:
        """Of a batch that is complete. Raises if any of them was lost, or is not for us."""
        self._heard = self._driver.now()
        for answer in batch.answers:
            if isinstance(answer, Exception):
                self._check(answer)
            elif isinstance(answer, list):
                for part in answer:  # of a transaction
                    if isinstance(part, Exception):
                        self._check(part)
        return batch.answers

    def silent(self, batch: Batch) -> Unavailable:
        """It was not answered in time. A server that is silent for long is left for another, sooner than kazoo would."""
        since = self._asked if self._asked > self._heard else self._driver.now()
        silent = self._driver.now() - since
        if silent >= min(1.0, self.seconds / 4) and (
            batch.generation == self._generation or self.suspended is not None
        ):
            self._heard = self._driver.now()
            self.client.hang_up()
        return Unavailable(f"ZooKeeper at {self.target.shown()} did not answer in time")

    def tell(self, request: Any) -> None:
        """Send, and do not wait to hear what became of it."""
        self.client.call(request, _Nobody())

    def watcher(self, kind: type, path: str, ring: Callable[[], object]) -> Watcher:
        """To go with a request of this kind: `ring` is called, once at least, when the node has changed."""
        key = (kind, path)
        watcher = self._watchers.get(key)
        if watcher is None:
            watcher = self._watchers[key] = Watcher(self._watchers, key)
        watcher.bells[id(ring)] = ring
        return watcher

    def unwatch(self, watcher: Watcher | None, ring: Callable[[], object]) -> None:
        if watcher is not None:
            watcher.bells.pop(id(ring), None)

    def _check(self, error: Exception) -> None:
        if isinstance(error, _ANSWERS):
            return
        where = self.target.shown()
        if isinstance(error, _OVER):
            self.dead = self.dead or "its session has ended"
            raise Unavailable(f"ZooKeeper at {where}: {self.dead}")
        if isinstance(error, exceptions.ConnectionLoss):
            raise Unavailable(f"the connection to ZooKeeper at {where} was lost: what was asked may have been done")
        if isinstance(error, (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)):
            who = f"the user {self.target.username!r}" if self.target.username else "an anonymous user"
            raise Misuse(f"ZooKeeper at {where} does not allow this to {who}: its ACLs give it to somebody else")
        if isinstance(error, exceptions.UnimplementedError):
            raise Misuse(f"ZooKeeper at {where} knows no container nodes: it must be 3.5.1 or newer")
        raise Unavailable(f"ZooKeeper at {where} did not say what became of it: {error!r}")

    def end(self, *, keep: bool = False) -> None:
        """Blocks for a moment. `keep`: leave without a word, so that what is held lives on for the session's time."""
        self.dead = self.dead or "it was closed"
        self.client.end(keep=keep)
