"""One question to all nodes at once, from one thread: send to all, then read whoever answers, until enough is known.

A reply that nobody waited for is owed: it is read and dropped before the connection's next one. So a slow node holds
nobody up, and what it says late is never taken for the answer to another question.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence

from ...errors import HoldfastError, Misuse, Unavailable
from ..redis.replies import Reply
from ..redis.url import Target
from ..redis.wire import Connection

Enough = Callable[[Sequence[Reply]], bool]
_REST = 1.0  # a node that could not be reached is left alone for so long
_MOST_OWED = 64  # a node that owes more is taken for dead: its connection is dropped


class Node:
    """One connection to one node, reopened when it breaks; while it is open, its fan's poll knows it."""

    def __init__(self, target: Target, poll: select.poll, index: int, by_descriptor: dict[int, int]) -> None:
        self.target = target
        self._poll = poll
        self._index = index
        self._by_descriptor = by_descriptor
        self._descriptor = -1
        self.connection: Connection | None = None
        self.owed = 0
        self.rests_until = 0.0
        self.trouble: HoldfastError | None = None

    def send(self, request: bytes, timeout: float) -> bool:
        if self.connection is None and time.monotonic() < self.rests_until:
            return False
        try:
            if self.connection is None or self.owed > _MOST_OWED:
                self.drop()
                self.connection = Connection(self.target, self.target.addresses[0], timeout)
                self._descriptor = self.connection.fileno()
                self._by_descriptor[self._descriptor] = self._index
                self._poll.register(self._descriptor, select.POLLIN)
            self.connection.limit(timeout)
            self.connection.send(request)
        except (Unavailable, Misuse) as error:
            self.fail(error)
            return False
        self.owed += 1
        return True

    def read(self) -> Reply:
        """The reply to the last request, or None if it is not there yet. Called when there is something to read."""
        if self.connection is None:
            return None
        try:
            while (reply := self.connection.receive_now()) is not False:
                self.owed -= 1
                if self.owed == 0:
                    return reply
                if self.owed < 0:
                    raise Unavailable(f"{self.target.shown()} said something unasked: {reply!r:.80}")
        except Unavailable as error:
            self.fail(error)
        return None

    def fail(self, error: HoldfastError) -> None:
        self.trouble = error
        self.rests_until = time.monotonic() + _REST
        self.drop()

    def drop(self) -> None:
        if self._descriptor >= 0:
            self._poll.unregister(self._descriptor)
            del self._by_descriptor[self._descriptor]
            self._descriptor = -1
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.owed = 0


class Fan:
    """A connection to every node, used by one thread at a time."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._poll = select.poll()
        self._by_descriptor: dict[int, int] = {}
        self.nodes = [Node(target, self._poll, at, self._by_descriptor) for at, target in enumerate(targets)]

    def ask(self, request: bytes, enough: Enough, within: float) -> list[Reply]:
        deadline = time.monotonic() + within
        nodes = self.nodes
        answers: list[Reply] = [None] * len(nodes)
        waiting = sum([node.send(request, within) for node in nodes])
        while waiting:
            ready = self._poll.poll(max(0.0, (deadline - time.monotonic()) * 1000))
            if not ready:
                break
            for descriptor, _ in ready:
                index = self._by_descriptor[descriptor]
                node = nodes[index]
                asked = answers[index] is None  # else it has answered, and can only have hung up
                reply = node.read()
                if asked and reply is not None:
                    answers[index] = reply
                if asked and (reply is not None or node.connection is None):
                    waiting -= 1
            if enough(answers):
                break
        return answers

    def drop(self) -> None:
        for node in self.nodes:
            node.drop()


class BlockingFan:
    """Fans for as many threads as ask at once, and one for renewals."""

    def __init__(self, target: Target) -> None:
        self._targets = [target._replace(kind="redis", addresses=(address,)) for address in target.addresses]
        self._idle: list[Fan] = []
        self._renewing: Fan | None = None

    async def ask(self, request: bytes, enough: Enough, within: float) -> list[Reply]:
        try:
            fan = self._idle.pop()
        except IndexError:
            fan = Fan(self._targets)
        try:
            answers = fan.ask(request, enough, within)
        except BaseException:
            fan.drop()
            raise
        self._idle.append(fan)
        self.trouble = [node.trouble for node in fan.nodes]
        return answers

    async def ask_apart(self, request: bytes, enough: Enough, within: float) -> list[Reply]:
        fan, self._renewing = self._renewing or Fan(self._targets), None
        try:
            answers = fan.ask(request, enough, within)
        except BaseException:
            fan.drop()
            raise
        self._renewing = fan
        return answers

    trouble: list[HoldfastError | None] = []  # noqa: RUF012 - replaced, never changed

    def forked(self) -> None:
        for fan in (*self._idle, *([self._renewing] if self._renewing else [])):
            fan.drop()  # this closes our descriptors only; not a byte is sent
        self._idle = []
        self._renewing = None

    async def close(self) -> None:
        self.forked()
