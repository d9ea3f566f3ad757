"""One question to all nodes at once, from one thread: send to all, then read whoever answers, until enough is known.

Nobody is waited for alone: connecting, TLS and the login go on side by side, too. A reply that nobody waited for is owed: it
is read and dropped before the connection's next one. So a slow node holds nobody up, and what it says late is never taken for
the answer to another question.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from ...errors import HoldfastError, Misuse, Unavailable
from ..redis.connection import Connection, Disconnected
from ..redis.replies import Reply
from ..redis.url import Target
from .answers import Question, are_few

REST = 1.0  # a node that could not be reached is left alone for so long, unless the others are too few
_MOST_OWED = 64  # a node that owes more is taken for dead: its connection is dropped
_FRESH = 0.1  # a connection that lay longer may have been closed by the node meanwhile: look before use
_clock = time.monotonic


class Node:
    """One connection to one node, reopened when it breaks."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection: Connection | None = None
        self.rests_until = 0.0
        self.slow_until = 0.0  # others do not wait for it, if they can do without
        self.trouble: HoldfastError | None = None

    def ask(self, request: bytes) -> bool:
        """On a new connection, if there is none or the old one is no good. False: that failed at once."""
        try:
            if self.connection is not None and not self._is_good(self.connection):
                self.drop()
            if self.connection is None:
                self.connection = Connection(self.target, self.target.addresses[0])
            self.connection.send(request)
        except HoldfastError as error:
            self.fail(error)
            return False
        self.connection.used = _clock()
        return True

    def _is_good(self, connection: Connection) -> bool:
        if connection.unread > _MOST_OWED:
            return False
        if _clock() - connection.used < _FRESH:
            return True
        try:
            connection.step()  # takes what is owed, and sees whether the node has hung up
            return connection.next() is False
        except HoldfastError:
            return False

    def read(self, question: Question) -> Reply:
        """The answer to the last request, or None if it is not there yet. Called when there is something to read."""
        if self.connection is None:
            return None
        try:
            self.connection.step()
            reply = self.connection.next()
        except HoldfastError as error:
            self.fail(error)
            return None
        if reply is False:
            return None
        answer = question.understood(reply, self.target.shown())
        if isinstance(answer, HoldfastError):
            self.trouble = answer
        return answer

    def leave(self, *, late: bool) -> None:
        """It has not answered yet. What it was asked it may still do, so the connection is kept, and what follows goes there."""
        if late:
            self.slow_until = _clock() + REST
        if self.connection is not None and (self.connection.is_open or not late):
            self.connection.unread += 1
        else:
            self.fail(Unavailable(f"cannot connect to Redis at {self.target.shown()} in time"))

    def fail(self, error: HoldfastError) -> None:
        self.trouble = error
        self.rests_until = _clock() + REST
        self.drop()

    def drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Fan:
    """A connection to every node, used by one thread at a time."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.nodes = [Node(target) for target in targets]

    def ask(self, question: Question, share: float, within: float) -> list[Reply]:
        request, _, enough, _, leaving = question
        now = _clock()
        deadlines = now + share, now + max(share, within)
        nodes = self.nodes
        answers: list[Reply] = [None] * len(nodes)
        waiting: set[int] = set()
        again: set[int] = set()
        resting = [
            at for at, node in enumerate(nodes) if node.connection is None and now < node.rests_until and not leaving
        ]
        for at, node in enumerate(nodes):
            if at not in resting and node.ask(request):
                waiting.add(at)
        while True:
            if resting and are_few(answers, len(waiting)):
                waiting.update(at for at in resting if nodes[at].ask(request))  # without them there is no majority
                resting = []
            if not waiting or enough(answers):
                break
            if not are_few(answers) and all(now < nodes[at].slow_until for at in waiting):
                break
            # A majority is waited for, the rest only for its share of the time.
            deadline = deadlines[are_few(answers)]
            ready = self._ready(waiting, deadline)
            if not ready:
                break
            for at in ready:
                node = nodes[at]
                answers[at] = node.read(question)
                if answers[at] is not None:
                    waiting.discard(at)
                    if leaving and at in again and answers[at] == 0:
                        answers[at] = 1  # not there any more: since the first one arrived, as far as anybody can tell
                elif node.connection is None:
                    # It hung up, which a healthy node does with old connections: once more, on a new one.
                    repeated = at not in again and isinstance(node.trouble, Disconnected) and node.ask(request)
                    again.add(at)
                    if not repeated:
                        waiting.discard(at)
        late = _clock() >= deadlines[0]
        for at in waiting:
            nodes[at].leave(late=late)
        return answers

    def _ready(self, waiting: set[int], deadline: float) -> list[int]:
        poll = select.poll()
        by_descriptor: dict[int, int] = {}
        for at in waiting:
            connection = self.nodes[at].connection
            if connection is not None:
                by_descriptor[connection.fileno()] = at
                poll.register(connection.fileno(), connection.wants)
        return [by_descriptor[descriptor] for descriptor, _ in poll.poll(max(0.0, deadline - _clock()) * 1000)]

    def drop(self) -> None:
        for node in self.nodes:
            node.drop()


class BlockingFan:
    """Fans for as many threads as ask at once, and one for renewals."""

    def __init__(self, target: Target) -> None:
        self._targets = [target._replace(kind="redis", addresses=(address,)) for address in target.addresses]
        self._idle: list[Fan] = []
        self._renewing: Fan | None = None
        self._closed = False
        self.trouble: list[HoldfastError | None] = []

    async def ask(self, question: Question, share: float, within: float) -> list[Reply]:
        try:
            fan = self._idle.pop()
        except IndexError:
            fan = self._open()
        answers = self._asked(fan, question, share, within)
        if self._closed:
            fan.drop()
        else:
            self._idle.append(fan)
        return answers

    async def ask_apart(self, question: Question, share: float, within: float) -> list[Reply]:
        fan, self._renewing = self._renewing or self._open(), None
        answers = self._asked(fan, question, share, within)
        if self._closed:
            fan.drop()
        else:
            self._renewing = fan
        return answers

    def _asked(self, fan: Fan, question: Question, share: float, within: float) -> list[Reply]:
        try:
            answers = fan.ask(question, share, within)
        except BaseException:
            fan.drop()
            raise
        self.trouble = [
            node.trouble if answer is None else None for node, answer in zip(fan.nodes, answers, strict=True)
        ]
        return answers

    def _open(self) -> Fan:
        if self._closed:
            raise Misuse("this connection to a Redlock was closed")
        return Fan(self._targets)

    def forked(self) -> None:
        for fan in (*self._idle, *([self._renewing] if self._renewing else [])):
            fan.drop()  # this closes our descriptors only; not a byte is sent
        self._idle = []
        self._renewing = None

    async def close(self) -> None:
        self._closed = True
        self.forked()
