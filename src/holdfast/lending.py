"""Grants that stay with this process for a while, and are lent from hand to hand in it: `lock(…, keep=0.2)`.

The grant is a lease of its own, a `Stay`: renewed, lost and released as any other, and in nobody's hand. Who enters is lent it:
a lease of theirs, with its token and its deadline.

Rule 1: one at a time (readers: all who like), first come, first served. Whoever cannot have it at once stands in the line of this
  process; its head asks the store, if nothing is here to be lent. A newcomer never overtakes the line.
Rule 2: what is over is not lent: not after the deadline, not once it is lost, given up, closed, or inherited by a fork. It is
  decided under the engine's mutex, which is also where a grant ends.
Rule 3: what happens to the grant happens to who is inside: a renewal, its trouble, the loss, the end of the connection.
Rule 4: it is given up `keep` seconds after its last use; or, when somebody elsewhere waits, as soon as the section under way ends
  (`keep` seconds later at most, if others wait here too). When nobody can tell whether somebody waits, somebody does.
Rule 5: nobody's grant is nobody's. Only the keeper (in the background, one a grant) and who is inside refer to it: when both are
  gone, whatever has interrupted them, it is let go like any lease that was dropped. So are places in the line.
Rule 6: a section that ended in an error ends the grant: what it had sent may still be on its way, and arrive in the next section,
  whose token must outrank it then. Sections that ended well share theirs: it orders processes, not the sections of one.
Rule 7: locks that differ in anything (ttl, keep, …) share no grant: to each other they are strangers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from . import events
from .asking import Ask, GiveUp
from .claim import ROUND, Claim, new_holder
from .drivers.base import Bell
from .errors import HoldfastError, NotAcquired, Unavailable
from .lease import HELD, LOST, RELEASED, RELEASING, Lease
from .staying import Kept, Stay, Waiter
from .stores.base import Store
from .waiting import not_acquired

if TYPE_CHECKING:
    from .engine import Engine

L = TypeVar("L", bound=Lease)

LOOK = 0.25  # seconds: so often a name in use is looked at, and so much later than `keep` it may be given up
PATIENCE = 10.0  # nor does anybody listen longer without looking: who waits may have come while nobody listened
SOON = 0.02
GIVING_UP = 0.5  # so long somebody who has a timeout sees to it that what is over here is given up, before asking anew
AGAIN = 1.0  # and so often whoever waits here looks for itself, should nobody have rung
MOST_THREADS, MOST_TASKS = 32, 1024  # each kept name has somebody in the background; names beyond that are not kept


def wanted_of(store: Store) -> Any:
    """How that store is asked, if it can be."""
    return getattr(store, "wanted", None)


class Lending:
    """What one connected store has granted, and stays."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._driver = engine.driver
        self._now = engine.driver.now
        self._mutex = engine.mutex
        self._most = MOST_TASKS if engine.driver.spawns_lightly else MOST_THREADS
        self._kept: dict[Ask, Kept] = {}
        self._swept = -LOOK  # when it was last looked whether any of them is in nobody's hand

    def names(self) -> list[str]:
        """Of what is kept here, or asked for."""
        return [ask.name for ask in list(self._kept)]

    def forked(self) -> None:
        """In the child, where nobody is to be woken: the bells are the parent's."""
        for kept in self._kept.values():
            if (stay := kept.here()) is not None:
                stay.kept = None

    # ---- entering

    def lend(self, ask: Ask, lease_type: type[L]) -> L | None:
        """At once, if it is here and nobody is in line for it."""
        kept = self._kept.get(ask)
        if kept is None:
            return None
        with self._mutex:
            stay = kept.here()
            now = self._now()
            if stay is None or kept.line or not kept.may_lend(stay, now) or self._engine.closed:
                return None
            lease = self._lent(stay, lease_type, now)
        if ask.reentrant or ask.reads or events.ACQUIRED in self._engine.hook.by_kind:
            self._handed_out(lease, ask, 0.0)
        return lease

    def _lent(self, stay: Stay, lease_type: type[L], now: float) -> L:
        lease = lease_type.__new__(lease_type)  # not made yet: dropped now, it is nothing
        lease._stay = stay
        stay.inside = (*[one for one in stay.inside if one() is not None], ref(lease)) if stay.inside else (ref(lease),)
        lease.__init__(self._engine, stay._grant, stay._deadline - stay._grant.ttl)  # type: ignore[misc]
        lease._deadline = stay._deadline
        lease._since = now
        lease._by = stay._by = ref(self._driver.me())
        if stay._trouble:
            lease._troubled = True
        stay.sections += 1
        return lease

    def _handed_out(self, lease: Lease, ask: Ask, waited: float) -> None:
        engine = self._engine
        if ask.reentrant or ask.reads:
            engine.mine.remember(lease)
        # Of the first section, the engine told when it asked the store.
        if lease._stay.sections > 1 and events.ACQUIRED in engine.hook.by_kind:
            claim, token, ttl = lease._grant
            engine.hook.emit(events.ACQUIRED, claim.name, claim.owner, token, waited, "", claim.lock, waited, ttl)
            if engine.closed:  # by a subscriber
                raise engine._closed(ask.name)

    async def borrow(self, ask: Ask, timeout: float | None, lease_type: type[L], cancel: GiveUp | None) -> L:
        """Wait here for one's turn, and ask the store if there is nothing to be lent then."""
        engine = self._engine
        started = self._now()
        me = Waiter(self._driver.bell())
        with self._mutex:
            kept = self._kept.get(ask) or self._found(ask)
            alone = joined = True
            if kept is not None:
                stay = kept.here()
                alone = kept.first() is None and (stay is None or not stay.borrowers())
                joined = (alone or timeout != 0) and not kept.is_others(self._now())
                stay = None
                if joined:
                    kept.line.append(ref(me))
        # Too many: this one is not kept. Nor is a reader who only tries, which others who read, or ask, are no reason to
        # refuse; nor one who would wait for readers, where the store lets readers in beside them.
        if kept is None or (kept.shared and not joined):
            return await engine.acquire(ask._replace(keep=0.0), timeout, lease_type, cancel)
        claim = Claim(ask.name, "", engine.owner(), ask.ttl)
        if not joined:
            raise await not_acquired(engine, claim, timeout, 0.0)
        try:
            if timeout is None:
                self._not_for_itself(kept, claim)
            if not alone and events.WAITING in engine.hook.by_kind:
                engine.hook.emit(events.WAITING, ask.name, claim.owner, lock=claim.lock)
            while True:
                if engine.closed:
                    raise engine._closed(ask.name)
                lease = await self._turn(kept, me, lease_type, timeout, started, cancel)
                if lease is not None:
                    self._handed_out(lease, ask, self._now() - started)
                    return lease
                left = AGAIN if timeout is None else started + timeout - self._now()
                if cancel is not None:
                    left = min(left, AGAIN / 2)
                    if cancel.is_set():
                        raise self._gave_up(claim, started)
                if left <= 0:
                    raise await not_acquired(engine, claim, timeout, self._now() - started)
                await me.bell.wait(min(left, AGAIN))
        finally:
            with self._mutex:
                kept.leave(me)
                self._tidy(kept)

    def _found(self, ask: Ask) -> Kept | None:
        if len(self._kept) >= self._most:
            now = self._now()
            if now >= self._swept + LOOK:  # not for everybody who is not kept: they may be thousands
                self._swept = now
                for kept in tuple(self._kept.values()):
                    self._tidy(kept)
            if len(self._kept) >= self._most:
                return None
        kept = self._kept[ask] = Kept(ask)
        return kept

    def _not_for_itself(self, kept: Kept, claim: Claim) -> None:
        with self._mutex:
            stay = kept.here()
            inside = stay.borrowers() if stay is not None and not kept.shared else ()
        self._engine.mine.not_for_itself(claim, inside)

    def _gave_up(self, claim: Claim, started: float) -> NotAcquired:
        self._engine.hook.emit(events.NOT_ACQUIRED, claim.name, claim.owner, seconds=self._now() - started)
        return NotAcquired(f"gave up waiting for {claim.name!r}: what was passed as cancel= is set", claim.name)

    def _tidy(self, kept: Kept) -> None:
        if kept.here() is None and kept.first() is None and self._kept.get(kept.ask) is kept:
            del self._kept[kept.ask]

    async def _turn(
        self,
        kept: Kept,
        me: Waiter,
        lease_type: type[L],
        timeout: float | None,
        started: float,
        cancel: GiveUp | None,
    ) -> L | None:
        """Is it ours? Then the lease; None: not yet."""
        while True:
            with self._mutex:
                if kept.first() is not me:
                    return None
                now = self._now()
                stay = kept.here()
                if stay is not None:
                    if kept.may_lend(stay, now):
                        return self._lent(stay, lease_type, now)
                    if stay.borrowers():
                        return None
                    self._take(kept, stay)  # over, and nobody inside: the next one is another grant
            if stay is not None:
                with suppress(HoldfastError):
                    await self.give_up(stay, ROUND if timeout is None else GIVING_UP)
                continue
            # Below zero: there is less time than usual to find out what came of asking.
            left = None if timeout is None else max(started + timeout - now, -GIVING_UP)
            fresh = await self._engine.acquire(kept.of_store, left, Stay, cancel)  # referred to until it is lent
            self._install(kept, fresh)

    def _install(self, kept: Kept, stay: Stay) -> None:
        with self._mutex:
            if stay._now is not HELD:
                return  # lost, or closed, meanwhile
            bell = self._driver.bell()
            stay.kept, kept.stay, kept.bell, kept.used, kept.wanted = kept, ref(stay), bell, self._now(), 0.0
        self._driver.spawn(lambda: self._look_after(kept, stay, bell), "holdfast-keeper")

    # ---- leaving

    def give_back(self, lease: Lease) -> Stay | bool:
        """A section has ended. The grant itself, if it is to be released now."""
        stay: Stay = lease._stay
        with self._mutex:
            state = lease._state
            if lease._entries > 1 and (state is HELD or state is LOST):
                lease._entries -= 1
                return lease.held
            if lease._key is not None:
                self._engine.mine.forget(lease)
            if state is not HELD:
                return False
            now = self._now()
            if now >= lease._deadline:
                return stay  # releasing what is over finds that out, and tells
            kept = stay.kept
            lease._state = RELEASED
            lease._stay = stay._by = None
            stays = kept is not None and not self._engine.closed and not kept.is_over(stay, now)
            if len(stay.inside) > 1:  # of several readers, the last one out gives it up
                stay.inside = tuple(one for one in stay.inside if one() is not lease)
                stays = stays or bool(stay.borrowers())
            else:
                stay.inside = ()
            if kept is not None:
                kept.used = now
                if not stays:
                    self._take(kept, stay)
                elif kept.line:
                    kept.ring()
        if events.RELEASED in self._engine.hook.by_kind:
            self._engine._released(lease)
        return stays or stay

    def returned(self, stay: Stay) -> None:
        """By nobody: the lease was dropped."""
        with self._mutex:
            if stay.kept is not None:
                stay.kept.ring()

    def _take(self, kept: Kept, stay: Stay) -> None:
        """Out of the renewer's hands, and no longer to be lent. Under the mutex."""
        kept.stay = None
        if self._now() < stay._deadline:  # else releasing it tells of the loss
            stay._state = RELEASING
            self._engine.renewer.remove(stay)
        if kept.bell is not None:
            kept.bell.ring()

    async def give_up(self, stay: Stay, within: float = ROUND) -> bool:
        """To the store; then the head of our own line asks for it anew, behind whoever waits elsewhere."""
        try:
            return await self._engine.release(stay, within)
        finally:
            self.returned(stay)

    async def make_way(self, name: str, timeout: float | None) -> float | None:
        """For a writer of this process: what stays here for its readers, and none of them uses. What is left of its time: below
        zero, there is less than usual to find out what came of asking."""
        started = self._now()
        for ask, kept in tuple(self._kept.items()):
            if ask.name != name or not ask.reads:
                continue
            with self._mutex:
                stay = kept.here()
                if stay is None or stay.borrowers() or kept.first() is not None:
                    continue
                self._take(kept, stay)
            with suppress(HoldfastError):
                await self.give_up(stay, GIVING_UP)
        return None if timeout is None else max(timeout - (self._now() - started), -GIVING_UP)

    # ---- the keeper

    async def _look_after(self, kept: Kept, stay: Stay, bell: Bell) -> None:
        me = new_holder()
        try:
            self._engine._under_way[me] = False  # from here on close() waits for us, and wakes us
            while seconds := self._next_look(kept, stay):
                if kept.wanted:
                    await bell.wait(seconds)  # whoever ends the section under way gives it up
                elif await self._is_wanted(stay, seconds):
                    kept.wanted = self._now()
                    if stay.borrowers() or kept.line:  # else it is given up anyway
                        await self._ask_for(stay)
            if seconds is not None:
                with suppress(HoldfastError):
                    await self.give_up(stay)
        finally:
            self._engine._over(me)
            with self._mutex:
                self._tidy(kept)

    def _next_look(self, kept: Kept, stay: Stay) -> float | None:
        """In so many seconds. 0: it is to be given up now. None: somebody else has done that."""
        seldom = min(max(kept.keep, LOOK), PATIENCE)
        with self._mutex:
            if kept.here() is not stay:
                return None
            now = self._now()
            if stay.borrowers():
                return seldom if not self._engine.closed else SOON
            left = kept.used + kept.keep - now
            # While everything is closed, we may be the last who know of it.
            if self._engine.closed or kept.is_over(stay, now) or (left <= 0 and kept.first() is None):
                self._take(kept, stay)
                return 0.0
            if kept.first() is None:
                return min(max(left, 0.001), PATIENCE)
            kept.ring()
            return seldom

    async def _is_wanted(self, stay: Stay, seconds: float) -> bool:
        try:
            wanted: bool = await wanted_of(self._engine.store)(stay._grant, seconds)
            return wanted
        except Exception as error:  # nobody can tell
            if not isinstance(error, HoldfastError):
                events.report(error, f"looking who wants {stay.name!r}")
            return True

    async def _ask_for(self, stay: Stay) -> None:
        """Is it still ours? Whoever was put out, or forgotten by a server that came back empty, is told that it is wanted, too;
        and must not let others in until its next renewal finds out."""
        sent = self._now()
        with suppress(Unavailable):
            (verdict,) = await self._engine.store.renew([stay._grant], min(ROUND, stay.remaining()))
            if not isinstance(verdict, Unavailable):
                self._engine.renewer.renewed(stay, verdict, sent, None)
