"""One question to all nodes at once, until enough is known. Nobody is waited for alone, not even to connect.

How a world waits for many at once is all that differs: a thread polls (polled.py), elsewhere whatever comes is read in the
background (shared.py). What nodes answer to a question, and when that is enough, is the same in threads, in asyncio and in the
simulator. A node that answers something else than it may is in trouble by itself, and has given no answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, NamedTuple

from ...drivers.base import Bell
from ...errors import HoldfastError
from ..redis.connection import Disconnected
from ..redis.replies import NONSENSE, Reply, ReplyError, foreign, nonsense
from ..redis.scanning import is_scanned
from .quorum import are_few

Fits = Callable[[Reply], bool]
Enough = Callable[[Sequence[Reply]], bool]
LAST = 0.05  # seconds that the last nodes have to say that they let us go, when a majority has
_REST = 1.0  # a node that could not be reached is left alone for so long, unless the others are too few
_FOREIGN = [3]


class Question(NamedTuple):
    """Put to all nodes, until `enough` is true of their answers. None: no answer (yet)."""

    request: bytes
    fits: Fits
    enough: Enough
    key: str = ""  # of the name that it is about
    leaving: bool = False
    # Called when a node hung up: what it was asked may get there after what follows.
    broken: Callable[[], None] | None = None
    spared: Collection[int] = ()  # nodes that need not be asked: they have said that they have nothing to let go of
    holder: str = ""  # who claims, or leaves
    overtaken: set[int] | None = None  # of who leaves: nodes that its claim may reach later than this are put in here

    def understood(self, reply: Reply, where: str) -> Reply:
        """The answer; or, as one of our errors, why it is none. An error of the server's is left as it is."""
        try:
            if self.fits(reply):
                return reply
        except NONSENSE:
            pass
        if isinstance(reply, ReplyError):
            return reply
        return foreign(self.key, where) if reply == _FOREIGN else nonsense(reply, where)


class Node(ABC):
    """All that it is asked goes over one connection, in its order: no release overtakes the claim that it is about.

    The connection is kept when it is slow, so that what comes late is still read; and opened again when it breaks.
    """

    def __init__(self, at: int, where: str, now: Callable[[], float]) -> None:
        self.at = at  # which one it is
        self.where = where
        self.now = now
        self.rests_until = 0.0  # it could not be reached a moment ago
        self.slow_until = 0.0  # others do not wait for it, if they can do without
        self.trouble: HoldfastError | None = None

    @property
    @abstractmethod
    def is_connected(self) -> bool: ...

    @abstractmethod
    def ask(self, asked: Round, now: float) -> None:
        """On a new connection, if there is none or the old one is no good. Does not wait: `asked` is told what comes of it."""


