"""Locks in etcd: the line, the tokens and the exclusion are etcd's, one transaction each; see entering.py for why it is right.

One lease a process and ttl (a *session*, see session.py), whatever the number of locks. It is kept alive by renewals of any of
them; so a claim that nobody renews, while its session lives on by others, is ended by the process itself, when its time is
up (sweeping.py). A process that dies takes its session with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

from ...claim import MAX_TOKEN, Claim, Grant, Place, Snapshot, Traits
from ...drivers.base import Bell, Driver
from ...errors import Misuse, Unavailable
from . import looking
from .ear import Watch
from .entering import Entry, enter, may_enter, seen, what_to_wait_for
from .keys import PART, READER, WHOLE, Keys, everybody, kind_of, read_terms, token_of
from .proto import (
    CREATE,
    EQUAL,
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    TXN,
    Done,
    Leased,
    compare,
    lease_grant,
    lease_id,
    op_delete,
    op_put,
    op_range,
    range_of,
    read_lease,
    read_txn,
    txn,
)
from .refusals import Refused, explained
from .session import Session, length_for, new_lease_id
from .sweeping import Sweeper, delete_ghosts, revoke
from .url import Target

TRAITS = Traits(
    system="etcd",
    scope="network",
    fenced="yes: the revision of etcd's log at which the claim entered",
    fair=True,
    bell=True,
    durable="everything that was acknowledged: a majority has it on disk",
    clock="each process ends its own claims on time, by its monotonic clock; those of a process that died are ended by the "
    "leader's: whole seconds, one or two more than the ttl, at least 1.5 election timeouts, and up to as much again "
    "after a change of leader",
    survives="kill -9 of any client; any minority of members dead, paused or cut off. Without a majority nothing is granted",
)

_READS_A_TRANSACTION = 100  # etcd's own limit is 128 (--max-txn-ops)
_ATTEMPTS = 12
_BUSY = 0.02  # so many others entered meanwhile that we let them pass for a moment


class Ear(Protocol):
    async def watch(self, key: bytes, range_end: bytes, since: int, bell: Bell) -> Watch: ...
    def cancel(self, watch: Watch) -> None: ...


class Wire(Protocol):
    """The connections of one store. Raises Unavailable when they fail, Refused when etcd says no."""

    @property
    def where(self) -> str: ...
    @property
    def ear(self) -> Ear: ...
    @property
    def mutex(self) -> Any: ...
    async def ask(self, path: bytes, message: bytes) -> bytes: ...
    async def transact(self, name: str, transaction: bytes) -> Done: ...
    async def ask_apart(self, calls: Sequence[tuple[bytes, bytes]], within: float) -> list[bytes]: ...
    def forked(self) -> None: ...
    async def close(self) -> None: ...


class EtcdStore:
    traits = TRAITS

    def __init__(self, target: Target, wire: Any, driver: Driver) -> None:
        self._target = target
        self._wire: Wire = wire
        self._driver = driver
        self._keys = Keys(target.prefix)
        self._start()

    def _start(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._sessions: dict[int, Session] = {}  # by their length in seconds
        self._opening = self._wire.mutex()
        self._sweeper = Sweeper(self._driver, self._entries, self.release)

    # ---- the protocol

    async def claim(self, claim: Claim) -> Grant | Place:
        entry = self._entries.get(claim.holder)
        if entry is None:
            entry = self._entries[claim.holder] = Entry(claim, self._keys)
        elif entry.token:
            again = await self._again(entry, claim)
            if again is not None:
                return again
            entry = self._entries[claim.holder] = Entry(claim, self._keys)
        try:
            answer = await self._enter(entry)
        except Misuse:
            await self.release(claim)  # it may have joined the line before it saw that it disagrees
            raise
        except BaseException:
            if entry.session is not None:
                entry.session.doubtful = True  # what was sent may yet arrive
            raise
        if type(answer) is Place and not claim.queue:
            self._entries.pop(claim.holder, None)
        return answer

    async def wait(self, place: Place, timeout: float) -> None:
        entry = self._entries.get(place.claim.holder)
        if entry is None or entry.until is None:
            await self._driver.sleep(min(timeout, 0.05))
            return
        (key, range_end), since = entry.until
        watch = entry.watch
        if watch is not None and (watch.over or (watch.key, watch.range_end) != (key, range_end)):
            self._wire.ear.cancel(watch)
            watch = None
        if watch is None or entry.bell is None:
            entry.bell = self._driver.bell()
            with self._explained():
                watch = entry.watch = await self._wire.ear.watch(key, range_end, since, entry.bell)
        began = self._driver.now()
        await entry.bell.wait(timeout)
        if watch.over and watch.lost and self._driver.now() - began < _BUSY:
            await self._driver.sleep(_BUSY)  # a watch that is refused again and again must not make us run in circles

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Grant | None]:
        """One keep-alive a session; and every key is read, through the quorum, to see that it is still there."""
        sent = self._driver.now()
        known: list[tuple[int, Entry]] = []
        for index, grant in enumerate(grants):
            entry = self._entries.get(grant.claim.holder)
            if entry is not None and entry.token == grant.token and entry.session is not None:
                known.append((index, entry))
        if not known:
            return [None] * len(grants)
        sessions = list({id(entry.session): entry.session for _, entry in known if entry.session}.values())
        batches = [known[at : at + _READS_A_TRANSACTION] for at in range(0, len(known), _READS_A_TRANSACTION)]
        calls = [(LEASE_KEEP_ALIVE, lease_id(session.lease)) for session in sessions]
        for batch in batches:
            reads = [op_range(range_of(entry.key, keys_only=True)) for _, entry in batch]
            calls.append((TXN, txn([], reads)))
        with self._explained():
            answers = await self._wire.ask_apart(calls, within)
        kept = [read_lease(answer) for answer in answers[: len(sessions)]]
        reads_done = [read_txn(answer) for answer in answers[len(sessions) :]]
        self._note_kept(sessions, kept, reads_done, sent)
        renewed: list[Grant | None] = [None] * len(grants)
        for batch, done in zip(batches, reads_done, strict=True):
            for (index, entry), found in zip(batch, map(done.ranged, range(len(batch))), strict=True):
                grant = grants[index]
                alive = entry.session is not None and entry.session.live_until >= sent + grant.claim.ttl
                if alive and found and found[0].created == entry.created:
                    entry.deadline = max(entry.deadline, sent + grant.claim.ttl)
                    renewed[index] = grant
                elif entry.token == grant.token:
                    entry.deadline = sent  # whatever may be left of it is swept away
                    self._sweeper.expect(sent)
        for session in sessions:
            if session.doubtful:
                await delete_ghosts(self._wire, session, self._keys.root, self._entries)
        return renewed

    async def release(self, claim: Claim) -> bool:
        entry = self._entries.get(claim.holder)
        if entry is not None and entry.watch is not None:
            self._wire.ear.cancel(entry.watch)
            entry.watch = None
        if entry is not None and entry.token and not entry.moving:
            operations = [op_delete(entry.key)]
        else:  # where it is, if anywhere, is not known
            start, line = self._keys.of(claim.name)
            holder = claim.holder.encode()
            operations = [op_delete(start + kind + holder) for kind in (WHOLE, PART, READER)]
            operations.append(op_delete(line + holder))
        done = await self._transact(claim.name, txn([], operations))
        self._entries.pop(claim.holder, None)
        return any(done.answers)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        start, _ = self._keys.of(name)
        span = everybody(start)
        done = await self._transact(name, txn([], [op_range(range_of(*span))]))
        if max((token_of(one, read_terms(one)) for one in done.ranged(0)), default=0) != token:
            return
        bell = self._driver.bell()
        with self._explained():
            watch = await self._wire.ear.watch(*span, done.header.revision + 1, bell)
        try:
            await bell.wait(timeout)
        finally:
            self._wire.ear.cancel(watch)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        with self._explained():
            return await looking.evict(self._wire, self._keys, name, token, by, self._driver.wall_us())

    async def inspect(self, name: str) -> Snapshot:
        with self._explained():
            return await looking.inspect(self._wire, self._keys, name, self._driver.wall_us())

    async def names(self, prefix: str = "") -> Sequence[str]:
        with self._explained():
            return await looking.names(self._wire, self._keys, prefix)

    def forked(self) -> None:
        self._sweeper.close()
        self._wire.forked()
        self._start()

    async def close(self) -> None:
        self._sweeper.close()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if session.live_until > self._driver.now():
                await revoke(self._wire, session)
        await self._wire.close()

    # ---- entering

    async def _enter(self, entry: Entry) -> Grant | Place:
        claim = entry.claim
        counted_at = 0
        for _ in range(_ATTEMPTS):
            session = entry.session = await self._session(claim.ttl)
            sent = self._driver.now()
            entry.deadline = sent + claim.ttl
            self._sweeper.expect(entry.deadline)
            value = self._keys.value(claim, self._driver.wall_us())
            try:
                done = await self._transact(claim.name, enter(entry, value, session.lease, counted_at))
            except Refused:  # the lease is gone: revoked, or it ran out. Nothing was done, our place is gone too
                self._end(session)
                entry.queued = counted_at = 0
                continue
            session.confirm(done.header.term)
            if done.succeeded:
                return await self._granted(entry, done.header.revision, done.header.revision, sent)
            sight = seen(entry, done)
            if sight.inside is not None:
                token = token_of(sight.inside, read_terms(sight.inside))
                return await self._granted(entry, token, sight.inside.created, sent)
            was, entry.queued = entry.queued, sight.queued
            if not was and 0 < sight.queued < sight.revision:
                continue  # we were in line already: look again, at those before our place
            if not may_enter(entry, sight):
                entry.until = what_to_wait_for(entry, sight)
                return Place(claim, claim.ttl)
            counted_at = sight.revision if entry.kind == PART else 0
        return Place(claim, _BUSY)

    async def _granted(self, entry: Entry, token: int, created: int, sent: float) -> Grant | Place:
        claim = entry.claim
        if token > MAX_TOKEN:
            await self.release(claim)
            raise Unavailable(f"the revision of etcd is past {MAX_TOKEN}: tokens for {claim.name!r} are used up")
        entry.token, entry.created, entry.queued, entry.until = token, created, 0, None
        if entry.watch is not None:
            self._wire.ear.cancel(entry.watch)
            entry.watch = None
        session = entry.session
        if session is not None and session.live_until >= sent + claim.ttl:
            return Grant(claim, token, claim.ttl)
        # The leader changed between the keep-alive and our entering: we are inside, but for how long is not known yet.
        again = await self._again(entry, claim)
        if again is None:
            self._entries.pop(claim.holder, None)
            return Place(claim, _BUSY)
        return again

    async def _again(self, entry: Entry, claim: Claim) -> Grant | None:
        """A claim that is inside, repeated; perhaps for fewer units, or for another time. None: it is inside no more."""
        for _ in range(_ATTEMPTS):
            was = entry.claim
            same = claim.units >= was.units and claim.ttl == was.ttl and entry.session is not None
            if same and entry.session is not None:
                session = await self._session(claim.ttl, entry.session)
                if session is not entry.session:
                    return None  # its own is gone, and it with it
            elif claim.ttl == was.ttl:
                session = await self._session(claim.ttl)
            else:
                # Its last time, most likely (at_least): on a lease of its own, so that it ends on time even if we do not live.
                session = await self._lease(max(1, length_for(claim.ttl) - 1))
            sent = self._driver.now()
            entry.moving = not same  # until we know where it stands
            try:
                done = await self._transact(claim.name, self._change(entry, claim, session, same=same))
            except Refused:
                self._end(session)
                continue
            session.confirm(done.header.term)
            if not done.succeeded:
                return None
            entry.moving = False
            if not same:
                key = entry.start + kind_of(claim.units, claim.capacity) + claim.holder.encode()
                entry.created = done.header.revision if key != entry.key else entry.created
                entry.key, entry.claim, entry.session = key, claim, session
            entry.deadline = sent + claim.ttl
            self._sweeper.expect(entry.deadline)
            if session.live_until >= sent + claim.ttl:
                return Grant(claim, entry.token, claim.ttl)
        raise Unavailable(f"etcd changed its leader again and again while {claim.name!r} was claimed")

    def _change(self, entry: Entry, claim: Claim, session: Session, *, same: bool) -> bytes:
        there = compare(entry.key, CREATE, EQUAL, entry.created)
        if same:
            return txn([there], [])
        key = entry.start + kind_of(claim.units, claim.capacity) + claim.holder.encode()
        value = self._keys.value(claim, self._driver.wall_us(), entry.token)
        operations = [op_put(key, value, session.lease)]
        if key != entry.key:
            operations.append(op_delete(entry.key))
        return txn([there], operations)

    # ---- sessions

    async def _session(self, ttl: float, this: Session | None = None) -> Session:
        """The one for this ttl (or `this`, while it lives), fresh enough for a grant of now; made if there is none."""
        length = length_for(ttl)
        session = this or self._sessions.get(length)
        if session is not None and session.covers(self._driver.now() + ttl):
            return session
        async with self._opening:
            session = this or self._sessions.get(length)
            now = self._driver.now()
            if session is not None and session.live_until > now:
                if session.covers(now + ttl) or await self._keep(session, now):
                    return session
                self._end(session)
            session = self._sessions[length] = await self._lease(length)
            return session

    async def _keep(self, session: Session, sent: float) -> bool:
        with self._explained():
            kept = read_lease(await self._wire.ask(LEASE_KEEP_ALIVE, lease_id(session.lease)))
        if kept.ttl <= 0:
            return False
        session.kept(sent, kept.header.term)
        if session.doubtful:
            await delete_ghosts(self._wire, session, self._keys.root, self._entries)
        return True

    async def _lease(self, seconds: int) -> Session:
        sent = self._driver.now()
        with self._explained():
            granted = read_lease(await self._wire.ask(LEASE_GRANT, lease_grant(seconds, new_lease_id())))
        return Session(granted.lease, float(granted.ttl), sent)  # perhaps longer than asked for: etcd has a minimum

    def _note_kept(
        self, sessions: Sequence[Session], kept: Sequence[Leased], reads: Sequence[Done], sent: float
    ) -> None:
        terms = {done.header.term for done in reads}
        for session, answer in zip(sessions, kept, strict=True):
            if answer.ttl <= 0:
                self._end(session)
                session.live_until = sent
            elif terms != {answer.header.term}:
                raise Unavailable("etcd changed its leader while a renewal was under way: it does not count")
            else:
                session.kept(sent, answer.header.term)
                session.confirm(answer.header.term)

    def _end(self, session: Session) -> None:
        for length, known in list(self._sessions.items()):
            if known is session:
                del self._sessions[length]

    # ---- etcd's answers

    async def _transact(self, name: str, transaction: bytes) -> Done:
        """Refused is raised only if a lease is gone; everything else is explained."""
        try:
            return await self._wire.transact(name, transaction)
        except Refused as refused:
            if refused.is_lease_gone:
                raise
            raise explained(refused, self._wire.where, self._target.prefix) from refused

    @contextlib.contextmanager
    def _explained(self) -> Any:
        try:
            yield
        except Refused as refused:
            raise explained(refused, self._wire.where, self._target.prefix) from refused
