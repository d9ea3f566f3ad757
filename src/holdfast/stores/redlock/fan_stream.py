"""One question to all nodes at once, over the streams of whatever driver: for the simulator, and for drivers of one's own.

As with the fans for threads and for asyncio, all that is asked of a node goes over one connection, in its order: what comes late
is still read, and a release never overtakes the claim that it is about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from ...claim import ROUND
from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Unavailable
from ..redis.connection import Disconnected
from ..redis.replies import MOST, Reply
from ..redis.stream_wire import Session, StreamWire
from ..redis.url import Target
from .answers import Question, are_few
from .node import LAST, REST

_FOREVER = float("inf")
_MOST_OWED = 64  # a node that owes more, or for longer than a round, is taken for dead: its connection is dropped


class _Slot:
    """Where an answer is put."""

    __slots__ = ("answer", "asked", "bell")

    def __init__(self, bell: Bell, asked: float) -> None:
        self.bell = bell
        self.asked = asked
        self.answer: Reply | HoldfastError | None = None


class Pipe:
    """The connection to one node."""

    def __init__(self, target: Target, driver: Driver) -> None:
        self.where = target.shown()
        self.rests_until = 0.0  # it could not be reached a moment ago
        self.slow_until = 0.0  # others do not wait for it, if they can do without
        self._wire = StreamWire(target, driver)
        self._driver = driver
        self._session: Session | None = None
        self._dialling: list[Bell] | None = None  # who waits for the connection that somebody opens
        self._owed: deque[_Slot] = deque()

    @property
    def is_open(self) -> bool:
        return self._session is not None

    async def ask(self, request: bytes, deadline: float) -> Reply:
        now = self._driver.now()
        if self._owed and (len(self._owed) > _MOST_OWED or now - self._owed[0].asked > ROUND):
            self.drop(Disconnected(f"Redis at {self.where} does not answer any more"))
        session = self._session or await self._opened(deadline)
        slot = _Slot(self._driver.bell(), now)
        self._owed.append(slot)
        with session.translated():
            await session.stream.send(request, deadline)
        while slot.answer is None and (left := deadline - self._driver.now()) > 0:
            await slot.bell.wait(left)
        if slot.answer is None:
            raise Unavailable(f"Redis at {self.where} did not answer in time")
        if isinstance(slot.answer, HoldfastError):
            raise slot.answer
        return slot.answer

    async def _opened(self, deadline: float) -> Session:
        while self._session is None:
            if self._dialling is None:
                self._dialling = []
                try:
                    self._session = session = await self._wire.dial(deadline)
                    self._driver.spawn(partial(self._read, session), "holdfast-node")
                finally:
                    waiting, self._dialling = self._dialling, None
                    for one in waiting:
                        one.ring()
            else:
                bell = self._driver.bell()
                self._dialling.append(bell)
                await bell.wait(max(deadline - self._driver.now(), 0.0))
                if self._driver.now() >= deadline:
                    raise Unavailable(f"cannot connect to Redis at {self.where} in time")
        return self._session

    async def _read(self, session: Session) -> None:
        try:
            while self._session is session:
                with session.translated():
                    reply = await session.next(_FOREVER, MOST)
                slot = self._owed.popleft()
                slot.answer = reply
                slot.bell.ring()
        except (HoldfastError, IndexError) as error:  # IndexError: it said what nobody had asked for
            if self._session is session:
                self.drop(Disconnected(f"lost the connection to Redis at {self.where}: {error}"))

    def drop(self, why: HoldfastError) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.stream.close()
        owed, self._owed = self._owed, deque()
        for slot in owed:
            slot.answer = why
            slot.bell.ring()

    def forked(self) -> None:
        if self._session is not None:
            self._session.stream.disown()
        self._session, self._owed = None, deque()


class _Round:
    """A question, and what became of it so far."""

    def __init__(self, pipes: Sequence[Pipe], question: Question, driver: Driver) -> None:
        self.pipes = pipes
        self.question = question
        self.answers: list[Reply] = [None] * len(pipes)
        self.pending: set[int] = set()
        self.resting: list[int] = []
        self.over = self.overdue = False
        self.bell = driver.bell()


class StreamFan:
    def __init__(self, target: Target, driver: Driver) -> None:
        # What is late is still an answer, and a connection that is slow is kept: those who ask have deadlines of their own.
        patient = target._replace(kind="redis", timeout=max(target.timeout, ROUND))
        targets = [patient._replace(addresses=(address,)) for address in target.addresses]
        self._driver = driver
        self._pipes = [Pipe(one, driver) for one in targets]
        self._renewals = [Pipe(one, driver) for one in targets]
        self._leaving = 0  # answers that are still wanted, though nobody waits for them
        self.trouble: list[HoldfastError | None] = [None] * len(targets)

    async def ask(self, question: Question, share: float, within: float) -> list[Reply]:
        return await self._ask(_Round(self._pipes, question, self._driver), share, within)

    async def ask_apart(self, question: Question, share: float, within: float) -> list[Reply]:
        return await self._ask(_Round(self._renewals, question, self._driver), share, within)

    async def _ask(self, asked: _Round, share: float, within: float) -> list[Reply]:
        now = self._driver.now
        late, end = now() + share, now() + max(share, within)
        for index, pipe in enumerate(asked.pipes):
            if not pipe.is_open and not asked.question.leaving and now() < pipe.rests_until:
                asked.resting.append(index)
            else:
                self._begin(asked, index, end)
        self._wake_if_few(asked, end)
        try:
            while asked.pending and not asked.over:
                left = (end if asked.overdue else late) - now()
                if left > 0:
                    await asked.bell.wait(left)
                elif asked.overdue:
                    break
                else:  # a majority is waited for, the rest only for its share of the time
                    asked.overdue = True
                    for index in asked.pending:
                        asked.pipes[index].slow_until = now() + REST
                    if not are_few(asked.answers):
                        break
        finally:
            asked.over = True
        return asked.answers

    def _begin(self, asked: _Round, index: int, end: float) -> None:
        asked.pending.add(index)
        self._leaving += asked.question.leaving
        self._driver.spawn(partial(self._one, asked, index, end), "holdfast-ask")

    async def _one(self, asked: _Round, index: int, end: float) -> None:
        pipe, question = asked.pipes[index], asked.question
        again = not pipe.is_open
        try:
            try:
                reply = await pipe.ask(question.request, end)
            except Disconnected:
                if again or asked.over:
                    raise
                again = True  # a healthy node hangs up, too: once more, on a new one
                reply = await pipe.ask(question.request, end)
                if question.leaving and reply == 0:
                    reply = 1  # not there any more: since the first one arrived, as far as anybody can tell
            if question.leaving or not asked.over:
                asked.answers[index] = answer = question.understood(reply, pipe.where)
                self.trouble[index] = answer if isinstance(answer, HoldfastError) else None
        except HoldfastError as error:
            self.trouble[index] = error
            if not pipe.is_open:
                pipe.rests_until = self._driver.now() + REST
        finally:
            asked.pending.discard(index)
            self._leaving -= question.leaving
        if not asked.over:
            self._wake_if_few(asked, end)
            if question.enough(asked.answers) or not (are_few(asked.answers) or self._worth_waiting(asked)):
                asked.over = True
            asked.bell.ring()

    def _worth_waiting(self, asked: _Round) -> bool:
        now = self._driver.now()
        return not asked.overdue and any(now >= asked.pipes[at].slow_until for at in asked.pending)

    def _wake_if_few(self, asked: _Round, end: float) -> None:
        """Without those who rest, there may be no majority."""
        if asked.resting and are_few(asked.answers, len(asked.pending)):
            some, asked.resting = asked.resting, []
            for index in some:
                self._begin(asked, index, end)

    async def settle(self) -> None:
        """Nothing to do: whatever comes is read in the background."""

    def forked(self) -> None:
        for pipe in (*self._pipes, *self._renewals):
            pipe.forked()
        self._leaving = 0

    async def close(self) -> None:
        end = self._driver.now() + LAST
        while self._leaving and self._driver.now() < end:
            await self._driver.sleep(LAST / 10)
        for pipe in (*self._pipes, *self._renewals):
            pipe.drop(Unavailable(f"the connection to Redis at {pipe.where} was closed"))
            await pipe._wire.close()
