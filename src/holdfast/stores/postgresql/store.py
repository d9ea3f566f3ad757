"""Locks in a table of PostgreSQL: the line, the capacity, the tokens and the clock are the server's, one function call each."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ... import rule
from ...claim import MAX_TOKEN, ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict
from ...drivers.base import Driver
from . import replies
from .ear import watch_key
from .greeting import Greeting
from .replies import ServerError
from .snapshots import snapshot
from .statements import Params, Row, Statement, Statements, claim_params, long, read, renew_params
from .url import Target
from .wires import Wire

TRAITS = Traits(
    system="postgresql",
    scope="network",
    fenced="yes: kept in the row that grants, in the same transaction; last token + 1, or the server's time in µs if that is "
    "more, so they rise through a deleted row, an emptied or restored database and a failover to a stale replica (unless "
    "its clock lags by more than that took: then the storage refuses the low token)",
    fair=True,
    bell=True,
    durable="every grant, by the database's own log; a release or renewal of the last 0.6 s may be lost in a crash of the "
    "server, which only delays the next holder or shortens the lease",
    clock="the server's wall clock: set forward it ends leases early, set back it lengthens them by a ttl at most",
    survives="kill -9 of any client; crash and restart of the server. A failover to an asynchronous replica may forget the "
    "latest grants: two then believe they hold it; only fenced storage stays correct",
)
RELAXED = (
    "tokens, by the server's clock; a grant of the last 0.6 s may be lost in a crash of the server, and then be granted "
    "again with a higher token (durability=relaxed)"
)

_JOIN, _RELAXED, _ALONE = 2, 4, 8
_SWEEP_EVERY = 64  # releases
_MOST_CROWDED = 1000
_MOST_PACKED = 4096
_TRIES = 3
_SECOND = 1_000_000
_tuple = tuple.__new__  # a named tuple's own constructor is a function in Python around this


class PostgresStore:
    def __init__(self, target: Target, wire: Wire, greeting: Greeting, statements: Statements, driver: Driver) -> None:
        self._target = target
        self._wire = wire
        self._greeting = greeting
        self._sql = statements
        self._driver = driver
        # A wire for threads has a plain function too, which spares them a coroutine for every request.
        self._talk: Callable[[Statement, Params], list[Row]] | None = getattr(wire, "talk", None)
        self._flags = _ALONE | (_RELAXED if target.relaxed else 0)
        self._bells: dict[str, Any] = {}
        self._seats = itertools.count(1)
        # Begins anywhere, so that many short lives sweep as often as one long one.
        self._releases = itertools.count(int(driver.uniform(0, _SWEEP_EVERY)))
        self._crowded: set[str] = set()  # names that had a line when last claimed: there, join it at the first asking
        self._polls = not target.bell
        self._checked = False  # whether the bell works through whatever is between us and the server
        # Who asks, and for what, is mostly the same from claim to claim: packed once, all but the holder.
        self._packed: dict[tuple[object, ...], Params] = {}

    @property
    def traits(self) -> Traits:
        traits = TRAITS._replace(durable=RELAXED) if self._target.relaxed else TRAITS
        return traits._replace(bell=False) if self._polls else traits

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        name, holder, owner, ttl, units, capacity, fair, queue, note = claim
        if holder in self._bells or (name in self._crowded and queue and (self._polls or self._wire.ear.is_open)):
            is_first_asking = holder not in self._bells
            kind, value = await self._join(claim)
            if kind == 0 and is_first_asking:
                self._crowded.discard(name)  # whoever had to wait leaves it: there was a line a moment ago
        else:
            terms = (name, owner, ttl, units, capacity, fair, note)
            packed = self._packed.get(terms)
            if packed is None:
                if len(self._packed) >= _MOST_PACKED:
                    self._packed.clear()
                packed = self._packed[terms] = claim_params(claim, self._flags, 0, 0)
            params = (packed[0], holder.encode(), *packed[2:])
            try:
                if self._talk is None:
                    rows = await self._wire.ask(self._sql.claim, params)
                else:
                    rows = self._talk(self._sql.claim, params)
            except ServerError as error:
                rows = await self._again(error, self._sql.claim, params)
            kind, value = read(rows[0][0]), read(rows[0][1])
            if kind == 1 and queue:
                # Now that there is a line to join, make sure that the bell will be heard, and only then join.
                if len(self._crowded) > _MOST_CROWDED:
                    self._crowded.clear()
                self._crowded.add(name)
                kind, value = await self._join(claim)
        if kind == 0:
            if holder in self._bells:
                self._wire.ear.forget(self._bells.pop(holder))
            return _tuple(Grant, (claim, value, ttl))
        if kind == 2:
            rule.same_capacity(name, capacity, value)
        if kind == 3:
            rule.next_token(value, MAX_TOKEN + 1, name)
        return Place(claim, value / _SECOND)

    async def wait(self, place: Place, timeout: float) -> None:
        bell = self._bells.get(place.claim.holder)
        if bell is not None:
            await self._wire.ear.hear(bell, timeout)
        else:
            await self._driver.sleep(min(timeout, self._driver.uniform(0.03, 0.1)))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        order = sorted(range(len(grants)), key=lambda index: grants[index].claim.name)
        params = renew_params(
            (grants[i].claim.name, grants[i].claim.holder, grants[i].token, grants[i].claim.ttl) for i in order
        )
        deadline = self._driver.now() + within
        for attempt in range(1, _TRIES + 1):
            left = max(0.001, deadline - self._driver.now())
            try:
                ((verdicts,),) = await self._wire.ask_apart(self._sql.renew, params, left)
                break
            except ServerError as error:
                self._refused(error, last=attempt == _TRIES)
        renewed: list[Grant | None] = [None] * len(grants)
        for index, verdict in zip(order, verdicts, strict=True):
            if verdict == 49:
                renewed[index] = grants[index]
        return renewed

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        if claim.holder in self._bells:
            self._wire.ear.forget(self._bells.pop(claim.holder))
        params = (claim.name.encode(), claim.holder.encode())
        try:
            if self._talk is None:
                rows = await self._wire.ask(self._sql.release, params)
            else:
                rows = self._talk(self._sql.release, params)
        except ServerError as error:
            rows = await self._again(error, self._sql.release, params)
        if next(self._releases) % _SWEEP_EVERY == 0:
            await self._sweep()
        return rows[0][0] == b"\1"

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._listen()
        ear = self._wire.ear
        bell = ear.expect(watch_key(name.encode().hex()))
        try:
            long_enough = int((timeout + self._target.timeout) * _SECOND)
            rows = await self._ask(self._sql.watch, (name.encode(), long(token), long(long_enough)))
            kind, value = read(rows[0][0]), read(rows[0][1])
            if kind == 1 and self._polls:
                await self._driver.sleep(min(timeout, value / _SECOND, self._driver.uniform(0.1, 0.3)))
            elif kind == 1:
                await ear.hear(bell, min(timeout, value / _SECOND))
        finally:
            ear.forget(bell)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        rows = await self._ask(self._sql.evict, (name.encode(), long(token), by.encode()))
        past = read(rows[0][0])
        if past < 0:
            rule.next_token(-past, MAX_TOKEN + 1, name)
        return past or None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        return snapshot(name, await self._ask(self._sql.inspect, (name.encode(),)))

    async def names(self, prefix: str = "") -> Sequence[str]:
        rows = await self._ask(self._sql.names, (prefix.encode(),))
        return sorted(name.decode() for (name,) in rows)

    def forked(self) -> None:
        self._bells = {}
        self._wire.forked()

    async def close(self) -> None:
        await self._wire.close()

    # ---- conversations

    async def _join(self, claim: Claim) -> tuple[int, int]:
        """A claim that, if there is no room, joins the line, and says where to ring."""
        ear, seat = self._wire.ear, 0
        await self._listen()
        if not self._polls:
            bell = self._bells.get(claim.holder)
            if bell is None:
                bell = self._bells[claim.holder] = ear.expect(str(next(self._seats)))
            seat = int(bell.what)
        flags = self._flags | (_JOIN if claim.queue else 0)
        params = claim_params(claim, flags, ear.number if seat else 0, seat)
        rows = await self._ask(self._sql.claim, params)
        return read(rows[0][0]), read(rows[0][1])

    async def _listen(self) -> None:
        """See to it that the bell will be heard, or find out that it cannot be."""
        if self._polls or self._wire.ear.is_open:
            return
        if not self._checked:
            await self._ask(self._sql.names, (b"\xff",))  # so that the greeting has taken place
            if self._greeting.pooled and await self._wire.is_shared():
                self._polls = True
                logging.getLogger("holdfast").warning(
                    "a pooler at %s lends server connections by the transaction: LISTEN does not work through it, so "
                    "waiting polls. Give holdfast a direct address, or say bell=no to wait in this way knowingly",
                    self._wire.where,
                )
            self._checked = True
        if not self._polls:
            await self._wire.ear.open()

    async def _ask(self, statement: Statement, params: Params) -> list[Row]:
        try:
            return await self._wire.ask(statement, params)
        except ServerError as error:
            return await self._again(error, statement, params)

    async def _again(self, error: ServerError, statement: Statement, params: Params) -> list[Row]:
        """A refusal undid everything, so what passes by itself may simply be asked again."""
        for attempt in range(2, _TRIES + 1):
            self._refused(error)
            try:
                return await self._wire.ask(statement, params)
            except ServerError as another:
                error = another
                if attempt == _TRIES:
                    break
        self._refused(error, last=True)
        raise AssertionError  # not reached

    def _refused(self, error: ServerError, last: bool = False) -> None:
        """Returns if asking again may help."""
        if error.state in replies.MISSING or error.state == replies.READ_ONLY:
            self._wire.reset()
        if last or error.state not in replies.MISSING | replies.CONFLICTS:
            raise replies.explained(error, self._wire.where, self._target.schema) from None

    async def _sweep(self) -> None:
        try:
            await self._wire.ask(self._sql.sweep, (long(int(self._target.retention * _SECOND)),))
        except (ServerError, ConnectionError):
            return  # another time; what was asked for is done
