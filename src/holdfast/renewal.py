"""Keeps leases alive: one renewer a connected store, one batch a round.

Rule 1: a renewal counts from before it was sent; an answer that did not come extends nothing.
Rule 2: what is over stays over. A late "yes" to a lease that was lost meanwhile is given back to the store.
Rule 3: every conversation is bounded by a third of the shortest ttl, so that no lease waits behind another's trouble.

Leases of one ttl fall due in the order in which they were last confirmed, so a plain dict a ttl, which keeps that order,
does what a heap would do, with O(1) to add and to remove and nothing left behind by a release. Leases in trouble, and
those with a time limit, are few or momentary: they are looked at one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from . import events
from .claim import Grant, Verdict
from .drivers.base import Driver
from .errors import Misuse, Unavailable
from .events import Hook
from .lease import HELD, LOST, Lease
from .stores.base import Store

_IDLE = 60.0  # with nothing to renew for so long, the renewer goes home
_NEVER = float("inf")
_SLACK = 1 / 12  # of a ttl: so much early, or out of order, does not matter


class Renewer:
    def __init__(self, store: Store, driver: Driver, hook: Hook, mutex: threading.Lock) -> None:
        self._store = store
        self._driver = driver
        self._hook = hook
        self._mutex = mutex
        self._by_ttl: dict[float, dict[int, Lease]] = {}
        self._latest: dict[float, float] = {}  # a ttl's latest due time so far
        self._odd: dict[int, Lease] = {}
        self._bell: Any = None  # there while the renewer runs
        self._wake_at = _NEVER
        self._closed = False
        tell_losses_to = getattr(store, "tell_losses_to", None)
        if tell_losses_to is not None:  # a store whose locks live with a connection knows of its end before any renewal
            tell_losses_to(self.taken_away)

    # ---- called by the engine, from any thread

    def add(self, lease: Lease) -> None:
        with self._mutex:
            if self._closed:
                raise Misuse(f"cannot acquire {lease.name!r}: this connection was closed")
            ttl = lease._grant.ttl
            due = lease._since + ttl / 3
            if lease._limit is None and ttl in self._by_ttl and due > self._latest.get(ttl, _NEVER):  # as nearly always
                lease._due = self._latest[ttl] = due
                self._by_ttl[ttl][id(lease)] = lease
            else:
                due = self._file(lease, lease._since)
            if due < self._wake_at:
                self._wake(due)

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

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._bell is not None:
                self._bell.ring()

    def _wake(self, due: float) -> None:
        self._wake_at = due
        if self._bell is None or not self._bell.ring():  # not started, or its event loop is gone
            self._bell = bell = self._driver.bell()
            try:
                self._driver.spawn(lambda: self._run(bell), "holdfast-renewer")
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
            same[id(lease)] = lease
            return due
        self._odd[id(lease)] = lease  # its answer took so long that it would stand behind others who are due later
        return due

    def _all(self) -> Iterator[Lease]:
        for same in self._by_ttl.values():
            yield from same.values()
        yield from self._odd.values()

    # ---- the renewer itself

    async def _run(self, bell: Any) -> None:
        idle_since: float | None = None
        try:
            while not self._closed:
                with self._mutex:
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
                except Exception:  # nothing may end renewal silently, not even a mistake of ours
                    import logging

                    logging.getLogger("holdfast").exception("a round of renewals failed; going on")
                    await self._driver.sleep(0.1)
        finally:
            with self._mutex:
                self._gone_home(bell)

    def _gone_home(self, bell: Any) -> None:
        if self._bell is bell:
            self._bell, self._wake_at = None, _NEVER

    def _next_due(self) -> float:
        soonest = min((lease._due for lease in self._odd.values()), default=_NEVER)
        for same in self._by_ttl.values():
            for first in same.values():
                soonest = min(soonest, first._due)
                break
        return soonest

    async def _round(self) -> None:
        with self._mutex:
            now = self._driver.now()
            over = [lease for lease in self._all_due(now) if now >= lease._deadline]
            for lease in over:
                self.lose(lease)
            # A little early for some, so that leases taken close together stay together: one conversation, not many.
            batch = list(self._all_due(now, slack=_SLACK))
            shortest = min((lease._grant.ttl for lease in self._all()), default=_NEVER)
            soonest = min((lease._deadline for lease in self._all()), default=_NEVER)
        self.announce(over)
        for lease in over:
            if lease._cut:  # it was promised to be over by now, but the store would keep it for what it was renewed
                self._driver.spawn(partial(_quietly, self._store.release, lease._grant), "holdfast-release")
        batch = [lease for lease in batch if lease._limit is None or lease._limit > lease._deadline]
        if batch:
            # Back in time to tell whoever runs out meanwhile, unless that leaves no time to ask.
            await self._renew(batch, within=max(shortest / 12, min(shortest / 3, soonest - now)))

    def _all_due(self, now: float, slack: float = 0.0) -> Iterator[Lease]:
        for ttl, same in self._by_ttl.items():
            horizon = now + ttl * slack
            first = next(iter(same.values()), None)
            if first is None or first._due > now:
                continue  # nobody's turn: the early ones wait for company
            for lease in same.values():
                if lease._due > horizon:
                    break
                yield lease
        for lease in self._odd.values():
            if lease._due <= now:
                yield lease

    async def _renew(self, batch: list[Lease], within: float) -> None:
        sent = self._driver.now()
        try:
            answers = await self._store.renew([lease._grant for lease in batch], within)
            answered = list(zip(batch, answers, strict=True))
        except Unavailable as error:
            self._trouble(batch, error)
        except Exception as error:
            # Not the network: something about these leases. Find out which, so that the others live.
            if len(batch) == 1:
                self._trouble(batch, error)
            else:
                for lease in batch:
                    await self._renew([lease], within)
        else:
            await self._confirm(answered, sent)

    async def _confirm(self, verdicts: list[tuple[Lease, Verdict]], sent: float) -> None:
        for lease, verdict in verdicts:
            if isinstance(verdict, Unavailable):
                self._trouble([lease], verdict)
        answered = [(lease, grant) for lease, grant in verdicts if not isinstance(grant, Unavailable)]
        gone: list[Lease] = []
        renewed: list[tuple[Lease, float]] = []
        ghosts: list[Grant] = []
        with self._mutex:
            now = self._driver.now()
            for lease, grant in answered:
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
        self.announce(gone)
        if events.RENEWED in self._hook.by_kind:
            for lease, margin in renewed:
                self._hook.emit(events.RENEWED, lease.name, lease.owner, lease.token, margin)
        for grant in ghosts:
            await _quietly(self._store.release, grant)

    def keep(self, lease: Lease, grant: Grant, sent: float) -> None:
        """The store confirmed it. Called under the mutex."""
        self.remove(lease)
        lease._extend(grant, sent)
        self._file(lease, sent)

    def _trouble(self, batch: Iterable[Lease], error: Exception) -> None:
        fresh: list[tuple[Lease, float]] = []
        over: list[Lease] = []
        with self._mutex:
            now = self._driver.now()
            for lease in batch:
                if lease._state is not HELD:
                    continue
                if now >= lease._deadline:
                    self.lose(lease, f"it could not be renewed: {error}")
                    over.append(lease)
                    continue
                if not lease._troubled:
                    fresh.append((lease, lease._deadline - now))
                lease._troubled = True
                self.remove(lease)
                again = now + lease._grant.ttl * self._driver.uniform(1 / 24, 1 / 12)
                lease._due = min(again, lease._deadline)
                self._odd[id(lease)] = lease
        for lease, left in fresh:
            self._hook.emit(events.IN_DANGER, lease.name, lease.owner, lease.token, left, str(error))
        self.announce(over)

    def lose(self, lease: Lease, why: str = "") -> None:
        self.remove(lease)
        lease._end(LOST, why)

    def taken_away(self, holder: str, why: str) -> None:
        """Told by the store itself, from any thread."""
        with self._mutex:
            gone = [lease for lease in self._all() if lease._grant.claim.holder == holder]
            for lease in gone:
                self.lose(lease, why)
        self.announce(gone)

    def announce(self, lost: Iterable[Lease]) -> None:
        for lease in lost:
            held = self._driver.now() - lease._since
            self._hook.emit(events.LOST, lease.name, lease.owner, lease.token, held, lease._reason())
            lease._tell()


async def _quietly(release: Callable[[Any], Any], grant: Grant) -> None:
    try:
        await release(grant.claim)
    except Exception:
        return  # the ttl ends it
