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
    """One connection to one node, reopened when it breaks."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection: Connection | None = None
        self.owed = 0
        self.rests_until = 0.0
        self.trouble: HoldfastError | None = None

    def send(self, request: bytes, timeout: float) -> bool:
        now = time.monotonic()
        if self.connection is None and now < self.rests_until:
            return False
        try:
            if self.connection is None or self.owed > _MOST_OWED:
                self.drop()
                self.connection = Connection(self.target, self.target.addresses[0], timeout)
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
        except Unavailable as error:
            self.fail(error)
        return None

    def fail(self, error: HoldfastError) -> None:
        self.trouble = error
        self.rests_until = time.monotonic() + _REST
        self.drop()

    def drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.owed = 0


class Fan:
    """A connection to every node, used by one thread at a time."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.nodes = [Node(target) for target in targets]

    def ask(self, request: bytes, enough: Enough, within: float) -> list[Reply]:
        deadline = time.monotonic() + within
        answers: list[Reply] = [None] * len(self.nodes)
        poll = select.poll()
        waiting: dict[int, int] = {}
        for index, node in enumerate(self.nodes):
            if node.send(request, within) and node.connection is not None:
                descriptor = node.connection.fileno()
                waiting[descriptor] = index
                poll.register(descriptor, select.POLLIN)
        while waiting:
            ready = poll.poll(max(0.0, (deadline - time.monotonic()) * 1000))
            if not ready:
                break
            for descriptor, _ in ready:
                index = waiting[descriptor]
                answers[index] = self.nodes[index].read()
                if answers[index] is not None or self.nodes[index].connection is None:
                    del waiting[descriptor]
                    poll.unregister(descriptor)
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
