"""Sessions: one for each ttl in use, kept alive by one request, however many locks hang on it.

Consul promises that a session lives at least its TTL after its last renewal (it takes twice as long, in fact). A grant
promises `ttl` seconds from before its claim was sent. So a session's TTL is an eighth longer than the ttl that it serves,
and a claim renews a session whose last renewal is older than that eighth.

A session has no health check: it does not end because an agent is restarted, which would give locks away before their
holders know. It has a key of its own, held by it, that Consul deletes with it: `alive`. That key is never made again, so
who has seen that it is gone knows that the session is over for good.
"""

from __future__ import annotations

import json

from ...drivers.base import Driver
from ...errors import Unavailable
from ..kit.turns import Turns
from .keys import Keys, Step, hold
from .replies import Answer, checked, session_id, told
from .url import Target
from .wire import Failed, Wire

MOST_TTL = 86400.0  # Consul's limit
_MARGIN = 1 / 8


class Session:
    __slots__ = ("id", "lost", "renewed", "stamp", "ttl", "users")

    def __init__(self, ttl: float, renewed: float, id: str, stamp: int = 0) -> None:
        self.ttl = ttl  # what is promised to claims; Consul was asked for an eighth more
        self.renewed = renewed  # when the last renewal that was confirmed was sent
        self.id = id
        self.stamp = stamp  # the index of its `alive` key, which every claim checks
        self.lost = False
        self.users = 0


class Sessions:
    def __init__(self, target: Target, wire: Wire, driver: Driver, keys: Keys) -> None:
        self._target = target
        self._wire = wire
        self._driver = driver
        self._keys = keys
        self._making = Turns(driver)  # sessions are made one at a time
        self._by_ttl: dict[float, Session] = {}

    async def fit_for(self, ttl: float, deadline: float) -> Session:
        """One that lives at least `ttl` seconds from now on."""
        ttl = max(ttl, self._target.min_ttl / (1 + _MARGIN))
        session = self._by_ttl.get(ttl)
        if session is None or session.lost or self._is_stale(session):
            turn = self._making.turn()
            try:
                if not await turn.come(deadline):
                    raise Unavailable(f"Consul at {self._wire.where} did not answer in time: no session could be had")
                session = self._by_ttl.get(ttl)
                if session is not None and not session.lost and self._is_stale(session):
                    await self.renew(session, deadline, apart=False)
                if session is None or session.lost:
                    session = self._by_ttl[ttl] = await self._create(ttl, deadline)
            finally:
                turn.over()
        return session

    def _is_stale(self, session: Session) -> bool:
        return self._driver.now() - session.renewed > session.ttl * _MARGIN

    async def _create(self, ttl: float, deadline: float) -> Session:
        wish = {
            "Name": "holdfast",
            "TTL": f"{max(ttl * (1 + _MARGIN), self._target.min_ttl):.3f}s",
            "LockDelay": f"{self._target.lock_delay:g}s",
            "Behavior": "delete",
            "Checks": [],
            "NodeChecks": [],
        }
        if self._target.node:
            wish["Node"] = self._target.node
        sent = self._driver.now()
        body = json.dumps(wish).encode()
        answer = checked(await self._ask("/v1/session/create", body, deadline), self._wire.where)
        session = Session(ttl, sent, told(answer, self._wire.where, session_id))
        try:
            await self.stamp(session, deadline)
        except BaseException:
            await self._driver.shield(lambda: self.end(session, deadline))
            raise
        return session

    async def stamp(self, session: Session, deadline: float) -> None:
        """Write the `alive` key anew. Claims that are still on their way anywhere carry the old stamp, and come to nothing."""
        done = await self._wire.commit([Step(hold(self._keys.alive(session.id), session.id), "alive")], deadline)
        if isinstance(done, Failed):
            self.lose(session)
        else:
            session.stamp = max(session.stamp, done)

    async def look_after(self, session: Session, deadline: float) -> bool:
        """A claim found the stamp changed: by another thread, or because the session is over. False: it is."""
        found = await self._wire.look([self._keys.alive(session.id)], deadline)
        if not found:
            self.lose(session)
            return False
        session.stamp = max(session.stamp, found[0].at)
        return True

    async def renew(self, session: Session, deadline: float, *, apart: bool = True) -> bool:
        """The one keep-alive. False: Consul no longer knows it."""
        sent = self._driver.now()
        answer = await self._ask(f"/v1/session/renew/{session.id}", b"", deadline, apart=apart)
        checked(answer, self._wire.where)
        if answer.status != 200:
            self.lose(session)
            return False
        session.renewed = max(session.renewed, sent)
        return True

    def lose(self, session: Session) -> None:
        session.lost = True
        if self._by_ttl.get(session.ttl) is session:
            del self._by_ttl[session.ttl]

    def lose_idle(self) -> list[Session]:
        """Those that nobody uses any more: nobody gets them from now on."""
        idle = [one for one in list(self._by_ttl.values()) if not one.users]
        for session in idle:
            self.lose(session)
        return idle

    async def end(self, session: Session, deadline: float) -> None:
        try:
            await self._ask(f"/v1/session/destroy/{session.id}", b"", deadline)
        except Unavailable:
            return  # its TTL ends it

    async def _ask(self, path: str, body: bytes, deadline: float, *, apart: bool = False) -> Answer:
        return await self._wire.ask("PUT", path, body, deadline, apart=apart)
