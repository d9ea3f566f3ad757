"""A session: one lease of etcd that all claims of (about) one ttl share, and how long it is known to live.

Rule 1: it counts from before the question was sent.
Rule 2: a keep-alive alone proves nothing. etcd's leader answers it from its own memory, and one that was deposed without
        noticing (paused, cut off) answers as well. It counts only together with something that needs the quorum (a
        transaction, a linearizable read), was sent no earlier than the keep-alive, and was answered in the same term of
        office: then no other leader can have been elected before it, and a later one gives every lease its full time anew.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import TYPE_CHECKING, NamedTuple

from ...drivers.base import Driver
from ...errors import Unavailable
from ..kit.turns import Turns
from .replies import Garbled, Refused, read_lease
from .requests import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, lease_grant, lease_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .wire import Wire

LATE = 60  # seconds: so long after a claim was given up in mid-flight, it may yet land


class Asked(NamedTuple):
    """A keep-alive that was answered, but not yet confirmed."""

    at: float
    term: int


class Session:
    __slots__ = ("asked", "lease", "length", "live_until")

    def __init__(self, lease: int, length: float, sent: float) -> None:
        self.lease = lease
        self.length = length
        self.live_until = sent + length
        self.asked: Asked | None = None

    def covers(self, until: float) -> bool:
        """Will it live so long, if what was answered is confirmed?"""
        asked = self.asked
        return self.live_until >= until or (asked is not None and asked.at + self.length >= until)

    def kept(self, sent: float, term: int) -> None:
        self.asked = Asked(sent, term)

    def confirm(self, term: int, sent: float) -> None:
        """The quorum has answered what was sent then, in this term."""
        asked = self.asked
        if asked is None or sent < asked.at:
            return  # it was sent before the keep-alive, and says nothing of a later moment
        self.asked = None
        if asked.term == term:
            self.live_until = max(self.live_until, asked.at + self.length)


class Sessions:
    """Those of this process, by their length in seconds. One that is idle is forgotten: etcd ends it by itself."""

    def __init__(self, wire: Wire, driver: Driver) -> None:
        self._wire = wire
        self._driver = driver
        self._sessions: dict[int, Session] = {}
        self._late: Session | None = None
        self._opening = Turns(driver)

    def at_hand(self, ttl: float, this: Session | None = None) -> Session | None:
        """The one for this ttl (or `this`), if it lives long enough for a grant of now."""
        session = this or self._sessions.get(length_for(ttl))
        return session if session is not None and session.covers(self._driver.now() + ttl) else None

    async def fresh(self, ttl: float, deadline: float, this: Session | None = None) -> Session:
        """The same; kept alive, or opened, if there is none."""
        return self.at_hand(ttl, this) or await self._once(
            lambda: self.at_hand(ttl, this), lambda: self._renewed(length_for(ttl), deadline, this), deadline
        )

    async def _once(
        self, known: Callable[[], Session | None], had: Callable[[], Awaitable[Session]], deadline: float
    ) -> Session:
        """What many need at once is asked for by one of them, and then the others find it there."""
        while True:
            turn = self._opening.turn()
            try:
                came = await turn.come(deadline)
                session = known()
                if session is None and came:
                    session = await had()
                    self._opening.dismiss()
            finally:
                turn.over()
            if session is not None:
                return session
            if self._driver.now() >= deadline:
                raise Unavailable(f"etcd at {self._wire.where} did not answer in time: no lease could be had")

    async def _renewed(self, length: int, deadline: float, this: Session | None) -> Session:
        session = this or self._sessions.get(length)
        now = self._driver.now()
        if session is not None and session.live_until > now:
            if await self._keep(session, now, deadline):
                return session
            self.end(session)
        for idle in [one for one in self._sessions.values() if one.live_until <= now]:
            self.end(idle)
        session = self._sessions[length] = await self.open(length, deadline)
        return session

    async def open(self, seconds: int, deadline: float) -> Session:
        sent = self._driver.now()
        # A new id each time: one whose answer was lost ends by itself.
        lease = new_lease_id()
        granted = read_lease(await self._wire.ask(LEASE_GRANT, lease_grant(seconds, lease), deadline))
        if granted.lease != lease or granted.ttl < seconds:  # a key on no lease would never end
            raise Garbled("another lease was granted than was asked for")
        return Session(granted.lease, float(granted.ttl), sent)  # perhaps longer than asked for: etcd has a minimum

    async def _keep(self, session: Session, sent: float, deadline: float) -> bool:
        kept = read_lease(await self._wire.ask(LEASE_KEEP_ALIVE, lease_id(session.lease), deadline))
        if kept.ttl <= 0:
            return False
        session.kept(sent, kept.header.term)
        return True

    async def for_late_arrivals(self, deadline: float) -> Session:
        """One that lives for LATE at least, and is never kept alive: what is put on it goes by itself."""

        def known() -> Session | None:
            session = self._late
            return session if session is not None and session.live_until >= self._driver.now() + LATE else None

        async def had() -> Session:
            session = self._late = await self.open(2 * LATE, deadline)
            return session

        return known() or await self._once(known, had, deadline)

    def end(self, session: Session) -> None:
        if self._late is session:
            self._late = None
        for length, known in list(self._sessions.items()):
            if known is session:
                del self._sessions[length]

    async def close(self, deadline: float) -> None:
        """A tidy goodbye, all at once; without it, etcd ends the sessions when their time is up."""
        sessions, self._sessions = self._sessions, {}
        alive = [one.lease for one in sessions.values() if one.live_until > self._driver.now()]
        if alive:
            with contextlib.suppress(Unavailable, Refused):
                await self._wire.ask_apart([(LEASE_REVOKE, lease_id(lease)) for lease in alive], deadline)


def length_for(ttl: float) -> int:
    """Whole seconds, as etcd counts, and one more: for so long after a keep-alive, new claims need none of their own."""
    return math.ceil(ttl) + 1


def new_lease_id() -> int:
    """Our own, and unguessable: whoever knows it may keep the lease alive, or, if it may write our keys, end it."""
    return int.from_bytes(os.urandom(8), "big") >> 3 | 1 << 61  # always as many bytes on the wire
