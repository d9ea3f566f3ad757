"""One connection that all tasks of a loop share: while one conversation is under way, the next ones gather.

What has gathered is asked together, as one statement and one transaction, so many claims wait for the disk once. Within
it names are taken in the order of their bytes, as everywhere, so that no two transactions wait for each other.

Everybody waits until a deadline of their own. When all who are in a conversation have given it up, the connection is closed,
so that those behind them need not wait for it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from psycopg import pq

from ...drivers.aio import LoopBell
from ...drivers.base import boot_time
from ...drivers.loops import ends_with_this_loop
from ...drivers.sockets import has_failed
from ...errors import Unavailable
from ..kit.doubts import MOMENT
from .connection import ASK_AFTER, FEW, Broken, LibpqConnection
from .replies import ServerError
from .statements import Params, Row, Statement
from .wires import Doubted, Heard, Kinds, Rung, WatchersBell

AT_ONCE = 128  # so that the first of a batch does not wait long for the last
NEVER = float("inf")


class Asked(NamedTuple):
    what: Statement | str
    params: Params
    answer: asyncio.Future[list[Row]]
    since: float
    deadline: float


class Lane(LibpqConnection):
    """Lives in one loop. A task that is cancelled leaves its answer behind; the conversation goes on to its end."""

    shares: ClassVar[bool] = True
    patient = False  # a conversation that everybody has given up ends the connection

    def __init__(self, pgconn: pq.abc.PGconn, where: str) -> None:
        super().__init__(pgconn, where)
        self.loop = asyncio.get_running_loop()
        self.open = True
        self.sent = NEVER  # when the conversation that is under way began
        self._waiting: list[Asked] = []
        self._flight: list[Asked] = []
        self._found: list[Any] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = NEVER
        self._writing = False
        self._number = -1
        self._heard_at = 0.0  # a part of an answer
        self._looking: asyncio.TimerHandle | None = None
        self._doubting: asyncio.Task[None] | None = None
        self._unasked = 0  # how often something came, since it was asked anything
        self._told_once = False  # of a reset, with what came before it: see sockets.py

    def start(self) -> None:
        self._number = self.fileno()  # libpq forgets it when the connection breaks, but the loop has to
        self.loop.add_reader(self._number, self._something_came)
        self._told_once = not isinstance(self.loop, asyncio.SelectorEventLoop)
        if (
            type(self) is Lane
        ):  # a session's is a lock that is held, and ends with that; an ear is closed by the next who needs one
            ends_with_this_loop(self, Lane.close)

    def _something_came(self) -> None:
        """libpq sees a reset only when it has read what came before."""
        if self.open:
            self._readable()
        if self.open and self._told_once and has_failed(self._number):
            self.loop.call_soon(self._something_came)

    async def until_ready(self, what: int, deadline: float) -> bool:
        """While it is connecting."""
        ready: asyncio.Future[bool] = self.loop.create_future()
        number = self.fileno()
        add = self.loop.add_reader if what == select.POLLIN else self.loop.add_writer
        add(number, _tell, ready, True)
        timer = self.loop.call_later(max(0.0, deadline - boot_time()), _tell, ready, False)
        try:
            return await ready
        finally:
            timer.cancel()
            self.loop.remove_reader(number)
            self.loop.remove_writer(number)

    def is_stale(self) -> bool:
        return not self.open or asyncio.get_running_loop() is not self.loop

    def is_idle(self) -> bool:
        return self.sent == NEVER and not self.is_stale()

    def ask(self, statement: Statement, params: Params, deadline: float) -> asyncio.Future[list[Row]]:
        return self._add(statement, params, deadline)

    def tell(self, sql: str, deadline: float) -> asyncio.Future[list[Row]]:
        return self._add(sql, (), deadline)

    def _add(self, what: Statement | str, params: Params, deadline: float) -> asyncio.Future[list[Row]]:
        future: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        if self.is_stale():
            future.set_exception(self.broken(Exception("it was closed")))
            return future
        self._waiting.append(Asked(what, params, future, boot_time(), deadline))
        if deadline < self._alarm_at:
            self._wake_at(deadline)
        if not self._flight:
            self._next()
        return future

    def _next(self) -> None:
        """Send what has gathered. Leaving first: it may be what others wait for.

        A claim cannot be overtaken by its own release: that is asked only when the claim was answered, or given up by its
        task; and one that was given up is either dropped here, or on its way already.
        """
        asked = [one for one in self._waiting if not one.answer.done()]
        self._waiting = []
        if not asked:
            return
        leaving = [one for one in asked if isinstance(one.what, Statement) and one.what.name == b"holdfast_release"]
        what = (leaving or asked)[0].what
        together = isinstance(what, Statement) and what.many is not None
        batch = [one for one in asked if one.what is what][:AT_ONCE] if together else asked[:1]
        taken = {id(one) for one in batch}
        self._waiting = [one for one in asked if id(one) not in taken]
        if len(batch) > 1:
            batch.sort(key=lambda one: one.params[0])
        self._flight = batch
        self._found = []
        self._unasked = 0
        self.sent = boot_time()
        if self._looking is None and self.doubted is not None:
            self._looking = self.loop.call_later(MOMENT, self._look)
        try:
            sent = self.say(what) if isinstance(what, str) else self.send(what, [one.params for one in batch])
            if not sent:
                self._flush()
        except Unavailable as error:
            self.fail(error)

    def _flush(self) -> None:
        done = self.flushed()
        if done and self._writing:
            self.loop.remove_writer(self._number)
        elif not done and not self._writing:
            self.loop.add_writer(self._number, self._writable)
        self._writing = not done

    def _writable(self) -> None:
        try:
            self._flush()
        except Unavailable as error:
            self.fail(error)

    def _readable(self) -> None:
        refused: ServerError | None = None
        try:
            rows = self.rows(self._found, take=True)
            if self._writing:
                self._flush()
        except Unavailable as error:
            self.fail(error)
            return
        except ServerError as error:
            rows, refused = [], error
        if rows is None:
            self._heard_at = boot_time()
            return  # the rest is to come
        if not self._flight:  # it was unasked: a notice, or a farewell, which the next read will find
            self.turn_deaf()
            self._unasked += not self.listens
            if self._unasked > FEW:
                self.fail(self._endless())
            return
        try:
            flight = self._flight
            each = [rows] * len(flight) if refused or len(flight) == 1 else [[row] for row in rows]
            for one, its_rows in zip(flight, each, strict=True):
                if not one.answer.done():
                    if refused is None:
                        one.answer.set_result(its_rows)
                    else:
                        one.answer.set_exception(refused)
            self._flight, self.sent = [], NEVER  # now: interrupted before, those who were not told are told so
            if self._waiting:
                self._next()
        except BaseException:
            # By a signal handler that raises. That the loop goes on after that, to end what there is in it, is the rule.
            self.fail(self.broken(Exception("an answer was interrupted")))
            raise

    # ---- it may be to blame for its silence

    def _look(self) -> None:
        """One timer for all conversations: it looks from time to time how long this one has been silent."""
        self._looking = None
        if not self.open or not self._flight:
            return
        quiet = boot_time() - max(self.sent, self._heard_at)
        doubted = None if self.doubted is None else self.doubted()
        if quiet > MOMENT - 0.01 and self._doubting is None and doubted is not None:
            # Not by the loop's task factory: an eager one would run here.
            self._doubting = asyncio.Task(self._find_out(doubted), loop=self.loop, name="holdfast-doubt")
            self._doubting._log_destroy_pending = False  # type: ignore[attr-defined]
        self._looking = self.loop.call_later(max(MOMENT - quiet, 0.1), self._look)

    async def _find_out(self, doubted: Doubted) -> None:
        try:
            await doubted(self, MOMENT)
        except Broken as error:
            self.take_back()
            self.fail(error)
        finally:
            self._doubting = None

    async def speaks(self, within: float) -> bool:
        """Or ends: then nobody has to be told so."""
        said = self.sent, self._heard_at
        await asyncio.sleep(within)
        return not self.open or said != (self.sent, self._heard_at)

    # ---- those whose time is over

    def _wake_at(self, when: float) -> None:
        self._calm()
        if when < NEVER:
            self._alarm_at = when
            self._alarm = self.loop.call_later(when - boot_time(), self._late)

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, NEVER

    def _late(self) -> None:
        now = boot_time()
        self._calm()
        for one in (*self._flight, *self._waiting):
            if one.deadline <= now and not one.answer.done():
                one.answer.set_exception(self.late(one.deadline - one.since))
                one.answer.exception()  # looked at: whoever was cancelled meanwhile will not
        self._waiting = [one for one in self._waiting if not one.answer.done()]
        if self._flight and not self.patient and all(one.deadline <= now for one in self._flight):
            self.take_back()
            self.fail(self.broken(Exception("it did not answer in time")))
            return
        self._wake_at(
            min((one.deadline for one in (*self._flight, *self._waiting) if one.deadline > now), default=NEVER)
        )

    # ---- the end

    @property
    def stranded(self) -> bool:  # type: ignore[override]
        return self.loop.is_closed()

    @property
    def unread(self) -> bool:  # type: ignore[override]
        return not self.loop.is_running()

    def hang_up(self) -> None:
        """Nobody but the loop reads it, and who closes it tells the loop."""

    def fail(self, error: Unavailable) -> None:
        """Everybody who waits for an answer is told, and the connection closed."""
        if not self.open:
            return
        self.open = False
        self._calm()
        if self._looking is not None:
            self._looking.cancel()
        if self._number >= 0:
            self.loop.remove_reader(self._number)
            if self._writing:
                self.loop.remove_writer(self._number)
        super().close()
        asked = [*self._flight, *self._waiting]
        self._flight, self._waiting = [], []
        for one in asked:
            if not one.answer.done():
                one.answer.set_exception(Broken(str(error)))
                one.answer.exception()

    def close(self) -> None:
        """Also from another loop, or after its own has been closed."""
        if asyncio._get_running_loop() is self.loop:
            self.fail(Unavailable("closed"))
        elif self.loop.is_closed():
            self.open = False
            super().close()
        else:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self.loop.call_soon_threadsafe(self.fail, Unavailable("closed"))

    def disown(self) -> None:
        """In a forked child, where the loop is the parent's: do not touch it."""
        self.open = False
        super().disown()


