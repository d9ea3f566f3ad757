"""Session locks: PostgreSQL's advisory locks, each on a connection of its own, from the waiting to the end.

The lock lives with the connection: while that is open nobody else gets in, and when it ends the server lets go at once.
So the connection is watched, and its end is a loss told at once. It may also end on the server's side only, without a word
to us: so a holder's is asked every second, and one that has not answered for five is taken for ended; and of a waiter the
server is asked, on another connection, whether it still has it in its line. The ttl is kept on both sides: a holder that is not
renewed for so long hangs up; and the server ends a connection that was silent for so long (idle_session_timeout), so that a
holder that is stopped, or cut off, keeps nobody out for longer. Its ttl begins later, so it never ends first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ... import rule
from ...claim import LAST_WORDS, MAX_TOKEN, ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict
from ...drivers.base import Driver
from ...errors import Misuse, Unavailable, Unsupported
from .. import promises
from ..kit.wary import wary
from .any_store import LEAST, SECOND, SWEEP_EVERY, AnyStore
from .greeting import Greeting
from .replies import ServerError
from .session_wire import Session, SessionWire
from .snapshots import snapshot
from .statements import TRUE, Params, Row, SessionStatements, Statement, long, read, whole
from .url import Target

_FOREIGN = b"\xff"  # what names begin with in the table
_LOOK_AGAIN = 10.0
_ARRIVED = 5.0  # seconds: by then a wait that was begun is in the server's line, or was lost on its way


class Record:
    """A claim and its connection."""

    __slots__ = ("begun", "claim", "session", "token")

    def __init__(self, claim: Claim, session: Session) -> None:
        self.claim = claim
        self.session = session
        self.token = 0  # until it is inside
        self.begun = 0.0  # when it joined the line


@wary("PostgreSQL", lambda store: store._target.where)
class SessionStore(AnyStore[SessionWire, SessionStatements]):
    def __init__(
        self, target: Target, wire: SessionWire, greeting: Greeting, statements: SessionStatements, driver: Driver
    ) -> None:
        super().__init__(target, wire, greeting, statements, driver)
        self._records: dict[str, Record] = {}
        self._doubtful: dict[
            str, float
        ] = {}  # holders whose connection may live on at the server's side, and until when
        self._lost: Callable[[str, str], None] = lambda holder, why: None
        self._direct = False

    def tell_losses_to(self, lost: Callable[[str, str], None]) -> None:
        """Call `lost(holder, why)` as soon as a connection has ended."""
        self._lost = lost

    @property
    def traits(self) -> Traits:
        return promises.POSTGRESQL_SESSIONS_RELAXED if self._target.relaxed else promises.POSTGRESQL_SESSIONS

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        _check(claim)
        deadline = self._driver.now() + within
        record = self._records.get(claim.holder)
        if record is not None and not record.session.alive:
            self._drop(record)
            record = None
        if record is None:
            return await self._first(claim, deadline)
        if record.token and claim.ttl != record.claim.ttl:
            await self._ask(record, self._sql.patience, (long(int(claim.ttl * SECOND)),), deadline)
        if not record.token:
            try:
                rows = record.session.outcome()
            except ServerError as error:
                await self._leave(record, deadline)
                raise self._explained(error, claim.name) from None
            if rows is None and await self._is_forgotten(record, deadline):
                self._drop(record)
                return await self._first(claim, deadline)
            if rows is None:
                self._keep(record)
                return Place(claim, min(claim.ttl, _LOOK_AGAIN))
            record.token = read(rows[0][0])
        elif claim.units < record.claim.units:
            params = (_name(claim.name), self._key(claim.name), claim.holder.encode(), whole(claim.units))
            await self._ask(record, self._sql.downgrade, params, deadline)
        record.claim = claim
        self._keep(record)
        return Grant(claim, record.token, claim.ttl)

    async def _first(self, claim: Claim, deadline: float) -> Grant | Place:
        await self._refuse_poolers(deadline)
        record = Record(claim, await self._wire.session(deadline - self._driver.now()))
        self._records[claim.holder] = record
        name, key, terms = _name(claim.name), self._key(claim.name), _terms(claim)
        if claim.holder in self._doubtful:  # else it might wait for itself
            await self._ask(record, self._sql.end, (name, claim.holder.encode()), deadline)
            self._doubtful.pop(claim.holder, None)
        joins = whole(1 if claim.queue else 0)
        rows = await self._ask(record, self._sql.attempt, (name, key, joins, *terms), deadline)
        if rows[0][0]:
            record.token = read(rows[0][0])
            self._keep(record)
            return Grant(claim, record.token, claim.ttl)
        if not claim.queue:
            del self._records[claim.holder]
            self._wire.free(record.session)
            return Place(claim, _LOOK_AGAIN)
        record.begun = self._driver.now()
        record.session.begin(self._sql.wait, (name, key, *terms))
        self._keep(record)
        return Place(claim, min(claim.ttl, _LOOK_AGAIN))

    async def _is_forgotten(self, record: Record, deadline: float) -> bool:
        """Whoever waits says nothing, so nothing tells it that the server's side of its connection has ended."""
        if self._driver.now() < record.begun + _ARRIVED:
            return False
        params = (long(record.session.pid), self._key(record.claim.name))
        return (await self._plainly(self._sql.present, params, record.claim.name, deadline))[0][0] != TRUE

    async def wait(self, place: Place, timeout: float) -> None:
        record = self._records.get(place.claim.holder)
        if record is None or record.token:
            await self._driver.sleep(min(timeout, self._driver.uniform(0.03, 0.1)))
        else:
            await record.session.until(timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        """The lock is there while its connection is: ask on each whether it is. No answer is no loss, its end is."""
        held = [self._records.get(grant.claim.holder) for grant in grants]
        records = [record for record in held if record is not None and record.token and record.session.alive]
        heard = await self._wire.hear_from([record.session for record in records], within)
        answered = {record for record, has in zip(records, heard, strict=True) if has}
        verdicts: list[Verdict] = []
        for grant, record in zip(grants, held, strict=True):
            if record is None or record.token != grant.token or not record.session.alive:
                verdicts.append(None)
            elif record in answered:
                self._keep(record)
                verdicts.append(grant)
            else:
                told = f"PostgreSQL at {self._wire.where} did not answer on its connection within {within:.3g} s"
                verdicts.append(Unavailable(f"{grant.claim.name!r} could not be renewed: {told}"))
        return verdicts

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        deadline = self._driver.now() + within
        record = self._records.get(claim.holder)
        there = False
        if record is not None and record.session.alive and not record.session.stranded:
            try:
                await self._leave(record, deadline - within / 2)
                there = True
            except Unavailable:
                there = False
        if not there:
            # Its connection has ended, but perhaps on our side only: have the server end it too. And if nobody has ended it, only
            # then do we: else the server may have seen that first, and calls it a loss.
            params = (_name(claim.name), claim.holder.encode())
            try:
                there = (await self._plainly(self._sql.end, params, claim.name, deadline))[0][0] == TRUE
            finally:
                if record is not None:
                    self._drop(record)
            self._doubtful.pop(claim.holder, None)
        if next(self._releases) % SWEEP_EVERY == 0:
            await self._wire.sweep(self._sql.sweep, deadline)
        return there

    async def watch(self, name: str, token: int, timeout: float) -> None:
        deadline = self._driver.now() + max(timeout, LEAST)
        try:
            found = await self.inspect(name, max(timeout, LEAST))
        except Unavailable:
            if self._driver.now() < deadline:
                raise
            return  # its time is over, and that is all that happened
        if max((holding.token for holding in found.holders), default=0) == token:
            left = max(0.0, deadline - self._driver.now())
            await self._driver.sleep(min(left, self._driver.uniform(0.05, 0.15)))

    def wake_waiters(self) -> None:
        """End every wait and watch that is under way, from any thread."""
        self._wire.wake_all()

    async def evict(self, name: str, token: int, by: str) -> int | None:
        params = (_name(name), long(token), by.encode())
        rows = await self._plainly(self._sql.evict, params, name, self._driver.now() + ROUND)
        return read(rows[0][0]) or None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        deadline = self._driver.now() + within
        found = snapshot(name, await self._plainly(self._sql.inspect, (_name(name), self._key(name)), name, deadline))
        records = list(self._records.values())
        capacity = max((record.claim.capacity for record in records if record.claim.name == name), default=0)
        return found._replace(capacity=found.capacity or capacity if found.holders or found.waiters else 0)

    async def names(self, prefix: str = "") -> Sequence[str]:
        rows = await self._plainly(self._sql.names, (_name(prefix),), prefix, self._driver.now() + ROUND)
        return sorted(name[1:].decode() for (name,) in rows)

    def forked(self) -> None:
        for record in self._records.values():
            record.session.disown()
        self._records = {}
        self._doubtful = {}
        self._wire.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        for record in list(self._records.values()):
            record.session.close()
        self._records.clear()
        await self._wire.close()

    # ---- connections

    async def _refuse_poolers(self, deadline: float) -> None:
        if self._direct:
            return
        await self._plainly(self._sql.ping, (long(1),), "", deadline)  # so that the greeting has taken place
        if self._greeting.pooled and await self._wire.is_shared(deadline - self._driver.now()):
            raise Misuse(
                f"a pooler at {self._wire.where} lends server connections by the transaction: a session lock taken through it "
                "would stay with a connection that others use next. Use a direct address, a pool_mode of session, or the "
                "lease table (without mode=session), which is safe behind poolers"
            )
        self._direct = True

    def _keep(self, record: Record) -> None:
        claim = record.claim
        record.session.expire_at(self._driver.now() + claim.ttl, record.token, lambda: self._gone(claim))

    def _gone(self, claim: Claim) -> None:
        self._doubt(claim)
        if self._records.pop(claim.holder, None) is not None:
            why = "the server, or the network, ended the connection that it lived with, or it fell silent"
            self._lost(claim.holder, why)

    def _drop(self, record: Record) -> None:
        self._doubt(record.claim)
        self._records.pop(record.claim.holder, None)
        record.session.close()

    def _doubt(self, claim: Claim) -> None:
        """Nobody told the server that it is over; by itself it ends a connection after a ttl of silence."""
        now = self._driver.now()
        self._doubtful[claim.holder] = now + claim.ttl
        for holder, until in list(self._doubtful.items()):
            if until < now:
                self._doubtful.pop(holder, None)

    async def _ask(self, record: Record, statement: Statement, params: Params, deadline: float) -> list[Row]:
        try:
            return await record.session.ask(statement, params, self._left(deadline))
        except ServerError as error:
            self._drop(record)
            raise self._explained(error, record.claim.name) from None
        except Exception:
            self._drop(record)  # the server lets go when it sees that
            raise
        # Interrupted otherwise, the conversation goes on to its end, and whoever takes the claim back comes after it.

    def _key(self, name: str) -> bytes:
        """64 bits of the schema and the name. Two with the same are one in 2**64, and would only wait for each other."""
        return hashlib.sha256(f"{self._target.schema} {name}".encode()).digest()[:8]

    def _left(self, deadline: float) -> float:
        return min(deadline - self._driver.now(), self._target.timeout)

    async def _leave(self, record: Record, deadline: float) -> None:
        """Out of the line, or out of the lock. Whatever the cancelled wait has come to, nothing stays behind."""
        claim, session = record.claim, record.session
        try:
            if not record.token:
                await self._cancelled(session, deadline)
            params = (_name(claim.name), claim.holder.encode())
            await session.ask(self._sql.leave, params, self._left(deadline))
        except ServerError as error:
            self._drop(record)
            raise self._explained(error, claim.name) from None
        except Exception:
            self._drop(record)
            raise
        # Only now: if we are interrupted before, it can be left once more.
        if self._records.pop(claim.holder, None) is not None:
            self._wire.free(session)

    async def _cancelled(self, session: Session, deadline: float) -> None:
        try:
            while session.outcome() is None:
                # More than once: one that arrives between two statements is ignored.
                await self._wire.ask(self._sql.cancel, (long(session.pid),), deadline - self._driver.now())
                await session.until(min(0.1, deadline - self._driver.now()))
                if self._driver.now() > deadline:
                    raise Unavailable(f"PostgreSQL at {self._wire.where} did not cancel a wait in time")
        except ServerError:
            return  # cancelled; what it may hold all the same is let go by whoever called us

    async def _plainly(self, statement: Statement, params: Params, name: str, deadline: float) -> list[Row]:
        try:
            return await self._wire.ask(statement, params, deadline - self._driver.now())
        except ServerError as error:
            raise self._explained(error, name) from None

    def _explained(self, error: ServerError, name: str) -> Exception:
        if error.state == "HF003":
            try:
                rule.next_token(MAX_TOKEN, MAX_TOKEN + 1, name)
            except Unavailable as used_up:
                return used_up
        return self._refused(error)


def _check(claim: Claim) -> None:
    if claim.capacity not in (1, rule.EVERYBODY) or claim.units not in (1, claim.capacity):
        raise Unsupported(
            f"{claim.name!r}: PostgreSQL's session locks know one holder, or readers and writers, but no capacity of "
            f"{claim.capacity}. Use the lease table for semaphores (the same URL without mode=session)"
        )


def _name(name: str) -> bytes:
    return _FOREIGN + name.encode()


def _terms(claim: Claim) -> Params:
    _, holder, owner, ttl, units, capacity, _, _, note = claim
    return (
        holder.encode(), owner.encode("utf-8", "replace"), note.encode(), long(int(ttl * SECOND)), whole(units),
        whole(capacity),
    )  # fmt: skip
