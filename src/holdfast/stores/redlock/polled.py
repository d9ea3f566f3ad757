"""How a thread asks all nodes at once: it sends to all, then reads whoever answers.

A reply that nobody waited for is owed: it is read before the connection's next one. So a slow node holds nobody up, and what
it says late is never taken for the answer to another question.

A connection that is silent may be to blame for that, and not its node: see ../kit/doubts.py. A firewall that forgets forgets the
connections to all nodes at once. While a majority is waited for, those who are silent are asked on new ones; and a connection on
which nothing came for long is not used again.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from ...claim import ROUND
from ...drivers.polling import poll
from ...errors import HoldfastError, Misuse, Unavailable
from ..kit.doubts import ANSWER, GRACE, MOMENT, REST
from ..redis.connection import ANYBODY, Connection, Disconnected, Talk, stuck, together
from ..redis.replies import Reply, is_missing_script
from ..redis.url import Target
from .fan import LAST, Fan, Node, Question, Round

_MOST_OWED = 64  # a node that owes more is taken for dead: its connection is dropped
_NEVER = float("inf")
_LOOK = 0.1  # seconds at most between two looks at who is silent
_FRESH = 0.1  # a connection that lay longer may have been closed by the node meanwhile: look before use


class PolledNode(Node):
    """Its connection is used by one thread at a time."""

    def __init__(self, target: Target, at: int, now: Callable[[], float], group: Group) -> None:
        super().__init__(at, target.shown(), now)
        self._target = target
        self._group = group
        self._patience = max(target.timeout, ROUND)  # what is late is still an answer
        self._used = 0.0
        self.heard = 0.0  # when it said something last
        self.connection: Connection | None = None
        self.owed: deque[Round] = deque()

    @property
    def is_connected(self) -> bool:
        return self.connection is not None

    def ask(self, asked: Round, now: float) -> None:
        connection = self.connection
        try:
            if connection is None or now - self._used > _FRESH or self._is_mute(now):
                connection = self._good(asked.ends - now)
        except HoldfastError as error:
            asked.failed(self, error)
            return
        self._used = now
        self.owed.append(asked)
        try:
            connection.send(asked.question.request)
            if not connection.quick:
                self._group.poll = None  # it is new, or its buffers are full
        except HoldfastError as error:
            self.fail(error)

    def _good(self, within: float) -> Connection:
        if self.connection is not None:
            self.step()  # and sees whether the node has hung up
        if self._is_mute(self.now()):
            self.fail(Disconnected(f"Redis at {self.where} does not answer any more"))
        if self.connection is None:
            deadline = time.monotonic() + within
            first = self._target.addresses[0]
            self.connection = Connection(self._target, first, deadline=deadline, opened=self._group.opened)
        return self.connection

    def step(self) -> None:
        """Take what has come. Whatever a node says that it does not owe, nobody asked for."""
        connection, owed = self.connection, self.owed
        if connection is None:
            return
        try:
            reply = connection.hear()
            if reply is not False:
                self.heard = self.now()
            while reply is not False:
                owed.popleft().answered(self, reply)
                reply = connection.next() if owed else False
        except HoldfastError as error:
            self.fail(error)
        except IndexError:
            self.fail(Disconnected(f"Redis at {self.where} said something unasked"))
        else:
            if not connection.quick and not owed:
                connection.quick = connection.is_plain  # all that was sent has arrived, and all that came was read

    def _is_mute(self, now: float) -> bool:
        owed = self.owed
        return len(owed) > _MOST_OWED or (bool(owed) and now > owed[0].asked + self._patience)

    def is_silent(self, now: float) -> bool:
        """For a moment, on a connection on which it was heard before: another may do better."""
        if self.connection is None or not self.connection.greeted or not self.owed:
            return False
        return now >= max(self.heard, self.owed[0].asked) + MOMENT

    def another(self, within: float) -> Talk:
        """A question to it on a new connection."""
        deadline = time.monotonic() + within
        return Talk(Connection(self._target, self._target.addresses[0], deadline=deadline), (ANYBODY,))

    def replace(self, another: Connection) -> None:
        """What it owes is asked there, by whoever still wants it."""
        owed = self.owed
        if self.connection is not None:
            self.connection.give_up()
        self.heard = self.now()
        self.connection, self.owed, self._group.poll = another, deque(), None
        for asked in owed:
            asked.failed(self, stuck(self.where))

    def owes_claim(self, holder: str) -> bool:
        return any(one.question.holder == holder and not one.question.leaving for one in tuple(self.owed))

    @property
    def owes(self) -> bool:
        """An answer that somebody still wants."""
        return any(asked.is_wanted for asked in self.owed)

    def hurry(self) -> float:
        """In how many seconds the next address of its host is to be tried: if that is now, it is."""
        try:
            return self.connection.hurry() - time.monotonic() if self.connection is not None else _NEVER
        except HoldfastError as error:
            self.fail(error)
            return _NEVER

    def give_up(self) -> None:
        """Its share of the time is over. What it was asked it may still do, and what follows goes there: if there is a way."""
        if self.connection is not None and not self.connection.is_open:
            self.fail(Unavailable(f"cannot connect to Redis at {self.where} in time"))

    def fail(self, error: HoldfastError) -> None:
        owed = self.owed
        if self.connection is not None:
            self.connection.give_up()
        self.drop()
        for asked in owed:
            asked.failed(self, error)

    def drop(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection, self.owed, self._group.poll = None, deque(), None


class Group(list[PolledNode]):
    """All nodes, by connections that one thread uses at a time."""

    def __init__(
        self, targets: Sequence[Target], now: Callable[[], float], opened: Callable[[], object] = bool
    ) -> None:
        """`opened` is called when something may have been sent to one of them."""
        self.opened = opened
        super().__init__(PolledNode(target, at, now, self) for at, target in enumerate(targets))
        self.poll: Any = None  # of all connections, if it can be used again
        self._by_descriptor: dict[int, PolledNode] = {}

    def step(self, within: float) -> bool:
        """Whoever has something to say is heard; False: nobody had, by then."""
        if self.poll is None:  # some are being opened
            within = min([within, *(node.hurry() for node in self)])
        ready = (self.poll or self._set_up()).poll(max(0.0, within) * 1000)
        for descriptor, _ in ready:
            self._by_descriptor[descriptor].step()
        return bool(ready)

    def _set_up(self) -> Any:
        found = poll()
        connected = {node.connection: node for node in self if node.connection is not None}
        self._by_descriptor = {connection.fileno(): node for connection, node in connected.items()}
        for connection in connected:
            found.register(connection.fileno(), connection.wants)
        if all(
            connection.quick for connection in connected
        ):  # those that are being opened want something else each time
            self.poll = found
        return found

    def owing(self, holder: str) -> list[int]:
        """Nodes that have not answered a claim here: it may still be on its way there."""
        return [node.at for node in self if node.owes_claim(holder)]

    def settle(self, within: float) -> None:
        """Wait for what is owed and still wanted."""
        now = self[0].now
        deadline = now() + within
        while any(node.owes for node in self) and self.step(deadline - now()):
            pass

    def give_up(self) -> None:
        for node in self:
            if node.connection is not None:
                node.connection.give_up()
        self.drop()

    def drop(self) -> None:
        for node in self:
            node.drop()


class PolledFan(Fan):
    """Groups for as many threads as ask at once, and one for renewals."""

    def __init__(self, target: Target, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._targets = [target._replace(kind="redis", addresses=(address,)) for address in target.addresses]
        # Of each node: it was asked on another connection a moment ago; and that was of use, so all may ask.
        self._rest_until, self._well_until = [0.0] * len(self._targets), [0.0] * len(self._targets)
        self._idle: list[Group] = []
        self._busy: WeakValueDictionary[int, Group] = WeakValueDictionary()  # those that threads use just now
        self._renewing: Group | None = None

    async def ask(self, question: Question, share: float, within: float) -> list[Reply]:
        group = self._taken(question)
        if question.overtaken is not None:
            question.overtaken.update(self._overtaken(question, group))
        self._busy[id(group)] = group
        try:
            answers = await self._lent(group, question, share, within)
            if self._closed:
                self._settle(group, LAST)
            else:
                self._idle.append(group)
        finally:
            self._busy.pop(id(group), None)
        return answers

    def _taken(self, question: Question) -> Group:
        """Who leaves follows its claim, if a node has not answered that."""
        for group in self._idle.copy() if question.leaving else ():
            if group.owing(question.holder):
                with contextlib.suppress(ValueError):  # lent meanwhile
                    self._idle.remove(group)
                    return group
        try:
            return self._idle.pop()
        except IndexError:
            pass
        return self._open()

    def _overtaken(self, question: Question, group: Group) -> set[int]:
        """Nodes that its claim may reach after this, by a connection that another thread has."""
        others = [*self._idle.copy(), *self._busy.values()]
        return {at for one in others if one is not group for at in one.owing(question.holder)}

    async def ask_apart(self, question: Question, share: float, within: float) -> list[Reply]:
        group, self._renewing = self._renewing or self._open(), None
        answers = await self._lent(group, question, share, within)
        if self._closed:
            group.drop()
        else:
            self._renewing = group
        return answers

    async def _lent(self, group: Group, question: Question, share: float, within: float) -> list[Reply]:
        try:
            asked = Round(group, question, self._now(), share, within)
            answers = await self._over(asked, partial(self._hear, group, asked))
            if asked.waiting and self._now() >= asked.late:
                for at in tuple(asked.waiting):
                    group[at].give_up()
        except BaseException:
            group.give_up()
            raise
        return answers

    def _hear(self, group: Group, asked: Round, within: float) -> None:
        """Whoever has something to say, by then. Those who have said nothing for a moment are asked on other connections."""
        now = self._now()
        silent = []
        if now >= asked.asked + _LOOK:  # most have answered long before
            waiting = [group[at] for at in asked.waiting]
            silent = [one for one in waiting if one.is_silent(now) and self._may_ask(one.at, now)]
        if silent:
            self._find_out(group, asked, silent, min(within, ANSWER))
        else:
            group.step(min(within, _LOOK))

    def _may_ask(self, at: int, now: float) -> bool:
        return now < self._well_until[at] or now >= self._rest_until[at]

    def _find_out(self, group: Group, asked: Round, silent: Sequence[PolledNode], within: float) -> None:
        """Are they to blame, or their connections? Meanwhile the others are heard."""
        asking: dict[PolledNode, Talk] = {}
        deadline = self._now() + within
        try:
            for node in silent:
                self._rest_until[node.at] = self._now() + REST
                with contextlib.suppress(HoldfastError):
                    asking[node] = node.another(within)
            while asking and self._now() < deadline:
                together(list(asking.values()), 0.0, late=False)
                said = group.step(GRACE)
                if asked.look(self._now()):
                    return
                for node, talk in list(asking.items()):
                    if node.at in asked.waiting and not talk.is_over:
                        continue
                    if node.at in asked.waiting and talk.trouble is None and is_missing_script(talk.replies[0]):
                        if said:  # perhaps it: there may be more
                            continue
                        del asking[node]
                        self._well_until[node.at] = self._now() + REST
                        node.replace(talk.connection)
                    else:
                        self._well_until[node.at] = 0.0
                        asking.pop(node).connection.close()
        finally:
            for node, talk in asking.items():
                self._well_until[node.at] = 0.0
                talk.connection.close()

    def _open(self) -> Group:
        if self._closed:
            raise Misuse("this connection to a Redlock was closed")
        return Group(self._targets, self._now, self._opened)

    def _opened(self) -> None:
        self._reached = True

    async def settle(self, within: float = 0.0) -> None:
        deadline = self._now() + within
        for _ in range(len(self._idle)):
            try:
                group = self._idle.pop(0)  # at the other end: whoever asks takes the last
            except IndexError:
                return
            self._busy[id(group)] = group
            try:
                self._settle(group, deadline - self._now())
            finally:
                self._busy.pop(id(group), None)

    def _settle(self, group: Group, within: float) -> None:
        try:
            group.settle(within)
        except BaseException:
            group.drop()
            raise
        if self._closed:
            group.drop()
        else:
            self._idle.append(group)

    def forked(self) -> None:
        for group in (*self._idle, *([self._renewing] if self._renewing else [])):
            group.drop()  # this closes our descriptors only; not a byte is sent
        self._idle = []
        self._busy = WeakValueDictionary()
        self._renewing = None

    async def _drop(self) -> None:
        self.forked()
