"""Keeps leases alive: one renewer a connected store, one batch a round.

Rule 1: a renewal counts from before it was sent; an answer that did not come extends nothing.
Rule 2: what is over stays over. A late "yes" to a lease that was lost meanwhile is given back to the store.
Rule 3: every conversation is bounded by a third of the shortest ttl, so that no lease waits behind another's trouble.
Rule 4: verdicts are three, per lease: kept, lost, unknown. Unknown is asked again soon, and touches nobody else.
Rule 5: renewal is for leases that somebody has. References here are weak; a lease that was dropped is let go, loudly.
Rule 6: nothing ends the renewer while there are leases: no callback, no subscriber, no cancellation of all tasks.

Leases of one ttl fall due in the order in which they were last confirmed, so a plain dict a ttl, which keeps that order,
does what a heap would do, with O(1) to add and to remove and nothing left behind by a release. Leases in trouble, and
those with a time limit, are few or momentary: they are looked at one by one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from . import events
from .claim import Grant, Verdict
from .drivers.base import Bell, Driver
from .errors import Misuse, Unavailable
from .events import Hook, contained, report
from .lease import HELD, LOST, Lease
from .leaving import Leaving, Owed
from .stores.base import Store

if TYPE_CHECKING:
    from .engine import Engine

_IDLE = 60.0  # with nothing to renew for so long, the renewer goes home
_NEVER = float("inf")
_SLACK = 1 / 12  # of a ttl: so much early, or out of order, does not matter


class Dropped(NamedTuple):
    """What is left of a lease that nobody references any more."""

    engine: Engine  # kept alive until the lock is released
    grant: Grant
    key: Any
    keep_until: float
    deadline: float
    where: str
    loss: Any  # who waits for the end of it is to be told that it has come
    told: bool  # that it was dropped: not, if it was being released when somebody interrupted that
    over: bool = False  # its time was over by then: it is forgotten, and that is all
    stay: Any = None  # the grant of which it was lent, which is not released with it

    def owed(self) -> Owed:
        return Owed(self.grant.claim, self.deadline, self.grant.token, self.keep_until, done=self.released)

    def released(self) -> Engine:
        """Whose release was cut short was not told of as dropped, and is told of as released."""
        if not self.told and events.RELEASED in self.engine.hook.by_kind:
            claim = self.grant.claim
            self.engine.hook.emit(events.RELEASED, claim.name, claim.owner, self.grant.token, lock=claim.lock)
        return self.engine


class Renewer:
    def __init__(self, store: Store, driver: Driver, hook: Hook, mutex: threading.Lock, leaving: Leaving) -> None:
        self._store = store
        self._driver = driver
        self._hook = hook
        self._mutex = mutex
        self._leaving = leaving
        self._by_ttl: dict[float, dict[int, ref[Lease]]] = {}
        self._latest: dict[float, float] = {}  # a ttl's latest due time so far
        self._odd: dict[int, ref[Lease]] = {}
        self.dropped: deque[Dropped] = deque()
        self._bell: Any = None  # there while the renewer runs
        self._runner: object = None  # in which thread or task, once it has begun
        self._home: Bell | None = None  # rung when it has gone home, if somebody waits for that
        self._wake_at = _NEVER
        self._closed = False
        tell_losses_to = getattr(store, "tell_losses_to", None)
        if tell_losses_to is not None:  # a store whose locks live with a connection knows of its end before any renewal
            tell_losses_to(self.taken_away)

    # ---- called by the engine, from any thread

    def add(self, lease: Lease) -> None:
        with self._mutex:
            if self._closed:
                raise Misuse(f"cannot acquire {lease.name!r}: this connection was closed; connect() again")
            ttl = lease._grant.ttl
            due = lease._since + ttl / 3
            if lease._limit is None and ttl in self._by_ttl and due > self._latest.get(ttl, _NEVER):  # as nearly always
                lease._due = self._latest[ttl] = due
                self._by_ttl[ttl][id(lease)] = ref(lease)
            else:
                due = self._file(lease, lease._since)
            if due < self._wake_at or self._bell.asleep:  # in an event loop that was closed, or does not run
                self._wake(due)

    def renewed(self, lease: Lease, verdict: Grant | None, sent: float, limit: float | None) -> None:
        """Somebody renewed it by hand, and moved its end to `limit`."""
        with self._mutex:
            if verdict is not None and limit is not None and lease._state is HELD:
                lease._limit = limit
        self._confirm([(lease, verdict)], sent)
        with self._mutex:
            if lease._state is HELD and (lease._due < self._wake_at or self._bell.asleep):
                self._wake(lease._due)

    def go_on(self) -> None:
        """Somebody relies on a lease, in another event loop perhaps than whoever renewed it."""
        bell = self._bell
        if bell is not None and bell.asleep:
            with self._mutex:
                if self._bell is bell and not self._closed:
                    self._wake(self._next_due())

    def remove(self, lease: Lease) -> None:
        """Called under the mutex: ends renewal together with whatever ends the lease."""
        same = self._by_ttl.get(lease._grant.ttl)
        if same is None or same.pop(id(lease), None) is None:
            self._odd.pop(id(lease), None)
        elif not same and len(self._by_ttl) > 16:
            del self._by_ttl[lease._grant.ttl]  # an empty dict is kept for the next lease, but not for ever
            self._latest.pop(lease._grant.ttl, None)

    def leases(self) -> list[Lease]:
        with self._mutex:
            return list(self._all())

    def ring(self) -> None:
        """Somebody has dropped a lease. Called by the collector: in any thread, at any moment, so it takes no lock."""
        bell = self._bell
        if bell is not None:
            bell.ring()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._bell is not None:
                self._bell.ring()
        self.let_go()

    async def gone(self, deadline: float) -> None:
        """After close(), until the renewer has ended: the end of the interpreter must not stop it with the mutex taken."""
        self._home = home = self._driver.bell()
        while self._runner is not None and self._runner is not self._driver.me() and (bell := self._bell) is not None:
            left = deadline - self._driver.now()
            if left <= 0 or bell.asleep or not bell.ring():
                return
            await home.wait(left)

    def _wake(self, due: float) -> None:
        if self._bell is not None and not self._bell.asleep and self._bell.ring():
            self._wake_at = due
        else:  # not started, or its event loop is gone, or stands still while this one runs
            bell = self._driver.bell()
            self._bell, self._wake_at = bell, due  # from here on all is undone, whatever interrupts us
            try:
                self._driver.spawn(lambda: self._run(bell), "holdfast-renewer", lambda: self._needed(bell))
            except BaseException:  # no more threads to be had: the next lease tries again
                self._gone_home(bell)
                raise

    def _file(self, lease: Lease, sent: float) -> float:
        """Put it where it is found when it is due; returns when that is."""
        ttl = lease._grant.ttl
        lease._due = due = sent + ttl / 3
        if lease._limit is not None:
            # One that cannot be extended is left alone until it ends: due before, it would be looked at without pause.
            lease._due = due = lease._deadline if lease._limit <= lease._deadline else min(due, lease._deadline)
        elif due >= (latest := self._latest.get(ttl, 0.0)) - ttl * _SLACK:
            if due > latest:
                self._latest[ttl] = due
            same = self._by_ttl.get(ttl)
            if same is None:
                same = self._by_ttl[ttl] = {}
            same[id(lease)] = ref(lease)
            return due
        self._odd[id(lease)] = ref(lease)  # its answer took so long that it would stand behind others who are due later
        return due

    def _all(self) -> Iterator[Lease]:
        for some in (*self._by_ttl.values(), self._odd):
            yield from _living(some)

    # ---- the renewer itself

    async def _run(self, bell: Any) -> None:
        idle_since: float | None = None
        self._runner = self._driver.me()
        try:
            while not self._closed:
                with self._mutex:
                    if self._bell is not bell:
                        if self._bell is None or not self._bell.asleep:
                            return  # whoever started us was interrupted, and knows nothing of us; or our loop stood still
                        self._bell, self._runner = bell, self._driver.me()  # and now the other one does
                    now = self._driver.now()
                    due = self._next_due()
                    idle_since = None if due < _NEVER else idle_since or now
                    if idle_since is not None and now >= idle_since + _IDLE:
                        self._gone_home(bell)  # under the same lock as the decision, so that no lease slips in between
                        return
                    # Not later than announced before: a lock taken and released in a loop must not wake us each time.
                    if self._wake_at <= now or due < self._wake_at:
                        self._wake_at = due
                await bell.wait(min(self._wake_at - now, _IDLE))
                try:
                    await self._round()
                except Exception as error:  # nothing may end renewal silently, not even a mistake of ours
                    report(error, "a round of renewals")
                    await self._driver.sleep(0.1)
        except BaseException:
            with self._mutex:
                if not any(self._all()):
                    self._gone_home(bell)  # else it is started again, with the same bell: see _needed
            raise
        with self._mutex:
            self._gone_home(bell)

    def _needed(self, bell: Any) -> bool:
        """The renewer was ended from outside: is it to go on?"""
        with self._mutex:
            needed = not self._closed and self._bell is bell and any(self._all())
            if not needed:
                self._gone_home(bell)
            return needed

    def _gone_home(self, bell: Any) -> None:
        if self._bell is bell:
            self._bell, self._runner, self._wake_at = None, None, _NEVER
            if self._home is not None:
                self._home.ring()

    def _next_due(self) -> float:
        soonest = min((lease._due for lease in _living(self._odd)), default=_NEVER)
        for same in self._by_ttl.values():
            for first in _living(same):
                soonest = min(soonest, first._due)
                break
        return soonest

    def let_go(self) -> None:
        """Release in the background what was dropped, and say so."""
        if not self.dropped:
            return
        gone: list[Dropped] = []
        with self._mutex:
            for some in (*self._by_ttl.values(), self._odd):
                for number in tuple(
                    n for n, one in some.items() if (lease := one()) is None or lease._state is not HELD
                ):
                    del some[number]
            while self.dropped:
                # From one list to the other in one piece: whoever closes meanwhile finds it in the one or in the other.
                gone.append(dropped := self.dropped[0])
                if not dropped.over and dropped.stay is None:
                    self._leaving.owe(dropped.owed())
                self.dropped.popleft()
        for dropped in gone:
            claim, token = dropped.grant.claim, dropped.grant.token
            dropped.engine.mine.forget_dropped(dropped.key)
            if dropped.loss is not None:
                dropped.loss.over()
            if dropped.stay is not None:
                dropped.engine.lending.returned(dropped.stay)
                dropped.released()
            detail = (
                f"the lease of {claim.name!r} was dropped, so the lock is released: "
                f"keep it in a variable, or use `with`. It was acquired {dropped.where}"
            )
            if dropped.told and not dropped.over:
                self._emit(events.DROPPED, claim.name, claim.owner, token, detail=detail)
        self._leaving.go_on()

    async def _round(self) -> None:
        self.let_go()
        with self._mutex:
            now = self._driver.now()
            over = tuple(lease for lease in self._all_due(now) if now >= lease._deadline)
            for lease in over:
                self.lose(lease)
            # A little early for some, so that leases taken close together stay together: one conversation, not many.
            batch = list(self._all_due(now, slack=_SLACK))
            shortest = min((lease._grant.ttl for lease in self._all()), default=_NEVER)
            soonest = min((lease._deadline for lease in self._all()), default=_NEVER)
        self._announce(over)
        for lease in over:
            if lease._cut:  # it was promised to be over by now, but the store would keep it for what it was renewed
                self._leaving.later(lease._grant.claim, now + lease._grant.ttl, token=lease.token)
        batch = [lease for lease in batch if lease._limit is None or lease._limit > lease._deadline]
        if batch:
            # Back in time to tell whoever runs out meanwhile, unless that leaves no time to ask.
            await self._renew(batch, within=max(shortest / 12, min(shortest / 3, soonest - now)))

    def _all_due(self, now: float, slack: float = 0.0) -> Iterator[Lease]:
        for ttl, same in self._by_ttl.items():
            horizon = now + ttl * slack
            first = next(_living(same), None)
            if first is None or first._due > now:
                continue  # nobody's turn: the early ones wait for company
            for lease in _living(same):
                if lease._due > horizon:
                    break
                yield lease
        for lease in _living(self._odd):
            if lease._due <= now:
                yield lease

    async def _renew(self, batch: list[Lease], within: float) -> None:
        sent = self._driver.now()
        try:
            answers = await self._store.renew([lease._grant for lease in batch], within)
            answered = list(zip(batch, answers, strict=True))
        except Unavailable as error:
            self._store_failed(batch, error)
            self._trouble([(lease, error) for lease in batch], within)
        except Exception as error:
            # Not the network: something about these leases. Find out which, so that the others live.
            if len(batch) == 1:
                self._trouble([(batch[0], error)], within)
            else:
                for lease in batch:
                    await self._renew([lease], within)
        else:
            self._confirm(answered, sent)
            unanswered: list[tuple[Lease, Exception]] = []
            for lease, answer in answered:
                if isinstance(answer, Unavailable):
                    self._store_failed([lease], answer)
                    unanswered.append((lease, answer))
            self._trouble(unanswered, within)

    def _confirm(self, answered: list[tuple[Lease, Verdict]], sent: float) -> None:
        gone: list[Lease] = []
        renewed: list[tuple[Lease, float]] = []
        ghosts: list[Grant] = []
        with self._mutex:
            now = self._driver.now()
            for lease, grant in answered:
                if isinstance(grant, Unavailable):
                    continue
                if lease._state is HELD and now >= lease._deadline:
                    self.lose(lease)
                    gone.append(lease)
                elif lease._state is HELD and grant is None:
                    self.lose(lease, "the store no longer has it: it ran out, was evicted, or the store lost its data")
                    gone.append(lease)
                elif lease._state is HELD and grant is not None:
                    renewed.append((lease, lease._deadline - now))
                    # What was asked for stays as it is: it may have been downgraded since the renewal was sent.
                    self.keep(lease, Grant(lease._grant.claim, lease._grant.token, grant.ttl), sent)
                if lease._state is LOST and grant is not None:
                    ghosts.append(grant)
        self._announce(gone)
        if events.RENEWED in self._hook.by_kind:
            for lease, margin in renewed:
                with contained("a subscriber to 'renewed'"):
                    kind, ttl = lease._grant.claim.lock, lease._grant.ttl
                    self._hook.emit(events.RENEWED, lease.name, lease.owner, lease.token, margin, "", kind, 0.0, ttl)
        for grant in ghosts:
            self._leaving.later(grant.claim, now + grant.ttl, token=grant.token)

    def keep(self, lease: Lease, grant: Grant, sent: float) -> None:
        """The store confirmed it. Called under the mutex."""
        self.remove(lease)
        lease._extend(grant, sent)
        self._file(lease, sent)

    def _trouble(self, unknown: list[tuple[Lease, Exception]], within: float) -> None:
        """Ask again soon. Whoever had less time to answer than these leases would give is not told of as a danger yet."""
        fresh: list[tuple[Lease, float, Exception]] = []
        over: list[Lease] = []
        with self._mutex:
            now = self._driver.now()
            for lease, error in unknown:
                if lease._state is not HELD:
                    continue
                if now >= lease._deadline:
                    self.lose(lease, f"it could not be renewed: {error}")
                    over.append(lease)
                    continue
                ttl, left = lease._grant.ttl, lease._deadline - now
                if not lease._troubled and (within > ttl / 12 or left < ttl / 3):
                    fresh.append((lease, left, error))
                    lease._troubled = True
                self.remove(lease)
                lease._due = min(now + ttl * self._driver.uniform(1 / 24, 1 / 12), lease._deadline)
                self._odd[id(lease)] = ref(lease)
        for lease, left, error in fresh:
            self._emit(events.IN_DANGER, lease.name, lease.owner, lease.token, left, str(error))
        self._announce(over)

    def lose(self, lease: Lease, why: str = "") -> None:
        self.remove(lease)
        lease._end(LOST, why)

    def taken_away(self, holder: str, why: str) -> None:
        """Told by the store itself, from any thread."""
        with self._mutex:
            gone = tuple(lease for lease in self._all() if lease._grant.claim.holder == holder)
            for lease in gone:
                self.lose(lease, why)
        self._announce(gone)

    def _announce(self, lost: Sequence[Lease]) -> None:
        """By the renewer, who has others to look after: a callback may take its time, and theirs may be short."""
        if lost:
            self._driver.aside(lambda: self.announce(lost), "holdfast-lost")

    def announce(self, lost: Iterable[Lease]) -> None:
        for lease in lost:
            held = self._driver.now() - lease._since
            self._emit(events.LOST, lease.name, lease.owner, lease.token, held, lease._reason())
            lease._tell()

    def _store_failed(self, batch: list[Lease], error: Exception) -> None:
        """Once a conversation, however many leases it was about."""
        if events.STORE_FAILED in self._hook.by_kind:
            claim, why = batch[0]._grant.claim, f"renew: {error}"
            with contained("a subscriber to 'store failed'"):
                self._hook.emit(events.STORE_FAILED, claim.name, claim.owner, detail=why, lock=claim.lock)

    def _emit(self, kind: str, name: str, owner: str, token: int = 0, seconds: float = 0.0, detail: str = "") -> None:
        """A subscriber that calls sys.exit(), say, ends nothing here."""
        with contained(f"a subscriber to {kind!r}"):
            self._hook.emit(kind, name, owner, token, seconds, detail)


def _living(some: dict[int, ref[Lease]]) -> Iterator[Lease]:
    """Those that somebody has, and that have not been given back meanwhile."""
    for one in some.values():
        lease = one()
        if lease is not None and lease._state is HELD:
            yield lease
