"""The sessions of one store, and the thread that keeps house.

A session has one timeout, and a dead holder blocks the others for that long: so there is a session for every ttl in use,
give or take half of it. kazoo keeps a session alive by itself, for as long as the process lives. That is too long for a
claim that nobody renews, so the housekeeper takes away what is overdue. It is a plain thread for asyncio too: an event
loop may end, or be busy, and nothing may be held because of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren

from ...drivers.base import Driver
from ...drivers.starting import start
from ...errors import Unavailable
from .records import Record
from .session import MARGIN, Batch, Session
from .url import Target

STEPS = (1.5, 2, 3, 4, 6, 8, 12, 16, 20, 30, 40, 60, 80, 120, 180, 240, 360, 480, 720, 960, 1440)
IDLE = 60.0  # a session that was of no use for so long is closed
_LONGEST = 30 * 86400 * MARGIN
_AGAIN = 0.2
REDIAL = 0.02  # a connection that broke is soon replaced, by one to another member


def step(ttl: float) -> float:
    """The session timeout to ask for."""
    wanted = ttl * MARGIN
    for seconds in STEPS:
        if wanted <= seconds:
            return seconds
    seconds = STEPS[-1] * 2.0
    while seconds < wanted:
        seconds *= 2
    return min(seconds, _LONGEST)


class Sessions:
    def __init__(self, target: Target, driver: Driver, parent: Callable[[str], str]) -> None:
        self._target = target
        self._driver = driver
        self._parent = parent
        self.forked()

    def forked(self) -> None:
        """Start afresh. What was inherited is dropped as it is: its threads are the parent's, and so is its session."""
        self.records: dict[str, Record] = {}
        self._open: dict[float, Session] = {}
        # Entered by itself: a condition's own `with` is Python, and a signal handler that raises there leaves it locked for ever.
        self._mutex = threading.RLock()
        self._condition = threading.Condition(self._mutex)
        self._sweeping = threading.RLock()  # a record is either extended or taken away, never both
        self._housekeeper: threading.Thread | None = None
        self._wake_at = float("inf")
        self._closed = False
        self.reached = False  # see Store

    async def of(self, ttl: float, give_up: float) -> Session:
        return await self._opened(step(ttl), give_up)

    async def any(self, give_up: float) -> Session:
        """Whichever is there, for somebody who only looks."""
        connected = [seconds for seconds, session in list(self._open.items()) if session.suspended is None]
        return await self._opened(connected[0] if connected else 12.0, give_up)

    async def _opened(self, seconds: float, give_up: float) -> Session:
        with self._mutex:  # under one lock with the end of those that are of no use: nobody gets one that is ending
            session = self._open.get(seconds)
            if new := session is None or session.dead:
                if self._closed:
                    raise Unavailable("this connection to ZooKeeper was closed")
                if session is not None:
                    _in_background(session.end)
                session = self._open[seconds] = Session(self._target, seconds, self._driver)
            session.used = self._driver.now()
        if new:
            self._mind(self._driver.now() + IDLE)
        if session.id is None:
            await session.opened(give_up)
        self.reached = True
        return session

    def add(self, record: Record, until: float) -> None:
        """Known from now on, and not overdue for a moment: the housekeeper would forget it before it was sent."""
        record.until = until
        with self._sweeping:
            self.records[record.claim.holder] = record
        self._remind(record)

    def forget(self, record: Record) -> None:
        record.unwatch()
        with self._sweeping:
            if self.records.get(record.claim.holder) is record:
                del self.records[record.claim.holder]

    def extend(self, record: Record, until: float) -> bool:
        """False: it is being taken away, and nobody may count on it any more."""
        with self._sweeping:
            if record.leaving:
                return False
            record.until = until
        self._remind(record)
        return True

    def send(self, record: Record, requests: Sequence[Any]) -> Batch | None:
        """What may make a node. None: it is being taken away, or somebody else has asked for one; in one step with that. What
        is sent before is found and deleted."""
        with self._sweeping:
            if record.leaving or record.asked:
                return None
            record.asked = True
            return record.session.send(requests, self._driver.bell())

    def leave(self, record: Record, retry_at: float) -> None:
        """Its owner takes it away now; the housekeeper does, if it is still there at `retry_at`."""
        with self._sweeping:
            record.leaving = True
            record.until, record.retry_at = self._driver.now(), retry_at
        self._remind(record)

    async def remove(self, record: Record, give_up: float) -> bool:
        """Take its node away, over as many connections as it takes. The housekeeper goes on trying after `give_up`."""
        session = record.session
        self.leave(record, give_up)
        unanswered = False
        while not session.dead:
            try:
                there = await self._delete(record, give_up)
            except Unavailable:
                unanswered = True
                left = give_up - self._driver.now()
                if session.dead:
                    break
                if left <= 0:
                    raise
                await self._driver.sleep(min(REDIAL, left))
            else:
                self.forget(record)
                return there or unanswered  # a node that is gone, after a deletion that was not answered, was there
        self.forget(record)  # its nodes went with the session
        return False

    async def _delete(self, record: Record, give_up: float) -> bool:
        session = record.session
        paths = [record.path] if record.path else []
        if not paths and record.asked:
            parent = self._parent(record.claim.name)
            session.tell(session.barrier)
            (children,) = await session.ask([GetChildren(parent, None)], give_up)
            if not isinstance(children, Exception):
                paths = [f"{parent}/{child}" for child in children if child.startswith(record.tag)]
        if not paths:
            return False
        gone = await session.ask([Delete(path, -1) for path in [*paths, *record.extras]], give_up)
        return gone[0] is True

    def _remind(self, record: Record) -> None:
        record.session.used = self._driver.now()
        when = max(record.until, record.retry_at)
        if when < self._wake_at:
            self._mind(when)

    def wake_waiters(self) -> None:
        for record in list(self.records.values()):
            record.bell.ring()

    async def close(self, within: float) -> None:
        """All sessions at once; one whose server is silent ends in the background."""
        with self._mutex:
            self._closed = True
            sessions = list(self._open.values())
            self._condition.notify()
        ends = []
        for session in sessions:
            keep = any(one.session is session and one.lingers for one in list(self.records.values()))
            ends.append(self._driver.bell())
            _in_background(_ended, session, keep, ends[-1])
        give_up = self._driver.now() + within
        for end in ends:
            await end.wait(max(0.0, give_up - self._driver.now()))

    # ---- the housekeeper

    def _mind(self, when: float) -> None:
        with self._mutex:
            self._wake_at = min(when, self._wake_at)
            if self._housekeeper is None and not self._closed:
                self._housekeeper = start(self._run, "holdfast-zookeeper")
            else:
                self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._mutex:
                if self._housekeeper is not threading.current_thread():  # its start was interrupted
                    return
                if not self._closed:
                    self._condition.wait(max(0.0, min(self._wake_at - self._driver.now(), IDLE)))
                if self._closed or not (self._open or self.records):
                    self._housekeeper = None
                    return
                self._wake_at = float("inf")
            with suppress(Exception):  # nothing may end it: the next round tries again
                self._mind_sessions()
                self._sweep(list(self.records.values()))
            with self._mutex:
                soonest = min(
                    (max(one.until, one.retry_at) for one in list(self.records.values())), default=float("inf")
                )
                self._wake_at = min(self._wake_at, soonest, self._driver.now() + IDLE / 4)

    def _mind_sessions(self) -> None:
        with self._mutex:
            now = self._driver.now()
            busy = {id(record.session) for record in list(self.records.values())}
            for seconds, session in list(self._open.items()):
                gone = session.suspended
                if gone is not None and session.id is not None and now >= gone + session.seconds:
                    session.dead = session.dead or "it was disconnected for longer than its session lives"
                if session.dead or (id(session) not in busy and now >= session.used + IDLE):
                    del self._open[seconds]
                    _in_background(session.end)

    def _sweep(self, records: Iterable[Record]) -> None:
        now = self._driver.now()
        for record in records:
            if record.session.dead:
                self.forget(record)  # its nodes went with the session
                record.bell.ring()
                continue
            with self._sweeping:
                current = self.records.get(record.claim.holder) is record
                if current and now >= record.until and now >= record.retry_at:
                    record.leaving = True
                    record.retry_at = now + _AGAIN
                    self._take_away(record)

    def _take_away(self, record: Record) -> None:
        if record.path:
            for extra in record.extras:
                record.session.tell(Delete(extra, -1))
            record.session.client.call(Delete(record.path, -1), _Removed(self, record))
        else:
            parent = self._parent(record.claim.name)
            record.session.tell(record.session.barrier)
            record.session.client.call(GetChildren(parent, None), _Found(self, record, parent))


class _Removed:
    """Hears that a node is gone."""

    def __init__(self, sessions: Sessions, record: Record) -> None:
        self._sessions = sessions
        self._record = record

    def set(self, answer: Any = None) -> None:
        if answer is True or isinstance(answer, NoNodeError):
            self._sessions.forget(self._record)

    set_exception = set


class _Found:
    """Hears which nodes of a name there are, and takes away those of a claim whose answer we never got."""

    def __init__(self, sessions: Sessions, record: Record, parent: str) -> None:
        self._sessions = sessions
        self._record = record
        self._parent = parent

    def set(self, answer: Any = None) -> None:
        if isinstance(answer, NoNodeError):
            self._sessions.forget(self._record)
        elif isinstance(answer, list):
            found = [child for child in answer if child.startswith(self._record.tag)]
            for child in found:
                self._record.session.tell(Delete(f"{self._parent}/{child}", -1))
            if not found:
                self._sessions.forget(self._record)

    set_exception = set


def _ended(session: Session, keep: bool, done: Any) -> None:
    session.end(keep=keep)
    done.ring()


def _in_background(work: Callable[..., None], *args: Any) -> None:
    start(partial(work, *args), "holdfast-zookeeper-end")
