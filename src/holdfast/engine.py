"""Acquire and release. The only waiting loop of the library is here.

Rule 1: whatever interrupts an acquire (time, cancellation, Ctrl-C, a broken store) ends in a release of that claim.
Rule 2: deadlines count from before the request was sent. An answer that took longer than the grant lives is no grant.
Rule 3: a claim is repeated with the same holder, so an answer that was lost on its way is found again.
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple, TypeVar

from . import events, rule
from .claim import Claim, Grant, Place, Snapshot, new_holder
from .drivers.base import Driver
from .errors import Misuse, NotAcquired, Unavailable
from .events import Hook
from .lease import HELD, LOST, RELEASED, RELEASING, Lease
from .renewal import Renewer
from .stores.base import Store

L = TypeVar("L", bound=Lease)
_tuple = tuple.__new__  # a named tuple's own constructor is a function in Python around this

MAX_OWNER = 255
MAX_KNOWN = 1024
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


class Engine:
    """A connected store, and what this process holds in it."""

    def __init__(self, store: Store, driver: Driver, label: str = "") -> None:
        self.store = store
        self.driver = driver
        self.hook = Hook()
        self.label = label
        self.mutex = threading.Lock()
        self.closed = False
        self._start()

    def _start(self) -> None:
        self._whereabouts = f"{os.uname().nodename}/{os.getpid()}/"
        self._owners: dict[str, str] = {}
        self._mine: dict[tuple[str, int], list[Lease]] = {}
        self.renewer = Renewer(self.store, self.driver, self.hook, self.mutex)

    def forked(self) -> None:
        """In a forked child, which owns nothing: the parent goes on holding what it held."""
        for leases in (self.renewer._all(), *self._mine.values()):
            for lease in leases:
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

    # ---- acquire

    async def acquire(self, ask: Ask, timeout: float | None, lease_type: type[L]) -> L:
        if self.closed:
            raise _closed(ask.name)
        name, ttl, units, capacity, fair, renew, note, at_most, at_least, reentrant, reads = ask
        if reentrant or reads or units == capacity > 1:
            again = self._mine_again(ask, lease_type)
            if again is not None:
                return again
        lease: L | None = None
        claim = _tuple(Claim, (name, new_holder(), self.owner(), ttl, units, capacity, fair, timeout != 0, note))
        now = self.driver.now
        started = sent = now()
        try:
            try:
                answer = await self.store.claim(claim)
            except Unavailable:  # once more: the answer may have been lost, and repeating finds it
                answer = await self.store.claim(claim)
            if type(answer) is not Grant or now() >= sent + answer.ttl:
                answer, sent = await self._wait_in_line(claim, answer, timeout, started)
            lease = lease_type(self, answer, sent)
            if at_most is not None or at_least or not renew:
                lease._bound(answer.ttl if not renew else at_most, at_least)
            if reentrant or reads:
                self._remember(lease)
            self.renewer.add(lease)
        except NotAcquired:
            if claim.queue or type(answer) is Grant:  # one that came too late may live on in the store for a moment
                await self._withdraw(claim)
            raise
        except BaseException:
            if lease is not None:
                self._drop(lease)
            await self._withdraw(claim)
            raise
        if events.ACQUIRED in self.hook.by_kind:
            self.hook.emit(events.ACQUIRED, name, claim.owner, answer.token, sent - started)
        return lease

    async def _wait_in_line(
        self, claim: Claim, answer: Grant | Place, timeout: float | None, started: float
    ) -> tuple[Grant, float]:
        now = self.driver.now
        give_up = None if timeout is None else started + timeout
        troubled: float | None = None
        if claim.queue and events.WAITING in self.hook.by_kind:
            self.hook.emit(events.WAITING, claim.name, claim.owner)
        while True:
            if self.closed:  # by another thread or task, while we waited
                raise _closed(claim.name)
            left = PATIENCE if give_up is None else give_up - now()
            if left <= 0:
                raise await self._not_acquired(claim, timeout, now() - started)
            sent = now()
            try:
                if type(answer) is Place:
                    await self.store.wait(answer, min(left, answer.wake_in, claim.ttl / 3, PATIENCE))
                    sent = now()
                answer = await self.store.claim(claim)
            except Unavailable:
                # A server that restarts is ridden out for a ttl: whoever had a place in line joins again.
                troubled = troubled or sent
                if now() >= troubled + claim.ttl or (give_up is not None and now() >= give_up):
                    raise
                await self.driver.sleep(self.driver.uniform(0.02, 0.1))
                continue
            troubled = None
            if type(answer) is Grant and now() < sent + answer.ttl:
                return answer, sent

    async def _withdraw(self, claim: Claim, keep_until: float = 0.0) -> bool:
        """No ghost: take back a claim that may have arrived, whatever we know of it. False: that failed."""
        try:
            await self.driver.shield(lambda: self._leave(claim, keep_until))
        except Exception as error:
            self.hook.emit(events.RELEASE_FAILED, claim.name, claim.owner, detail=str(error))
            return False
        return True

    def _drop(self, lease: Lease) -> None:
        """It was never handed out: neither renew it nor find it again."""
        with self.mutex:
            self.renewer.remove(lease)
            if lease._key is not None:
                self._forget(lease)
            lease._state = RELEASED

    async def _not_acquired(self, claim: Claim, timeout: float | None, waited: float) -> NotAcquired:
        self.hook.emit(events.NOT_ACQUIRED, claim.name, claim.owner, seconds=waited)
        try:
            snapshot = await self.store.inspect(claim.name)
        except Unavailable:
            snapshot = None
        when = f"within {timeout:g} s" if timeout else "at once"
        story = tell(snapshot, claim) if snapshot else "who holds it could not be found out"
        return NotAcquired(f"could not get {claim.name!r} {when}: {story}", claim.name, snapshot)

    # ---- what this thread or task holds already

    def _mine_again(self, ask: Ask, lease_type: type[L]) -> L | None:
        """A lock that lets its own holder in again, or says why it cannot."""
        key = (ask.name, id(self.driver.me()))
        if key not in self._mine:
            return None
        with self.mutex:  # in one piece: another thread may be releasing a lease that it was handed
            mine = self._mine.get(key, [])
            held = [lease for lease in mine if lease.held]
            if ask.reentrant and mine:
                mine[-1].check()  # a lost lock is not entered again: the outer body would not know
            elif not held:
                return None
            lease = held[-1]
            rule.same_capacity(ask.name, ask.capacity, lease._grant.claim.capacity)
            if not ask.reentrant and not ask.reads:
                raise Misuse(
                    f"{ask.name!r} is read-locked here already, and a reader that asks to write would wait for itself: "
                    "release the read lock first, or take the write lock from the start and downgrade() it"
                )
            # A reader that reads again comes in at once: behind a waiting writer, it would wait for itself.
            lease._entries += 1
        assert isinstance(lease, lease_type)
        return lease

    def _remember(self, lease: Lease) -> None:
        key = (lease.name, id(self.driver.me()))
        lease._key = (key, self.driver.me())  # the thread or task too, so that its id is not given to another meanwhile
        with self.mutex:
            self._mine.setdefault(key, []).append(lease)

    def _forget(self, lease: Lease) -> None:
        key, _ = lease._key
        lease._key = None
        mine = self._mine.get(key)
        if mine and lease in mine:
            mine.remove(lease)
            if not mine:
                del self._mine[key]

    # ---- release

    async def release(self, lease: Lease) -> bool:
        """Leave. False: the store did not have it any more. If the store does not answer, it may be tried again."""
        ran_out = False
        with self.mutex:
            state = lease._state
            if lease._entries > 1 and (state is HELD or state is LOST):
                lease._entries -= 1
                return lease.held
            if state is HELD:
                ran_out = self.driver.now() >= lease._deadline
                if ran_out:  # and the renewer has not come round to it: it is over all the same
                    self.renewer.lose(lease)
                else:
                    lease._state = RELEASING
                    self.renewer.remove(lease)
            if lease._key is not None:
                self._forget(lease)
        if state is RELEASED or state is LOST:
            return False
        claim = lease._grant.claim
        if ran_out:
            self.renewer.announce([lease])
            await self._withdraw(claim, lease._keep_until)  # the store may count a moment longer
            return False
        if lease._loss is not None:
            lease._loss.over()
        try:
            there = await (
                self.store.release(claim) if not lease._keep_until else self._leave(claim, lease._keep_until)
            )
        except Exception as error:
            self.hook.emit(events.RELEASE_FAILED, claim.name, claim.owner, lease.token, detail=str(error))
            raise
        except BaseException:
            if await self._withdraw(claim, lease._keep_until):
                lease._state = RELEASED
            raise
        lease._state = RELEASED
        if events.RELEASED in self.hook.by_kind:
            self.hook.emit(events.RELEASED, claim.name, claim.owner, lease.token, self.driver.now() - lease._since)
        return there

    async def _leave(self, claim: Claim, keep_until: float) -> bool:
        """Leave, but not before `keep_until`: the claim is repeated with what is left as its ttl, and ends by itself."""
        left = keep_until - self.driver.now()
        if left <= 0:
            return await self.store.release(claim)
        return type(await self.store.claim(claim._replace(ttl=left, queue=False))) is Grant

    async def downgrade(self, lease: Lease) -> None:
        """A writer becomes a reader, and keeps its token; readers in line come in."""
        lease.check()
        claim = lease._grant.claim
        if claim.units != claim.capacity or claim.capacity == 1:
            raise Misuse(f"{lease.name!r} is not write-locked by this lease: only a writer can downgrade")
        sent = self.driver.now()
        answer = await self.store.claim(claim._replace(units=1, queue=False))
        same = type(answer) is Grant and answer.token == lease.token
        with self.mutex:
            held = lease._state is HELD
            if held and same and type(answer) is Grant:
                self.renewer.keep(lease, answer, sent)
            elif held:
                self.renewer.lose(lease, "it ran out before it could be downgraded")
        if not (held and same):
            await self._withdraw(claim)  # what the store granted instead is not what the caller holds
            if held:
                self.renewer.announce([lease])
            raise lease._over()
        self._remember(lease)

    # ---- the end

    async def close(self) -> None:
        """Release what is held, stop renewing, disconnect."""
        if self.closed:
            return
        self.closed = True
        self.renewer.close()  # first: what is acquired from now on is refused there, and taken back
        try:
            await self.driver.shield(self._release_everything)
        finally:
            await self.store.close()

    async def _release_everything(self) -> None:
        interruption: BaseException | None = None
        for lease in self.renewer.leases():
            lease._entries = 1
            try:
                await self.release(lease)
            except Exception:
                continue  # told as an event; the ttl ends it
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption


def _closed(name: str) -> Misuse:
    return Misuse(f"cannot acquire {name!r}: this connection was closed")


def printable(text: str) -> str:
    """A thread may be called anything; whoever lists locks shall not have their terminal played with."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def tell(snapshot: Snapshot, besides: Claim | None = None) -> str:
    """Who is in the way, as a person on call wants to read it."""
    parts = []
    for holding in snapshot.holders[:3]:
        what = f" {holding.units} of {snapshot.capacity} units" if 1 < snapshot.capacity < 2**31 - 1 else ""
        parts.append(
            f"held by {holding.owner}{what} for {holding.age:.1f} s ({holding.left:.1f} s of its ttl left, token {holding.token})"
        )
    if len(snapshot.holders) > 3:
        parts.append(f"and {len(snapshot.holders) - 3} more holders")
    waiting = [one for one in snapshot.waiters if besides is None or one.owner != besides.owner]
    if waiting:
        parts.append(f"{len(waiting)} in line, first {waiting[0].owner} since {waiting[0].age:.1f} s")
    if not parts:
        return "it has become free since"
    return "; ".join(parts)
