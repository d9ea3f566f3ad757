"""Acquire and release. The only waiting loop of the library is here.

Rule 1: whatever interrupts an acquire (time, cancellation, Ctrl-C, a broken store) ends in a release of that claim.
Rule 2: deadlines count from before the request was sent. An answer that took longer than the grant lives is no grant.
Rule 3: a claim is repeated with the same holder, so an answer that was lost on its way is found again.
Rule 4: `timeout` bounds the call, and at most FIND_OUT more is spent on finding out; the rest is done in the background.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar
from weakref import ref

from . import events, rule
from .claim import ROUND, Claim, Grant, Place, Snapshot, new_holder, printable
from .drivers.base import Bell, Driver
from .errors import Misuse, NotAcquired, Unavailable
from .events import Hook, contained
from .lease import HELD, LOST, RELEASED, RELEASING, Lease
from .leaving import Leaving, Owed
from .renewal import Dropped, Renewer
from .stores.base import Store

L = TypeVar("L", bound=Lease)
_tuple = tuple.__new__  # a named tuple's own constructor is a function in Python around this

MAX_OWNER = 255
MAX_KNOWN = 1024
FIND_OUT = 1.0  # so long a call may outlast its timeout, to find out what became of it
CLOSING = 5.0  # so long close() may take, unless told otherwise
PATIENCE = 10.0  # the longest wait for a bell before looking again: a ringer may be killed between change and ring


class Ask(NamedTuple):
    """What a recipe wants, before anybody in particular asks for it."""

    name: str
    ttl: float
    units: int = 1
    capacity: int = 1
    fair: bool = True
    renew: bool = True
    note: str = ""
    at_most: float | None = None  # the lease ends then, renewed or not
    at_least: float = 0.0  # released earlier, the lock stays taken until then
    reentrant: bool = False
    reads: bool = False  # remembered, so that an upgrade is refused and does not deadlock
    alone: bool = False  # a writer or a leader: remembered, so that asking again is refused and does not deadlock


class GiveUp(Protocol):
    """What tells a waiter to give up: a threading.Event, an asyncio.Event, or anything with `is_set()`."""

    def is_set(self) -> bool: ...


class Engine:
    """A connected store, and what this process holds in it."""

    def __init__(self, store: Store, driver: Driver, label: str = "") -> None:
        self.store = store
        self.driver = driver
        self.hook = Hook(store.traits.system)
        self.label = label
        self.where = store.traits.system  # as people know it
        self.mutex = threading.Lock()
        self.closed = False
        self.exiting = False  # closed, because the process ends
        self._start()

    def _start(self) -> None:
        self._whereabouts = f"{os.uname().nodename}/{os.getpid()}/"
        self._owners: dict[str, str] = {}
        self._mine: dict[tuple[str, int], list[ref[Lease]]] = {}
        # Holders of claims that are made or released just now, and watches; close() waits for them.
        # True: a claim that was sent was not answered.
        self._under_way: dict[str, bool] = {}
        self._telling: dict[str, object] = {}  # of these, the threads that are telling a subscriber something just now
        self._closing: Bell | None = None
        self.leaving = Leaving(self.store, self.driver, self.hook)
        self.renewer = Renewer(self.store, self.driver, self.hook, self.mutex, self.leaving)

    def forked(self) -> None:
        """In a forked child, which owns nothing: the parent goes on holding what it held."""
        mine = [lease for some in self._mine.values() for one in some if (lease := one()) is not None]
        for lease in (*self.renewer._all(), *mine):
            lease._end(LOST, "it belongs to the process that this one was forked from")
        self.mutex = threading.Lock()
        self.store.forked()
        self._start()

    def owner(self) -> str:
        who = self.driver.whoami()
        known = self._owners.get(who)  # the same threads and tasks usually ask again
        if known is not None:
            return known
        me = self._whereabouts + who
        if self.label:
            me = f"{me}/{self.label}"
        me = me if me.isprintable() and len(me) <= MAX_OWNER else printable(me)[:MAX_OWNER]
        if len(self._owners) >= MAX_KNOWN:
            self._owners = {}
        self._owners[who] = me
        return me

    def open_store(self) -> Store:
        """For looking and intervening; refused once the connection was closed."""
        if self.closed:
            raise Misuse("this connection was closed: connect() again")
        return self.store

    async def watch(self, name: str, token: int, timeout: float) -> None:
        """Until there is another grant than that with `token`, or for so long. close() ends it, and waits for its end."""
        me = new_holder()
        try:
            self._under_way[me] = False  # first: from here on close() knows of us, or we of it
            await self.open_store().watch(name, token, timeout)
        finally:
            self._over(me)

    # ---- acquire

    async def acquire(self, ask: Ask, timeout: float | None, lease_type: type[L], cancel: GiveUp | None = None) -> L:
        if self.closed:
            raise self._closed(ask.name)
        name, ttl, units, capacity, fair, renew, note, at_most, at_least, reentrant, reads, alone = ask
        if reentrant or reads or alone:
            again = self._mine_again(ask, lease_type)
            if again is not None:
                return again
        lease: L | None = None
        claim = _tuple(Claim, (name, new_holder(), self.owner(), ttl, units, capacity, fair, timeout != 0, note))
        now = self.driver.now
        started = sent = now()
        answer: Grant | Place | None = None
        try:
            self._under_way[claim.holder] = False
            within = ROUND if timeout is None or timeout >= ROUND - FIND_OUT else timeout + FIND_OUT
            try:
                answer = await self.store.claim(claim, within)
            except Unavailable as error:  # once more: the answer may have been lost, and repeating finds it
                self._store_failed("claim", claim, error)
                # A round of its own where the caller has the time: an election of the store's leader takes about that long.
                left = ROUND if timeout is None else min(ROUND, started + timeout + FIND_OUT - now())
                if left <= 0:
                    raise
                self._under_way[claim.holder] = True
                answer = await self.store.claim(claim, left)
            if type(answer) is not Grant or now() >= sent + answer.ttl:
                if timeout is None and capacity == 1:
                    self._not_for_myself(claim)
                answer, sent = await self._wait_in_line(claim, answer, timeout, started, cancel)
            lease = lease_type(self, answer, sent)
            lease._by = ref(self.driver.me())
            if at_most is not None or at_least or not renew:
                lease._bound(answer.ttl if not renew else at_most, at_least)
            if self._under_way[claim.holder]:
                lease._strays = True
            if reentrant or reads or alone:
                self._remember(lease)
            self.renewer.add(lease)
            if events.ACQUIRED in self.hook.by_kind:
                kind, took = claim.lock, now() - started
                self._tell(claim, events.ACQUIRED, answer.token, sent - started, "", kind, took, answer.ttl)
                if self.closed:  # by a subscriber
                    raise self._closed(name)
            return lease
        except BaseException as error:
            if claim.holder not in self._under_way:  # we are a fork of whoever asked: the claim is that one's
                raise
            if lease is not None:
                self._disown(lease)
            # Refused is refused; but what was not answered, or was interrupted, may yet arrive.
            strays = isinstance(error, Unavailable) or self._under_way.get(claim.holder, False)
            interrupted = answer is None and not isinstance(error, Exception)
            # And a grant that came too late may live on in the store for a moment.
            if not isinstance(error, NotAcquired) or claim.queue or strays or type(answer) is Grant:
                left = FIND_OUT
                if timeout is not None and isinstance(error, Exception):
                    left = min(FIND_OUT, started + timeout + FIND_OUT - now())
                await self._withdraw(claim, left, unanswered=strays or interrupted)
            if events.FAILED in self.hook.by_kind and not isinstance(error, NotAcquired):
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                with contained("a subscriber"):
                    self.hook.emit(events.FAILED, name, claim.owner, 0, now() - started, why, claim.lock)
            raise
        finally:
            try:
                self._under_way.pop(claim.holder, None)
                if self._closing is not None:
                    self._closing.ring()
            except BaseException:  # interrupted in this very moment
                self._over(claim.holder)
                raise

    def _tell(
        self,
        claim: Claim,
        kind: str,
        token: int = 0,
        seconds: float = 0.0,
        detail: str = "",
        lock: str = "",
        took: float = 0.0,
        ttl: float = 0.0,
    ) -> None:
        """In the middle of a call: a subscriber may close() this connection, which does not wait for its own caller then."""
        self._telling[claim.holder] = self.driver.me()
        try:
            self.hook.emit(kind, claim.name, claim.owner, token, seconds, detail, lock, took, ttl)
        finally:
            self._telling.pop(claim.holder, None)

    def _store_failed(self, what: str, claim: Claim, error: Exception) -> None:
        if events.STORE_FAILED in self.hook.by_kind:
            self._tell(claim, events.STORE_FAILED, detail=f"{what}: {error}", lock=claim.lock)

    def _over(self, holder: str) -> None:
        self._under_way.pop(holder, None)
        if self._closing is not None:
            self._closing.ring()

    async def _wait_in_line(
        self, claim: Claim, answer: Grant | Place, timeout: float | None, started: float, cancel: GiveUp | None
    ) -> tuple[Grant, float]:
        now = self.driver.now
        give_up = None if timeout is None else started + timeout
        troubled: float | None = None
        if claim.queue and events.WAITING in self.hook.by_kind:
            self._tell(claim, events.WAITING, lock=claim.lock)
        while True:
            if self.closed:  # by another thread or task, while we waited
                raise self._closed(claim.name)
            if cancel is not None and cancel.is_set():
                self.hook.emit(events.NOT_ACQUIRED, claim.name, claim.owner, seconds=now() - started)
                raise NotAcquired(f"gave up waiting for {claim.name!r}: told to, by cancel=", claim.name)
            left = PATIENCE if give_up is None else give_up - now()
            if cancel is not None:  # an event cannot wake us in whatever we sleep, so we look at it now and then
                left = min(left, FIND_OUT / 2)
            if left <= 0:
                raise await self._not_acquired(claim, timeout, now() - started)
            sent = now()
            try:
                if type(answer) is Place:
                    await self.store.wait(answer, min(left, answer.wake_in, claim.ttl / 3, PATIENCE))
                    if self.closed:
                        raise self._closed(claim.name)
                    sent = now()
                if claim.holder not in self._under_way:
                    raise Misuse(
                        f"{claim.name!r} is waited for by the process that this one was forked from, and not here"
                    )
                unanswered = self._under_way[claim.holder]
                self._under_way[claim.holder] = True
                answer = await self.store.claim(
                    claim, ROUND if give_up is None else max(FIND_OUT / 2, min(ROUND, give_up + FIND_OUT - sent))
                )
                self._under_way[claim.holder] = unanswered
            except Unavailable as error:
                self._store_failed("claim", claim, error)
                # A server that restarts is ridden out for a ttl: whoever had a place in line joins again.
                troubled = troubled or now()
                if now() >= troubled + claim.ttl or (give_up is not None and now() >= give_up):
                    raise
                await self.driver.sleep(self.driver.uniform(0.02, 0.1))
                continue
            troubled = None
            if type(answer) is Grant and now() < sent + answer.ttl:
                return answer, sent

    async def _withdraw(
        self, claim: Claim, within: float, *, keep_until: float = 0.0, unanswered: bool = False
    ) -> None:
        """No ghost: take back a claim that may have arrived, whatever we know of it; after `within` in the background."""
        left = False
        try:
            left = await self._leave_at_once(claim, keep_until, within, sure=not unanswered)
        finally:
            if not left:
                until = self.driver.now() + claim.ttl
                self.leaving.later(claim, until, keep_until=keep_until, unanswered=unanswered)

    async def _leave_at_once(self, claim: Claim, keep_until: float, within: float, sure: bool = True) -> bool:
        """One try, whatever interrupts us. True: it has left, and if we are sure that nothing of it is on its way, for good."""
        if within <= 0:
            return False
        try:
            await self.driver.shield(lambda: self.leaving.leave(claim, keep_until, within))
        except Exception:
            return False
        return sure

    def _disown(self, lease: Lease) -> None:
        """It was never handed out: neither renew it nor find it again."""
        lease._state = RELEASED  # first, and whatever interrupts us: it must not be let go a second time
        with self.mutex:
            self.renewer.remove(lease)
            if lease._key is not None:
                self._forget(lease)

    def _dropped(self, lease: Lease, told: bool) -> None:
        """Called by the collector, at any moment and in any thread: takes no lock."""
        key = lease._key and lease._key[0]
        where = lease._where()
        self.renewer.drop(
            Dropped(self, lease._grant, key, lease._keep_until, lease._deadline, where, lease._loss, told)
        )

    async def _not_acquired(self, claim: Claim, timeout: float | None, waited: float) -> NotAcquired:
        self.hook.emit(events.NOT_ACQUIRED, claim.name, claim.owner, seconds=waited, lock=claim.lock, took=waited)
        try:
            snapshot = await self.store.inspect(claim.name, FIND_OUT / 2)
        except Unavailable:
            snapshot = None
        when = f"within {timeout:g} s" if timeout else "at once"
        story = tell(snapshot, claim) if snapshot else "who holds it could not be found out"
        return NotAcquired(f"could not get {claim.name!r} {when}: {story}", claim.name, snapshot)

    # ---- what this thread or task holds already

    def _not_for_myself(self, claim: Claim) -> None:
        """Somebody is inside. If that is who asks, and would wait for ever, it had better be told."""
        me = self.driver.me()
        for lease in self.renewer.leases():
            if lease.name == claim.name and lease.held and lease._by is not None and lease._by() is me:
                raise Misuse(
                    f"you hold {claim.name!r} already, since {self.driver.now() - lease._since:.1f} s (token {lease.token}), "
                    "and would wait for yourself: reentrant=True lets you in again, or pass a timeout"
                )

    def _mine_again(self, ask: Ask, lease_type: type[L]) -> L | None:
        """A lock that lets its own holder in again, or says why it cannot."""
        key = (ask.name, id(self.driver.me()))
        if key not in self._mine:
            return None
        with self.mutex:  # in one piece: another thread may be releasing a lease that it was handed
            mine = tuple(lease for one in self._mine.get(key, ()) if (lease := one()) is not None)
            held = tuple(lease for lease in mine if lease.held)
            if ask.reentrant and mine:
                mine[-1].check()  # a lost lock is not entered again: the outer body would not know
            elif not held:
                return None
            lease = held[-1]
            claim = lease._grant.claim
            rule.same_capacity(ask.name, ask.capacity, claim.capacity)
            if not ask.reentrant and (ask.alone or claim.units > 1):
                since = self.driver.now() - lease._since
                raise Misuse(f"{ask.name!r} is {_waits_for_itself(ask, claim, since)}")
            # A reader that reads again comes in at once: behind a waiting writer, it would wait for itself.
            lease._entries += 1
        assert isinstance(lease, lease_type)
        return lease

    def _remember(self, lease: Lease) -> None:
        key = (lease.name, id(self.driver.me()))
        lease._key = (key, self.driver.me())  # the thread or task too, so that its id is not given to another meanwhile
        with self.mutex:
            self._mine.setdefault(key, []).append(ref(lease))

    def _forget(self, lease: Lease) -> None:
        """Called under the mutex."""
        key, _ = lease._key
        self._keep_mine(key, lambda one: one is not lease)
        lease._key = None  # last: if we are interrupted, whoever takes this up knows where it is

    def _forget_dropped(self, key: tuple[str, int] | None) -> None:
        if key is not None:
            with self.mutex:
                self._keep_mine(key, lambda one: one._state is HELD)

    def _keep_mine(self, key: tuple[str, int], which: Callable[[Lease], bool]) -> None:
        mine = [one for one in self._mine.get(key, ()) if (lease := one()) is not None and which(lease)]
        if mine:
            self._mine[key] = mine
        else:
            self._mine.pop(key, None)

    # ---- release

    async def release(self, lease: Lease) -> bool:
        """Leave. False: the store did not have it any more.

        If the store does not answer, that is Unavailable, and the release goes on in the background; it may be repeated.
        """
        claim = lease._grant.claim
        if lease._state is RELEASED and lease._key is None:
            return False  # without the mutex: a thread that the end of the interpreter has stopped may have it
        try:
            with self.mutex:
                state = lease._state
                if lease._entries > 1 and (state is HELD or state is LOST):
                    lease._entries -= 1
                    return lease.held
                started = self.driver.now()
                ran_out = state is HELD and started >= lease._deadline
                if ran_out:  # and the renewer has not come round to it: it is over all the same
                    self.renewer.lose(lease)
                elif state is HELD:
                    lease._state = RELEASING
                    self.renewer.remove(lease)
                if lease._key is not None:
                    self._forget(lease)
            if ran_out:
                self.renewer.announce([lease])
                # The store may count a moment longer.
                await self._withdraw(claim, FIND_OUT, keep_until=lease._keep_until)
                return False
            if state is RELEASED or state is LOST:
                return False
            if lease._loss is not None:
                lease._loss.over()
            self._under_way[claim.holder] = False
            try:
                if lease._keep_until:
                    there = await self.leaving.leave(claim, lease._keep_until)
                else:
                    there = await self.store.release(claim, ROUND)
            except Unavailable as error:  # at once again, over another connection
                self._store_failed("release", claim, error)
                if (left := started + ROUND - self.driver.now()) <= 0:
                    raise
                again = await self.leaving.leave(claim, lease._keep_until, left)
                # Not there any more: since the first one arrived, as far as anybody can tell. That is no loss.
                there = again or not lease._keep_until
            lease._state = RELEASED
            if lease._strays and not lease._keep_until:
                self.leaving.later(claim, self.driver.now() + claim.ttl, unanswered=True)
        except BaseException as error:
            if lease._state is RELEASING:
                await self._go_on_leaving(lease, claim, at_once=not isinstance(error, Exception))
            raise
        finally:
            try:
                self._under_way.pop(claim.holder, None)
                if self._closing is not None:
                    self._closing.ring()
            except BaseException:  # interrupted in this very moment
                self._over(claim.holder)
                raise
        if events.RELEASED in self.hook.by_kind:
            self._released(lease)
        return there

    def _released(self, lease: Lease) -> None:
        lease._state = RELEASED
        if events.RELEASED in self.hook.by_kind:
            claim, token, _ = lease._grant
            held = self.driver.now() - lease._since
            self.hook.emit(events.RELEASED, claim.name, claim.owner, token, held, "", claim.lock)

    async def _go_on_leaving(self, lease: Lease, claim: Claim, at_once: bool) -> None:
        """The release failed, or was interrupted: take it up again if there is a chance, else in the background."""
        left = False
        try:
            with self.mutex:
                self.renewer.remove(lease)
                if lease._key is not None:
                    self._forget(lease)
            if at_once:
                left = await self._leave_at_once(claim, lease._keep_until, FIND_OUT)
        finally:
            if left:
                self._released(lease)
            else:
                self._hand_over(lease)

    def _hand_over(self, lease: Lease) -> None:
        """The release was not answered, or was interrupted: it goes on in the background."""
        if lease._handed_over:
            return
        lease._handed_over = True
        known = ref(lease)
        claim, token, since = lease._grant.claim, lease.token, lease._since

        def done() -> None:
            if (still := known()) is not None:
                still._state = RELEASED
            if events.RELEASED in self.hook.by_kind:
                held = self.driver.now() - since
                self.hook.emit(events.RELEASED, claim.name, claim.owner, token, held, lock=claim.lock)

        self.leaving.later(claim, lease._deadline, token=lease.token, keep_until=lease._keep_until, done=done)

    async def renew(self, lease: Lease, seconds: float | None = None) -> None:
        """Now, because the caller says so. With `seconds`: its end is then so far away, and it is renewed until there."""
        lease.check()
        if seconds is not None and lease._limit is None:
            raise Misuse(
                f"the lease of {lease.name!r} renews itself, and has no end to be moved: that is for renew=False"
            )
        sent = self.driver.now()
        if seconds is None and lease._limit is not None:
            seconds = lease._grant.claim.ttl
        (verdict,) = await self.store.renew([lease._grant], min(ROUND, max(lease.remaining(), FIND_OUT)))
        if isinstance(verdict, Unavailable):
            raise verdict
        self.renewer.renewed(lease, verdict, sent, None if seconds is None else sent + seconds)
        lease.check()

    async def downgrade(self, lease: Lease) -> None:
        """A writer becomes a reader, and keeps its token; readers in line come in.

        Unavailable: it may have happened, so there may be readers now. It may be repeated.
        """
        lease.check()
        claim = lease._grant.claim
        if claim.units != claim.capacity or claim.capacity == 1:
            raise Misuse(f"{lease.name!r} is not write-locked by this lease: only a writer can downgrade")
        sent = self.driver.now()
        reader = claim._replace(units=1, queue=False)
        try:
            answer = await self.store.claim(reader, ROUND)
        except Unavailable as error:
            try:
                if (left := sent + ROUND - self.driver.now()) <= 0:
                    raise
                answer = await self.store.claim(reader, left)
            except Unavailable:
                raise Unavailable(
                    f"whether {lease.name!r} was downgraded is not known, so others may be reading: "
                    f"do not write, and downgrade() again ({error})"
                ) from error
        same = type(answer) is Grant and answer.token == lease.token
        with self.mutex:
            held = lease._state is HELD
            if held and same and type(answer) is Grant:
                self.renewer.keep(lease, answer, sent)
            elif held:
                self.renewer.lose(lease, "it ran out before it could be downgraded")
        if not (held and same):
            await self._withdraw(claim, FIND_OUT)  # what the store granted instead is not what the caller holds
            if held:
                self.renewer.announce([lease])
            raise lease._over()
        if lease._key is None:
            self._remember(lease)

    # ---- the end

    def _closed(self, name: str) -> BaseException:
        if self.exiting and threading.current_thread() is not threading.main_thread():
            return SystemExit()  # which ends a thread without a word: it was left behind, and the process ends
        return Misuse(f"cannot acquire {name!r}: this connection was closed")

    async def close(self, timeout: float = CLOSING) -> None:
        """Release what is held, stop renewing, disconnect: all of it within `timeout`. What is left ends by its ttl."""
        if self.closed:
            return
        deadline = self.driver.now() + timeout
        self._closing = self.driver.bell()
        self.closed = True
        try:
            self.renewer.close()  # first: what is acquired from now on is refused there, and taken back
            self.store.wake_waiters()
            await self.driver.shield(lambda: self._leave_everything(deadline))
        finally:
            await self.store.close()
            await self.renewer.gone(deadline)

    def leftovers(self) -> list[Owed]:
        """What this process holds or still has to give back: for whoever releases it when the loop is gone."""
        self.closed = True
        self.renewer.close()
        for lease in self.renewer.leases():
            self._hand_in(lease)
        return self.leaving.forget()

    async def _leave_everything(self, deadline: float) -> None:
        for lease in self.renewer.leases():
            self._hand_in(lease)
        await self.leaving.finish(deadline)
        while self._others_under_way() and self._closing is not None and (left := deadline - self.driver.now()) > 0:
            self.store.wake_waiters()  # again: one may have begun to wait in the moment after the first time
            await self._closing.wait(min(left, 0.1))
        await self.leaving.finish(deadline)  # what those could not take back themselves

    def _others_under_way(self) -> bool:
        """Not counting whoever is calling close(), from within a subscriber."""
        me = self.driver.me()
        return any(self._telling.get(holder) is not me for holder in list(self._under_way))

    def _hand_in(self, lease: Lease) -> None:
        """Out of the renewer's hands, and to be released; unless it has run out by itself."""
        with self.mutex:
            if lease._state is not HELD:
                return
            if lease._key is not None:
                self._forget(lease)
            if self.driver.now() >= lease._deadline:
                self.renewer.lose(lease)
            else:
                lease._state = RELEASING
                self.renewer.remove(lease)
                self._hand_over(lease)
        if lease._state is LOST:
            self.renewer.announce([lease])
        elif lease._loss is not None:
            lease._loss.over()


