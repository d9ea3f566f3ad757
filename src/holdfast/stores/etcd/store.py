"""Locks in etcd: the line, the tokens and the exclusion are etcd's, one transaction each; see claiming.py for why it is right.

One lease a process and ttl (a *session*, see sessions.py), whatever the number of locks. It is kept alive by renewals of any of
them; so a claim that nobody renews, while its session lives on by others, is ended by the process itself, when its time is
up (sweeping.py). A process that dies takes its session with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

from ... import rule
from ...claim import LAST_WORDS, MAX_TOKEN, ROUND, Claim, Grant, Place, Snapshot, Verdict
from ...drivers.base import Driver
from ...errors import Misuse, Unavailable
from .. import promises
from ..kit.again import again
from ..kit.sleepers import Sleepers
from . import looking
from .claiming import Record, Seen, Templates, look, may_enter, seen, what_to_wait_for
from .ear import Watch
from .keys import PART, Keys, everybody, read_terms, token_of
from .renewing import Renewal
from .replies import Done, Garbled, Refused, explained, garbled, is_denied
from .requests import CREATE, EQUAL, LESS, MOD, compare, op_delete, op_put, op_range, op_txn, range_of, txn
from .sessions import Session, Sessions, length_for
from .sweeping import Sweeper
from .url import Target
from .wire import Wire

T = TypeVar("T")


_ATTEMPTS = 12
_BUSY = 0.02  # so many others entered meanwhile that we let them pass for a moment


class EtcdStore:
    traits = promises.ETCD

    def __init__(self, target: Target, driver: Driver) -> None:
        self._target = target
        self._driver = driver
        self._keys = Keys(target.prefix)
        self._templates = Templates(self._keys)
        self._start()

    def _start(self) -> None:
        self._wire = Wire(self._target, self._driver)
        self._records: dict[str, Record] = {}
        self._sleepers = Sleepers()
        self._sessions = Sessions(self._wire, self._driver)
        self._sweeper = Sweeper(self._driver, self._records, self.release, self._clear)
        self._renewal = Renewal(self._wire, self._driver, self._records, self._sessions, self._sweeper)

    @property
    def reached(self) -> bool:
        return self._wire.pool.reached

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        deadline = self._by(within)
        entry = self._records.get(claim.holder) or Record(claim, self._keys, self._driver.now())
        try:
            entry.claiming, entry.swept = True, 0.0
            if entry.sweeping:
                await self._sweeper.let_go(entry, deadline)
            try:
                return await self._claim(entry, claim, deadline)
            except Unavailable as trouble:
                return await again(self._driver, trouble, deadline, lambda: self._claim(entry, claim, deadline))
        finally:
            entry.claiming = False

    async def _claim(self, entry: Record, claim: Claim, deadline: float) -> Grant | Place:
        self._records[claim.holder] = entry
        if entry.leaving:  # unanswered, it may yet arrive, and would put out whoever had entered meanwhile
            await self._leave(claim, deadline)
            return Place(claim, claim.ttl)
        if entry.token:
            kept = await self._again(entry, claim, deadline)
            if kept is not None:
                return kept
            entry.begin(claim, self._driver.now())
        try:
            answer = await self._enter(entry, deadline)
        except Misuse:
            with contextlib.suppress(Unavailable):  # what was misused says more; and the core withdraws it once more
                await self._leave(claim, deadline)  # it may have joined the line before it saw that it disagrees
            raise
        if type(answer) is Place and not claim.queue:
            if entry.doubtful:
                await self._leave(claim, deadline)
            self._records.pop(claim.holder, None)
        return answer

    async def wait(self, place: Place, timeout: float) -> None:
        give_up = self._driver.now() + timeout
        with self._unless_over(give_up):
            await self._wait(place, timeout, give_up)

    async def _wait(self, place: Place, timeout: float, give_up: float) -> None:
        entry = self._records.get(place.claim.holder)
        woken = self._sleepers.woken
        if entry is None or entry.until is None:
            await self._sleepers.sleep(self._driver.bell(), min(timeout, 0.05), woken)
            return
        (key, range_end), since = entry.until
        watch = entry.watch
        if watch is not None and (watch.over or (watch.key, watch.range_end) != (key, range_end)):
            await self._wire.ear.cancel(watch)
            watch = None
        if watch is None or entry.bell is None:
            entry.bell = self._driver.bell()
            with self._explained():
                watch = entry.watch = await self._wire.ear.watch(key, range_end, since, entry.bell, give_up)
        began = self._driver.now()
        await self._sleepers.sleep(entry.bell, give_up - began, woken)
        if watch.over and watch.lost and self._driver.now() - began < _BUSY:
            await self._driver.sleep(_BUSY)  # a watch that is refused again and again must not make us run in circles

    def wake_waiters(self) -> None:
        self._sleepers.wake()

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        with self._explained():
            return await self._renewal.renew(grants, self._by(within))

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        deadline = self._by(within)
        try:
            return await self._leave(claim, deadline)
        except Unavailable as trouble:
            return await again(self._driver, trouble, deadline, lambda: self._leave(claim, deadline))

    async def _leave(self, claim: Claim, deadline: float) -> bool:
        entry = self._records.get(claim.holder)
        if entry is not None and entry.watch is not None:
            await self._wire.ear.cancel(entry.watch)
            entry.watch = None
        late: Session | None = None
        if entry is not None and entry.token and not entry.moving and not entry.doubtful:
            request = self._templates.leave(entry.claim)
        else:  # where it is, if anywhere, is not known
            operations = [op_delete(key) for key in (*self._keys.anywhere(claim), self._keys.in_line(claim))]
            if entry is not None and entry.doubtful:
                with self._explained():
                    late = await self._sessions.for_late_arrivals(deadline)
                operations.append(op_put(entry.at.left, b"", late.lease))
            request = txn([], operations)
        # If an answer was lost, we find that we have left already.
        left = entry is not None and entry.leaving and bool(entry.token) and self._driver.now() < entry.deadline
        if entry is not None:
            entry.leaving = True
        try:
            done = await self._wire.transact(claim.name, request, deadline)
        except (Refused, Misuse) as error:
            if late is not None:  # the next try has another lease: on this one a neighbour may have hung a key
                self._sessions.end(late)
            if isinstance(error, Refused):
                raise explained(error, self._wire.where, self._target.prefix) from error
            raise
        self._records.pop(claim.holder, None)
        return any(done.answers) or left

    async def _clear(self, entry: Record) -> None:
        """Its time is up: what was there when this was sent goes. See sweeping.py."""
        claim = entry.claim
        entry.doubtful |= entry.moving
        keys = (*self._keys.anywhere(claim), self._keys.in_line(claim))
        old = [[compare(key, MOD, LESS, entry.revision + 1)] for key in keys]
        gone = [op_txn(txn(only, [op_delete(key)])) for only, key in zip(old, keys, strict=True)]
        with self._explained():
            done = await self._wire.transact(claim.name, txn([], gone), self._by(ROUND))
        entry.revision = done.header.revision
        if entry.watch is not None:
            await self._wire.ear.cancel(entry.watch)
        entry.begin(claim, self._driver.now())
        if entry.bell is not None:
            entry.bell.ring()  # should its owner be alive after all, it claims again

    async def watch(self, name: str, token: int, timeout: float) -> None:
        give_up = self._driver.now() + timeout
        with self._unless_over(give_up):
            await self._watch(name, token, give_up)

    async def _watch(self, name: str, token: int, give_up: float) -> None:
        start, _ = self._keys.of(name)
        span = everybody(start)
        bell = self._driver.bell()
        watch: Watch | None = None
        woken = self._sleepers.woken
        try:
            while (left := give_up - self._driver.now()) > 0 and woken == self._sleepers.woken:
                with self._explained():
                    reading = txn([], [op_range(range_of(*span))])
                    done = await self._wire.transact(name, reading, min(give_up, self._by(left)))
                    inside = done.ranged(0)
                if max((token_of(one, read_terms(one)) for one in inside), default=0) != token:
                    return
                if watch is None:
                    with self._explained():
                        watch = await self._wire.ear.watch(*span, done.header.revision + 1, bell, give_up)
                elif watch.over:
                    return
                await self._sleepers.sleep(bell, give_up - self._driver.now(), woken)
        finally:
            if watch is not None:
                await self._wire.ear.cancel(watch)

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        give_up = self._driver.now() + timeout
        with self._unless_over(give_up):
            await self._until_somebody_joins(grant.claim, give_up)
        return self._driver.now() < give_up

    async def _until_somebody_joins(self, claim: Claim, give_up: float) -> None:
        """Or the claim is inside no more. What was so at the revision at which we looked, we see; from there on we are told."""
        line, mine = everybody(self._keys.of(claim.name)[1]), (self._keys.inside(claim), b"")
        bell, woken = self._driver.bell(), self._sleepers.woken
        watches: list[Watch] = []
        try:
            with self._explained():
                looking_up = min(give_up, self._by(give_up - self._driver.now()))
                looking = txn([], [op_range(range_of(*line)), op_range(range_of(*mine))])
                done = await self._wire.transact(claim.name, looking, looking_up)
                if done.ranged(0) or not done.ranged(1):
                    return
                since = done.header.revision + 1
                watches.append(await self._wire.ear.watch(*line, since, bell, give_up))
                watches.append(await self._wire.ear.watch(*mine, since, bell, give_up))
            await self._sleepers.sleep(bell, give_up - self._driver.now(), woken)
        finally:
            for watch in watches:
                await self._wire.ear.cancel(watch)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        with self._explained():
            return await looking.evict(
                self._wire, self._keys, name, token, by, self._driver.wall_us(), lambda: self._by(ROUND)
            )

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        deadline = self._by(within)

        async def look() -> Snapshot:
            with self._explained():
                return await looking.inspect(self._wire, self._keys, name, self._driver.wall_us(), deadline)

        try:
            return await look()
        except Unavailable as trouble:
            return await again(self._driver, trouble, deadline, look)

    async def names(self, prefix: str = "") -> Sequence[str]:
        with self._explained():
            return await looking.names(self._wire, self._keys, prefix, self._driver.now, lambda: self._by(ROUND))

    def proof(self, grant: Grant) -> tuple[bytes, int] | None:
        """The key of a grant of this connection, and the revision that created it: both are so only while it is held."""
        entry = self._records.get(grant.claim.holder)
        if entry is None or entry.token != grant.token or entry.moving:
            return None
        return entry.at.inside, entry.created

    def forked(self) -> None:
        self._wire.forked()
        self._start()

    async def close(self, within: float = LAST_WORDS) -> None:
        self._sweeper.alarm.close()
        try:
            await self._sessions.close(self._driver.now() + within)
        finally:
            self._wire.close()

    # ---- time

    def _by(self, within: float) -> float:
        """When a conversation that may take so long is over: never longer than the URL says."""
        return self._driver.now() + min(within, self._target.timeout)

    @contextlib.contextmanager
    def _unless_over(self, give_up: float) -> Iterator[None]:
        """That there was no time left to connect, say, is no trouble for whoever was to wait until then anyway."""
        try:
            yield
        except Unavailable:
            if self._driver.now() < give_up - _BUSY:
                raise

    # ---- entering

    async def _enter(self, entry: Record, deadline: float) -> Grant | Place:
        claim = entry.claim
        counted_at = 0
        denied = False
        for _ in range(_ATTEMPTS):
            session = entry.session = self._sessions.at_hand(claim.ttl) or await self._session(claim.ttl, deadline)
            sent = self._driver.now()
            entry.deadline = sent + claim.ttl
            self._sweeper.alarm.expect(entry.deadline)
            only_look = bool(entry.queued) and claim.fair and not entry.first
            if only_look:
                request = look(entry)
            else:
                request = self._templates.enter(entry, self._driver.wall_us(), session.lease, counted_at)
            doubtful, entry.doubtful = entry.doubtful, True  # until it is answered, however we are interrupted
            try:
                done = await self._wire.transact(claim.name, request, deadline)
                sight = self._seen(entry, done) if only_look or not done.succeeded else None
            except Refused:  # the lease is gone: revoked, or it ran out. Nothing was done, our place is gone too
                self._sessions.end(session)
                entry.queued = counted_at = 0
                entry.doubtful = doubtful
                continue
            except Misuse as error:
                if denied or not is_denied(error):
                    raise
                # For want of rights, perhaps; but a neighbour can hang a key of theirs on a lease that is idle, and then
                # etcd lets nobody use it who may not write that key. So once more, on a new one.
                self._sessions.end(session)
                entry.doubtful, denied = doubtful, True
                continue
            entry.doubtful = doubtful
            entry.revision = done.header.revision
            if session.asked is not None:
                session.confirm(done.header.term, sent)
            if sight is None:
                return await self._granted(entry, done.header.revision, done.header.revision, sent, deadline)
            if sight.inside is not None:
                token = rule.given_token(token_of(sight.inside, read_terms(sight.inside)), self._wire.where)
                entry.moving = sight.inside.lease != session.lease  # it stands on one that we have given up since
                return await self._granted(entry, token, sight.inside.created, sent, deadline)
            was, entry.queued = entry.queued, sight.queued
            if (was and not sight.queued) or (not was and 0 < sight.queued < sight.revision):
                continue  # our place is gone: join again. Or we had one that we did not know of: look at those before it
            entry.first = bool(sight.queued) and sight.ahead is None
            if not may_enter(entry, sight):
                entry.until = what_to_wait_for(entry, sight)
                return Place(claim, claim.ttl)
            counted_at = sight.revision if entry.at.kind == PART else 0
        return Place(claim, _BUSY)

    def _seen(self, entry: Record, done: Done) -> Seen:
        with self._explained():
            return seen(entry, done)

    async def _granted(self, entry: Record, token: int, created: int, sent: float, deadline: float) -> Grant | Place:
        claim = entry.claim
        if token > MAX_TOKEN:
            await self._leave(claim, deadline)
            raise Unavailable(f"the revision of etcd is past {MAX_TOKEN}: tokens for {claim.name!r} are used up")
        entry.token, entry.created, entry.queued, entry.until = token, created, 0, None
        if entry.watch is not None:
            await self._wire.ear.cancel(entry.watch)
            entry.watch = None
        session = entry.session
        if session is not None and session.live_until >= sent + claim.ttl and not entry.moving:
            return Grant(claim, token, claim.ttl)
        # The leader changed between the keep-alive and our entering, or we entered on another lease: we are inside, but for
        # how long is not known yet.
        kept = await self._again(entry, claim, deadline)
        if kept is None:
            self._records.pop(claim.holder, None)
            return Place(claim, _BUSY)
        return kept

    async def _again(self, entry: Record, claim: Claim, deadline: float) -> Grant | None:
        """A claim that is inside, repeated; perhaps for fewer units, or for another time. None: it is inside no more."""
        for _ in range(_ATTEMPTS):
            was, token, created = entry.claim, entry.token, entry.created
            same = not entry.moving and claim.units >= was.units and claim.ttl == was.ttl and entry.session is not None
            if same and entry.session is not None:
                session = await self._session(claim.ttl, deadline, entry.session)
                if session is not entry.session:
                    return None  # its own is gone, and it with it
            elif claim.ttl == was.ttl:
                session = await self._session(claim.ttl, deadline)
            else:
                # Its last time, most likely (at_least): on a lease of its own, that ends whether we live or not.
                with self._explained():
                    session = await self._sessions.open(length_for(claim.ttl), deadline)
            if entry.token != token:
                return None  # somebody else who asked for it again (close() and its owner, say) has found it gone meanwhile
            sent = self._driver.now()
            entry.moving = not same  # until we know where it stands
            try:
                done = await self._wire.transact(claim.name, self._change(entry, claim, session, same=same), deadline)
            except Refused:
                self._sessions.end(session)
                continue
            entry.revision = done.header.revision
            session.confirm(done.header.term, sent)
            if not done.succeeded:
                return None
            entry.token, entry.created = token, created  # whatever they have made of it since this was sent
            if not same:
                if self._keys.inside(claim) != entry.at.inside:
                    entry.created = done.header.revision
                entry.becomes(claim)
                entry.session = session
                entry.moving = False  # last: interrupted before, whoever leaves still looks wherever it may stand
            entry.deadline = sent + claim.ttl
            self._sweeper.alarm.expect(entry.deadline)
            if session.live_until >= sent + claim.ttl:
                return Grant(claim, token, claim.ttl)
        raise Unavailable(f"etcd changed its leader again and again while {claim.name!r} was claimed")

    def _change(self, entry: Record, claim: Claim, session: Session, *, same: bool) -> bytes:
        there = compare(entry.at.inside, CREATE, EQUAL, entry.created)
        if same:
            return txn([there], [])
        key = self._keys.inside(claim)
        value = self._keys.value(claim, self._driver.wall_us(), entry.token)
        operations = [op_put(key, value, session.lease)]
        if key != entry.at.inside:
            operations.append(op_delete(entry.at.inside))
        return txn([there], operations)

    # ---- etcd's answers

    async def _session(self, ttl: float, deadline: float, this: Session | None = None) -> Session:
        with self._explained():
            return await self._sessions.fresh(ttl, deadline, this)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Refused as refused:
            raise explained(refused, self._wire.where, self._target.prefix) from refused
        except Garbled as error:
            raise garbled(error, self._wire.where) from error