class Round:
    """One question to all nodes, and what has become of it so far.

    Nodes that could not be reached a moment ago are asked only if the others are too few. One that hung up, which a healthy
    node does with old connections, is asked once more, on a new one. A majority is waited for as long as was asked, the rest
    only for its share of the time; and those that were slow a moment ago not at all, if the others can do without.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        question: Question,
        now: float,
        share: float,
        within: float,
        bell: Bell | None = None,
    ) -> None:
        """`bell`: rung when it is over, where answers come in by themselves."""
        self.nodes = nodes
        self.question = question
        self.answers: list[Reply] = [None] * len(nodes)
        self.asked, self.late, self.ends = now, now + share, now + max(share, within)
        self.waiting: set[int] = set()
        self.over = False
        self.bell: Bell | None = None  # not before all have been asked
        self._again: set[int] = set()
        self._resting: list[Node] = []
        for node in nodes:
            if node.at in question.spared:
                self.answers[node.at] = 0
            elif now < node.rests_until and not question.leaving and not node.is_connected:
                self._resting.append(node)
        left_out = {one.at for one in self._resting}.union(question.spared)
        self._ask([one for one in nodes if one.at not in left_out] if left_out else nodes, now)
        self.bell = bell
        if len(self.waiting) < len(nodes):
            self.look(now)

    @property
    def is_wanted(self) -> bool:
        """Does a late answer still matter?"""
        return self.question.leaving or not self.over

    def _ask(self, nodes: Sequence[Node], now: float) -> None:
        for node in nodes:
            self.waiting.add(node.at)
            node.ask(self, now)

    def answered(self, node: Node, reply: Reply) -> None:
        at, question = node.at, self.question
        self.waiting.discard(at)
        if self.over and not question.leaving:
            return
        answer = question.understood(reply, node.where)
        if answer == 0 and question.leaving and at in self._again:
            answer = 1  # not there any more: since the first one arrived, as far as anybody can tell
        self.answers[at] = answer
        node.trouble = answer if isinstance(answer, HoldfastError) else None
        if self.bell is not None and not self.over and self.look(node.now()):
            self.bell.ring()

    def failed(self, node: Node, error: HoldfastError) -> None:
        now = node.now()
        node.trouble = error
        if isinstance(error, Disconnected) and self.question.broken is not None:
            self.question.broken()
        if isinstance(error, Disconnected) and not self.over and node.at not in self._again:
            self._again.add(node.at)
            self._ask([node], now)
            return
        node.rests_until = now + _REST
        self.waiting.discard(node.at)
        if self.bell is not None and not self.over and self.look(now):
            self.bell.ring()

    def look(self, now: float) -> bool:
        """Is it over?"""
        answers, waiting = self.answers, self.waiting
        if self._resting and are_few(answers, len(waiting)):  # without them there is no majority
            resting, self._resting = self._resting, []
            self._ask(resting, now)
        if not waiting or now >= self.ends or self.question.enough(answers):
            self.over = True
        elif not are_few(answers):
            self.over = now >= self.late or all(now < self.nodes[at].slow_until for at in waiting)
        return self.over

    def is_late(self, now: float) -> None:
        """Those who have not answered by now are not waited for next time."""
        for at in self.waiting:
            self.nodes[at].slow_until = now + _REST


class Asked:
    """The answer that one node owes to one question, to be told as a future would be: by a connection that all tasks share."""

    __slots__ = ("node", "round")

    def __init__(self, node: Node, of: Round) -> None:
        self.node = node
        self.round = of

    def done(self) -> bool:
        return False  # also what nobody waits for any more says how the node is

    def set_result(self, reply: Reply) -> None:
        self.round.answered(self.node, reply)

    def set_exception(self, error: HoldfastError) -> None:
        self.round.failed(self.node, error)


class Fan(ABC):
    """Asks all nodes at once. A majority is waited for `within` seconds at most, the others `share`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._closed = False
        self._reached = False
        self._last: tuple[Sequence[Node], Sequence[Reply]] = (), ()

    @property
    def reached(self) -> bool:
        """Any of the nodes, ever: see Store."""
        return self._reached

    @property
    def trouble(self) -> list[HoldfastError | None]:
        """Of those who did not answer the last question."""
        return [node.trouble if answer is None else None for node, answer in zip(*self._last, strict=True)]

    async def _over(self, asked: Round, step: Callable[[float], object] | None = None) -> list[Reply]:
        """When it is, what was answered. `step`: where answers do not come in by themselves, hears some, or waits so long."""
        now, bell = asked.asked, asked.bell
        try:
            while not asked.over:
                until = asked.late if now < asked.late else asked.ends
                if step is not None:
                    step(until - now)
                elif bell is not None:
                    await bell.wait(until - now)
                now = self._now()
                if not asked.over:
                    asked.look(now)
        finally:
            asked.over = True
            if now >= asked.late:
                asked.is_late(now)
        self._last = asked.nodes, asked.answers
        return asked.answers

    @abstractmethod
    def ask(self, question: Question, share: float, within: float) -> Coroutine[Any, Any, list[Reply]]:
        """Of who leaves, later answers are put into the list as well."""

    @abstractmethod
    def ask_apart(self, question: Question, share: float, within: float) -> Coroutine[Any, Any, list[Reply]]:
        """On connections that user work cannot keep busy."""

    @abstractmethod
    async def settle(self, within: float = 0.0) -> None:
        """Read what has come late, and wait so long for what is still wanted."""

    @abstractmethod
    def forked(self) -> None: ...

    async def close(self) -> None:
        self._closed = True
        # A connection that is closed with answers unread is reset, and a node may never read what it was sent last.
        try:
            await self.settle(LAST)
        finally:
            await self._drop()

    @abstractmethod
    async def _drop(self) -> None:
        """All connections."""


# ---- what may be answered


def _numbers(reply: Reply, *kinds: int) -> bool:
    """A list of whole numbers, of which the first says how many there are."""
    return type(reply) is list and reply[0] in kinds and list(map(type, reply)) == [int] * (3 if reply[0] == 0 else 2)


def of_claim(token: int) -> Fits:
    return lambda reply: reply == token if type(reply) is int else _numbers(reply, 0, 1, 2)


def of_release(reply: Reply) -> bool:
    return type(reply) is int and reply in (0, 1)


def of_eviction(reply: Reply) -> bool:
    return of_release(reply) or _numbers(reply, 2)


def of_renewal(count: int) -> Fits:
    return lambda reply: type(reply) is bytes and len(reply) == count and not reply.strip(b"01")


def of_loading(reply: Reply) -> bool:
    return type(reply) is bytes


def of_scan(reply: Reply) -> bool:
    return is_scanned(reply)


def of_inspection(reply: Reply) -> bool:
    mark, inside, waiting, evicted = reply
    return (
        type(mark) is int
        and all(_like(one, bytes, int, int, int, int, bytes, int, bytes, int) and _slots(one[7]) for one in inside)
        and all(_like(one, bytes, bytes, int, int, int, int) for one in waiting)
        and (evicted == [] or _like(evicted, bytes, int, int, bytes, int))
    )


def _like(values: Reply, *types: type) -> bool:
    return type(values) is list and list(map(type, values)) == list(types)


def _slots(text: bytes) -> bool:
    return all(slot.isdigit() for slot in text.split())