class LaneBell(LoopBell):
    __slots__ = ()

    def disown(self) -> None:
        """In a forked child: there is nothing of it."""


class EarLane(Lane):
    """Listens. In silence it is asked whether it is still there."""

    _heard: Heard | None = None
    _lost: Callable[[Any], None]
    _asking: asyncio.TimerHandle | None = None

    def attend(self, heard: Heard, lost: Callable[[Any], None]) -> None:
        self._heard, self._lost = heard, lost
        if self.open:
            self._ask_later()
        else:
            lost(self)  # it has ended in the meantime

    def read(self, mine: Rung, deadline: float) -> None:
        """The loop does."""

    def _ask_later(self) -> None:
        self._asking = self.loop.call_later(ASK_AFTER, self._ask)

    def _ask(self) -> None:
        if self.open:
            self.tell("", boot_time() + ASK_AFTER).add_done_callback(_seen)
            self._ask_later()

    def _readable(self) -> None:
        super()._readable()
        if self.open and self._heard is not None:
            for bell in self.bells():
                self._heard(*bell)

    def fail(self, error: Unavailable) -> None:
        if self._asking is not None:
            self._asking.cancel()
        was_open = self.open
        super().fail(error)
        if was_open and self._heard is not None:
            self._lost(self)


class WatchedLane(Lane):
    """Tells of its end. An answer that comes late is trouble, and no reason to end it: a lock lives with it."""

    patient = True

    def __init__(self, pgconn: pq.abc.PGconn, where: str) -> None:
        super().__init__(pgconn, where)
        self.most_pieces = FEW
        self.ended: Callable[[], None] = lambda: None

    @staticmethod
    def watching(connections: object) -> WatchersBell:
        return LaneBell()

    def post(self, statement: Statement, params: Params, then: Callable[[Any], object]) -> asyncio.Future[list[Row]]:
        """Ask, and go on."""
        answer = self.ask(statement, params, NEVER)
        answer.add_done_callback(_seen)
        answer.add_done_callback(then)
        return answer

    def bell(self, answer: asyncio.Future[list[Row]]) -> WatchersBell:
        bell = LaneBell()
        answer.add_done_callback(lambda _: bell.ring())
        return bell

    def look(self) -> None:
        """The loop does."""

    def fail(self, error: Unavailable) -> None:
        was_open = self.open
        super().fail(error)
        if was_open:
            self.ended()


KINDS = Kinds(Lane, EarLane, WatchedLane)


def _seen(answer: asyncio.Future[list[Row]]) -> None:
    """Else the loop would complain of an error that nobody has looked at."""
    if not answer.cancelled():
        answer.exception()


def _tell(ready: asyncio.Future[bool], what: bool) -> None:
    if not ready.done():
        ready.set_result(what)
