"""Locks in a table of PostgreSQL: the line, the capacity, the tokens and the clock are the server's, one function call each."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ... import rule
from ...claim import LAST_WORDS, MAX_TOKEN, ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable
from .. import promises
from ..kit.repeats import Repeats
from ..kit.wary import wary
from . import replies
from .any_store import LEAST, SECOND, SWEEP_EVERY, AnyStore
from .ear import watch_key
from .greeting import Greeting
from .replies import ServerError
from .snapshots import snapshot
from .statements import TRUE, Once, Params, Row, Statement, Statements, claim_params, long, read, renew_params, whole
from .url import Target
from .wire import Wire

_JOIN, _RELAXED, _ALONE, _HASTY = 2, 4, 8, 16
_PATIENCE = 8  # the bits from here on: how long to wait for a row, in ms
_HELD_UP = 1.0  # seconds: so long, at most, the renewals of all others wait for names whose rows somebody has locked
_MOST_CROWDED = 1000
_MOST_PACKED = 4096
_TRIES = 3  # to find a server with our schema; those whom others stood in the way of try for as long as they have time
_BUSY = whole(4)
_KEPT, _LOCKED = ord("1"), ord("?")
_SO, _CHANGED, _NOTHING = range(3)  # what is told of a name: what was asked for; something; nothing in that time
Ask = Callable[[Statement, Params, float], Awaitable[list[Row]]]
_tuple = tuple.__new__  # a named tuple's own constructor is a function in Python around this


@wary("PostgreSQL", lambda store: store._target.where)
class PostgresStore(Repeats, AnyStore[Wire, Statements]):
    def __init__(self, target: Target, wire: Wire, greeting: Greeting, statements: Statements, driver: Driver) -> None:
        super().__init__(target, wire, greeting, statements, driver)
        self._hasty = _HASTY if wire.shares else 0
        self._flags = _ALONE | (_RELAXED if target.relaxed else 0)
        self._bells: dict[str, Any] = {}
        self._seats = itertools.count(1)
        self._wakes = 0
        self._crowded: set[str] = set()  # names that had a line when last claimed: there, join it at the first asking
        self._polls = not target.bell
        self._told_old = False
        self._checked = False  # whether the bell works through whatever is between us and the server
        # Who asks, and for what, is mostly the same from claim to claim: packed once, all but the holder.
        self._packed: dict[tuple[object, ...], Params] = {}

    @property
    def traits(self) -> Traits:
        traits = promises.POSTGRESQL_RELAXED if self._target.relaxed else promises.POSTGRESQL
        return traits._replace(bell=False) if self._polls else traits

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        name, holder, owner, ttl, units, capacity, fair, queue, note = claim
        deadline = self._driver.now() + within
        if holder in self._bells or (name in self._crowded and queue and (self._polls or self._wire.ear.is_open)):
            is_first_asking = holder not in self._bells
            kind, value = await self._join(claim, deadline)
            if kind == 0 and is_first_asking:
                self._crowded.discard(name)  # whoever had to wait leaves it: there was a line a moment ago
        else:
            terms = (name, owner, ttl, units, capacity, fair, note)
            packed = self._packed.get(terms)
            if packed is None:
                if len(self._packed) >= _MOST_PACKED:
                    self._packed.clear()
                packed = self._packed[terms] = claim_params(claim, 0, 0, 0)
            flags = self._flags | self._patience(within) | (1 if fair else 0)
            kind, value = await self._claimed((packed[0], holder.encode(), *packed[2:]), flags, deadline)
            if kind == 1 and queue:
                # Now that there is a line to join, make sure that the bell will be heard, and only then join.
                if len(self._crowded) > _MOST_CROWDED:
                    self._crowded.clear()
                self._crowded.add(name)
                kind, value = await self._join(claim, deadline)
        if kind == 0:
            if holder in self._bells:
                self._wire.ear.forget(self._bells.pop(holder))
            return _tuple(Grant, (claim, value, ttl))
        if kind == 2:
            rule.same_capacity(name, capacity, value)
        if kind == 3:
            rule.next_token(value, MAX_TOKEN + 1, name)
        return Place(claim, value / SECOND)

    async def _claimed(self, packed: Params, flags: int, deadline: float) -> tuple[int, int]:
        """What the server says to that claim: see `claim` in schema.sql."""
        asked = Once((*packed[:7], whole(flags | self._hasty), *packed[8:]))
        rows = await self._ask(self._sql.claim, asked, deadline)
        if rows[0][0] == _BUSY:
            first, asked = asked, Once((*packed[:7], whole(flags), *packed[8:]))
            asked.twice = first.twice
            rows = await self._ask_aside(self._sql.claim, asked, deadline)
        if asked.twice:
            self._repeats(packed[1].decode())
        return read(rows[0][0]), read(rows[0][1])

    async def wait(self, place: Place, timeout: float) -> None:
        bell = self._bells.get(place.claim.holder)
        if bell is not None:
            await self._wire.ear.hear(bell, timeout)
        else:
            await self._driver.sleep(min(timeout, self._driver.uniform(0.03, 0.1)))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        deadline = self._driver.now() + within
        verdicts: dict[int, Verdict] = {}
        busy: dict[str, list[int]] = {}
        everybody = list(range(len(grants)))
        for at, verdict in zip(everybody, await self._renewed(grants, everybody, 0, deadline), strict=True):
            if verdict == _LOCKED:
                busy.setdefault(grants[at].claim.name, []).append(at)
            else:
                verdicts[at] = grants[at] if verdict == _KEPT else None
        # Rows that somebody else had locked in that moment: name by name, since whoever waits may have nothing else locked.
        until = self._driver.now() + min(within / 2, _HELD_UP)
        for done, (name, same) in enumerate(busy.items()):
            share = max(0.002, (until - self._driver.now()) / (len(busy) - done))
            try:
                answer = await self._renewed(grants, same, int(share * 1000) << _PATIENCE, deadline)
                verdicts |= {at: grants[at] if one == _KEPT else None for at, one in zip(same, answer, strict=True)}
            except Unavailable as error:
                verdicts |= {at: Unavailable(f"{name!r} could not be renewed: {error}") for at in same}
        return [verdicts[at] for at in everybody]

    async def _renewed(self, grants: Sequence[Grant], which: list[int], flags: int, deadline: float) -> bytes:
        asked = (
            (grants[at].claim.name, grants[at].claim.holder, grants[at].token, grants[at].claim.ttl) for at in which
        )
        params = renew_params(asked, flags)
        return (await self._persist(self._wire.ask_apart, self._sql.renew, params, deadline))[0][0]

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        deadline = self._driver.now() + within
        if claim.holder in self._bells:
            self._wire.ear.forget(self._bells.pop(claim.holder))
        name, holder, flags = claim.name.encode(), claim.holder.encode(), self._patience(within)
        asked = Once((name, holder, whole(flags | self._hasty)))
        rows = await self._ask(self._sql.release, asked, deadline)
        if rows[0][0] == b"":  # NULL: somebody has its row locked
            first, asked = asked, Once((name, holder, whole(flags)))
            asked.twice = first.twice
            rows = await self._ask_aside(self._sql.release, asked, deadline)
        self._wire.released.add(name, holder)
        if next(self._releases) % SWEEP_EVERY == 0:
            await self._wire.sweep(self._sql.sweep, deadline)
        # Not there any more: since the first one arrived, as far as anybody can tell. That is no loss.
        return rows[0][0] == TRUE or asked.twice

    async def watch(self, name: str, token: int, timeout: float) -> None:
        deadline = self._driver.now() + max(timeout, LEAST)
        long_enough = long(int((timeout + self._target.timeout) * SECOND))

        async def ask() -> tuple[int, int]:
            rows = await self._ask(self._sql.watch, (name.encode(), long(token), long_enough), deadline)
            return read(rows[0][0]), read(rows[0][1])

        try:
            await self._told_of(name, ask, deadline, deadline)
        except Unavailable:
            if self._driver.now() < deadline:
                raise  # else its time is over, and that is all that happened

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        """Who watches a name is told of those who join its line, too."""
        claim, token, _ = grant
        until = self._driver.now() + timeout
        deadline, patience = until + LEAST, self._patience(timeout + LEAST)
        long_enough = long(int((timeout + 1.0) * SECOND))  # no longer than needed: what is watched takes longer to take

        async def ask() -> tuple[int, int]:
            whom = (claim.name.encode(), claim.holder.encode(), long(token), long_enough)
            rows = await self._ask(self._sql.wanted, (*whom, whole(patience | self._hasty)), deadline)
            if rows[0][0] == _BUSY:
                rows = await self._ask_aside(self._sql.wanted, (*whom, whole(patience)), deadline)
            return read(rows[0][0]), read(rows[0][1])

        while self._driver.now() < until:
            try:
                told = await self._told_of(claim.name, ask, until, deadline)
                if told == _SO or (told == _CHANGED and claim.capacity == 1):  # else readers come and go: look again
                    return True
            except Unavailable:
                if self._driver.now() < until:
                    raise
        return False

    async def _told_of(
        self, name: str, ask: Callable[[], Awaitable[tuple[int, int]]], until: float, deadline: float
    ) -> int:
        """Listen to what is told of a name, until what is asked for is so, or may be, or time has passed."""
        wakes = self._wakes
        await self._listen(deadline)
        ear = self._wire.ear
        bell = ear.expect(watch_key(name.encode().hex()))
        told = _NOTHING
        try:
            kind, value = await ask()
            until = min(until, self._driver.now() + value / SECOND)
            if self._wakes != wakes or kind == 0:  # the first: before there was anybody to be woken
                return _SO
            if self._polls:
                left = until - self._driver.now()
                await self._driver.sleep(max(0.0, min(left, self._driver.uniform(0.1, 0.3))))
            else:
                await ear.hear(bell, until - self._driver.now())
                told = _CHANGED if self._driver.now() < until else _NOTHING
            return told if self._wakes == wakes else _SO
        finally:
            ear.forget(bell)

    def wake_waiters(self) -> None:
        """End every wait and watch that is under way, from any thread."""
        self._wakes += 1
        self._wire.ear.wake_waiters()

    async def evict(self, name: str, token: int, by: str) -> int | None:
        deadline = self._driver.now() + ROUND
        rows = await self._ask(self._sql.evict, (name.encode(), long(token), by.encode()), deadline)
        past = read(rows[0][0])
        if past < 0:
            rule.next_token(-past, MAX_TOKEN + 1, name)
        return past or None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        return snapshot(name, await self._ask(self._sql.inspect, (name.encode(),), self._driver.now() + within))

    async def names(self, prefix: str = "") -> Sequence[str]:
        rows = await self._ask(self._sql.names, (prefix.encode(),), self._driver.now() + ROUND)
        return sorted(name.decode() for (name,) in rows)

    def forked(self) -> None:
        self._bells = {}
        self._wire.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        await self._wire.close()

    # ---- conversations

    async def _join(self, claim: Claim, deadline: float) -> tuple[int, int]:
        """A claim that, if there is no room, joins the line, and says where to ring."""
        ear, seat = self._wire.ear, 0
        await self._listen(deadline)
        if not self._polls:
            bell = self._bells.get(claim.holder)
            if bell is None:
                bell = self._bells[claim.holder] = ear.expect(str(next(self._seats)))
            seat = int(bell.what)
        flags = self._flags | (_JOIN if claim.queue else 0) | (1 if claim.fair else 0)
        flags |= self._patience(deadline - self._driver.now())
        return await self._claimed(claim_params(claim, 0, ear.number if seat else 0, seat), flags, deadline)

    async def _listen(self, deadline: float) -> None:
        """See to it that the bell will be heard, or find out that it cannot be."""
        if self._polls or self._wire.ear.is_open:
            return
        if not self._checked:
            if self._greeting.pooled and await self._wire.is_shared(deadline - self._driver.now()):
                self._polls = True
                logging.getLogger("holdfast").warning(
                    "a pooler at %s lends server connections by the transaction: LISTEN does not work through it, so "
                    "waiting polls. Give holdfast a direct address, or say bell=no to wait in this way knowingly",
                    self._wire.where,
                )
            self._checked = True
        if not self._polls:
            await self._wire.ear.open(deadline - self._driver.now())

    def _patience(self, within: float) -> int:
        """The server gives up a little before we do, so that nothing is done after we have stopped waiting for it."""
        return max(1, int(min(within, self._target.timeout) * 850)) << _PATIENCE

    async def _ask(self, statement: Statement, params: Params, deadline: float) -> list[Row]:
        within = deadline - self._driver.now()
        try:
            return await self._wire.ask(statement, params, within)
        except ServerError as error:
            if error.state == replies.NO_FUNCTION and not statement.name:
                raise self._too_old() from None
            return await self._persist(self._wire.ask, statement, params, deadline, error)

    def _too_old(self) -> Unavailable:
        what = f"the functions in the schema {self._target.schema!r} at {self._wire.where} are an older holdfast's"
        if not self._told_old:
            self._told_old = True
            logging.getLogger("holdfast").warning(
                "%s: nothing is kept (keep=) until the output of `holdfast migrate --sql` has been run again", what
            )
        return Unavailable(what)

    async def _ask_aside(self, statement: Statement, params: Params, deadline: float) -> list[Row]:
        return await self._persist(self._wire.ask_aside, statement, params, deadline)

    async def _persist(
        self, ask: Ask, statement: Statement, params: Params, deadline: float, error: ServerError | None = None
    ) -> list[Row]:
        """A refusal undid everything, so what passes by itself may simply be asked again."""
        missing = 0
        while True:
            if error is not None:
                if error.state in replies.MISSING or error.state == replies.READ_ONLY:
                    self._wire.reset()
                missing += error.state in replies.MISSING
                if error.state not in replies.MISSING | replies.CONFLICTS or missing == _TRIES:
                    raise self._refused(error) from None
                if error.state in replies.CONFLICTS:
                    await self._driver.sleep(self._driver.uniform(0.001, 0.02))
                if self._driver.now() >= deadline:
                    raise self._refused(error) from None
            try:
                return await ask(statement, params, deadline - self._driver.now())
            except ServerError as another:
                error = another