def _waits_for_itself(ask: Ask, claim: Claim, since: float) -> str:
    if claim.capacity == 1:
        return f"led from here already, for {since:.1f} s, and who leads would wait for itself: use the lease that you have"
    if claim.units == 1:
        return (
            "read-locked here already, and a reader that asks to write would wait for itself: "
            "release the read lock first, or take the write lock from the start and downgrade() it"
        )
    again = "read" if ask.reads else "write again"
    return (
        f"write-locked here already, for {since:.1f} s, and a writer that asks to {again} would wait for itself: "
        "use the lease that you have, downgrade() it, or release it first"
    )


def tell(snapshot: Snapshot, besides: Claim | None = None) -> str:
    """Who is in the way, as a person on call wants to read it."""
    parts = []
    for holding in snapshot.holders[:3]:
        what = f" {holding.units} of {snapshot.capacity} units" if 1 < snapshot.capacity < 2**31 - 1 else ""
        parts.append(
            f"held by {printable(holding.owner)}{what} for {holding.age:.1f} s "
            f"({holding.left:.1f} s of its ttl left, token {holding.token})"
        )
    if len(snapshot.holders) > 3:
        parts.append(f"and {len(snapshot.holders) - 3} more holders")
    waiting = [one for one in snapshot.waiters if besides is None or one.owner != besides.owner]
    if waiting:
        parts.append(f"{len(waiting)} in line, first {printable(waiting[0].owner)} since {waiting[0].age:.1f} s")
    if not parts:
        return "it has become free since"
    return "; ".join(parts)
