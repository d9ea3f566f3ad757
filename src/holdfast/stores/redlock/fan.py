"""One question to all nodes at once, from one thread: send to all, then read whoever answers, until enough is known.

Nobody is waited for alone: connecting, TLS and the login go on side by side, too. A reply that nobody waited for is owed: it
is read before the connection's next one, and put where whoever leaves can still see it. So a slow node holds nobody up, and
what it says late is never taken for the answer to another question.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from ...errors import HoldfastError, Misuse
from ..redis.connection import Disconnected
from ..redis.replies import Reply
from ..redis.url import Target
from .answers import Question, are_few
from .node import LAST, Node

_clock = time.monotonic


class Watch:
    """Which of some nodes have something to say. Set up once, if none of their connections is still being opened."""

    def __init__(self) -> None:
        self._poll: select.poll | None = None
        self._by_descriptor: dict[int, int] = {}

    def anew(self) -> None:
        """A connection has changed, or there is one more."""
        self._poll = None

    def ready(self, nodes: Sequence[Node], waiting: set[int], deadline: float) -> list[int]:
        while True:
            poll = self._poll or self._set_up(nodes, waiting)
            ready = [self._by_descriptor[found] for found, _ in poll.poll(max(0.0, deadline - _clock()) * 1000)]
            if waiting.issuperset(ready):
                return ready
            self._poll = None  # somebody who has answered already hung up

    def _set_up(self, nodes: Sequence[Node], waiting: set[int]) -> select.poll:
        poll = select.poll()
        self._by_descriptor = {}
        lasting = True
        for at in waiting:
            connection = nodes[at].connection
            if connection is not None:
                descriptor = connection.fileno()
                self._by_descriptor[descriptor] = at
                poll.register(descriptor, connection.wants)
                lasting = lasting and connection.quick
        self._poll = poll if lasting else None
        return poll


class Fan:
    """A connection to every node, used by one thread at a time."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.nodes = [Node(target, at) for at, target in enumerate(targets)]

    def ask(self, question: Question, share: float, within: float) -> list[Reply]:
        """In the list that is returned, whoever leaves finds later answers, too, as they come in."""
        request, _, enough, _, leaving = question
        now = _clock()
        deadlines = now + share, now + max(share, within)
        nodes = self.nodes
        answers: list[Reply] = [None] * len(nodes)
        waiting: set[int] = set()
        again: set[int] = set()
        resting: list[int] = []
        for at, node in enumerate(nodes):
            if node.connection is None and now < node.rests_until and not leaving:
                resting.append(at)
            elif node.ask(request, now):
                waiting.add(at)
        watch = Watch()
        while True:
            if resting and are_few(answers, len(waiting)):
                waiting.update(at for at in resting if nodes[at].ask(request, now))  # without them there is no majority
                resting = []
                watch.anew()
            if not waiting or enough(answers):
                break
            few = are_few(answers)
            if not few and all(now < nodes[at].slow_until for at in waiting):
                break
            # A majority is waited for, the rest only for its share of the time.
            ready = watch.ready(nodes, waiting, deadlines[few])
            if not ready:
                break
            for at in ready:
                node = nodes[at]
                answers[at] = answer = node.read(question)
                if answer is not None:
                    waiting.discard(at)
                    if leaving and at in again and answers[at] == 0:
                        answers[at] = 1  # not there any more: since the first one arrived, as far as anybody can tell
                elif node.connection is None:
                    # It hung up, which a healthy node does with old connections: once more, on a new one.
                    repeated = (
                        at not in again and isinstance(node.trouble, Disconnected) and node.ask(request, _clock())
                    )
                    again.add(at)
                    watch.anew()
                    if not repeated:
                        waiting.discard(at)
        if waiting:
            late = _clock() >= deadlines[0]
            for at in waiting:
                nodes[at].leave(question, answers, late=late)
        return answers

    def settle(self, within: float) -> None:
        """Wait for what is owed and still wanted."""
        deadline = _clock() + within
        while waiting := {node.at for node in self.nodes if node.owes}:
            ready = Watch().ready(self.nodes, waiting, deadline)
            if not ready:
                break
            for at in ready:
                self.nodes[at].settle()

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
        self._last: tuple[Sequence[Node], Sequence[Reply]] = (), ()

    @property
    def trouble(self) -> list[HoldfastError | None]:
        return [node.trouble if answer is None else None for node, answer in zip(*self._last, strict=True)]

    async def ask(self, question: Question, share: float, within: float) -> list[Reply]:
        try:
            fan = self._idle.pop()
        except IndexError:
            fan = self._open()
        answers = self._asked(fan, question, share, within)
        if self._closed:
            self._end(fan, LAST)
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
        self._last = fan.nodes, answers
        return answers

    def _open(self) -> Fan:
        if self._closed:
            raise Misuse("this connection to a Redlock was closed")
        return Fan(self._targets)

    async def settle(self) -> None:
        for _ in range(len(self._idle)):
            try:
                fan = self._idle.pop(0)  # at the other end: whoever asks takes the last
            except IndexError:
                return
            try:
                fan.settle(0.0)
            except BaseException:
                fan.drop()
                raise
            if self._closed:
                fan.drop()
            else:
                self._idle.append(fan)

    def _end(self, fan: Fan, within: float) -> None:
        # A connection that is closed with answers unread is reset, and a node may never read what it was sent last.
        try:
            fan.settle(within)
        finally:
            fan.drop()

    def forked(self) -> None:
        for fan in (*self._idle, *([self._renewing] if self._renewing else [])):
            fan.drop()  # this closes our descriptors only; not a byte is sent
        self._idle = []
        self._renewing = None

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        deadline = _clock() + LAST
        for fan in idle:
            self._end(fan, max(0.0, deadline - _clock()))
        self.forked()
