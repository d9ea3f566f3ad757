"""The store in Consul: one book a name, changed by compare-and-set; a session for whoever is in it.

Why no two get in that should not:

1. A book changes only in a transaction that checks its index, so every writer has seen all writes before its own, and
   decides by `rule.admit()` on what is really there.
2. The transaction that lets a claim in checks as well that its session is alive. A session that dies later leaves its
   entry behind; others strike it out only when they have seen that its `alive` key is gone, which is for good. A claim
   that was taken back while it was still on its way finds the `alive` key rewritten, and comes to nothing: no ghost.
3. Consul keeps a session for at least its TTL, and a grant is promised for less: so the holder, whose time runs from
   before it asked, knows that it lost before anybody can be let in. (An admin who destroys the session, or puts the
   holder out, is quicker than that: then the token tells the two apart. `lock_delay` gives it time to notice.)
4. The token is the index, in Consul's log, of the write that let the claim in. That index only rises, for all keys, so
   tokens rise also when a book was deleted in between; one write lets in one claim, so no two have the same.

Nobody waits in vain: whoever makes room puts a bell under the session of the next in line, in the same transaction that
makes the room; the bell stays until its owner has taken it, so it cannot be missed. That bell can be put there only while
that session lives: else the dead one is struck out and the next is rung. One who was rung and then dies is noticed by the
next, who listens to the session of the one before it (or, at the head, of those inside).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...claim import ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict
from ...drivers.base import Driver
from ...errors import Misuse, Unavailable
from ..sleepers import Sleepers
from . import leaving, seen
from .book import Book
from .desk import Desk
from .ears import Ears, any_change, its_end
from .entering import Entering
from .keeper import Keeper, Mine
from .keys import Keys, url_of
from .ledger import Ledger
from .parts import Parts
from .renewing import Renewing
from .sessions import MOST_TTL, Sessions
from .url import Target
from .wire import Wire

_GOODBYE = 0.7  # seconds, for the last words to Consul


class ConsulStore:
    def __init__(self, target: Target, open_wire: Callable[[], Wire], driver: Driver) -> None:
        self._target = target
        self._open_wire = open_wire
        self._driver = driver
        self._keys = Keys(target.prefix)
        self._start()

    def _start(self) -> None:
        target, driver, keys = self._target, self._driver, self._keys
        self._wire = wire = self._open_wire()
        self._ledger = Ledger(wire, keys)
        self._sleepers = Sleepers()
        self._sessions = Sessions(target, wire, driver, keys, self._ledger)
        self._ears = Ears(wire, driver, len(target.addresses))
        self._keeper = Keeper(driver, self._ears, self._sessions, self._put_out_overdue, target.timeout, wire.where)
        self._desk = Desk(driver)
        self._parts = Parts(target, driver, keys, self._ledger, self._sessions, self._ears, self._keeper, self._desk)
        self._renewing = Renewing(self._parts)

    @property
    def traits(self) -> Traits:
        delay = f", and after {self._target.lock_delay:g} s of lock-delay" if self._target.lock_delay else ""
        return Traits(
            system="consul",
            scope="network",
            fenced="yes: the index of the write in Consul's log that let the holder in",
            fair=True,
            bell=True,
            durable="all that a majority of the servers has written to disk",
            clock="the holder's own clock while it lives; after its death the leader's, which ends a session between "
            f"9/8 and 9/4 of the ttl after its last renewal{delay}",
            survives="the loss of any minority of the servers; a partition: the side with the majority goes on",
            min_ttl=self._target.min_ttl,
            max_ttl=MOST_TTL * 8 / 9,
        )

    # ---- coming, waiting, going

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        deadline = self._parts.by(within)
        return await self._parts.persistently(deadline, lambda: self._claim(claim, deadline))

    async def _claim(self, claim: Claim, deadline: float) -> Grant | Place:
        mine = self._keeper.find(claim.holder)
        self._check_ttl(claim, mine)
        sent = self._driver.now()
        if mine is not None and mine.deadline <= sent:
            await leaving.leave(self._parts, claim, deadline)  # it is over: what comes now is a new claim
            mine = None
        session = await self._sessions.fit_for(claim.ttl, deadline)
        entering = Entering(self._parts, claim, mine, session, sent, deadline)
        return await self._desk.at(claim.name, deadline, entering.run)

    def _check_ttl(self, claim: Claim, mine: Mine | None) -> None:
        least, most = self._target.min_ttl, MOST_TTL * 8 / 9
        if mine is None and not least <= claim.ttl <= most:
            raise Misuse(
                f"cannot claim {claim.name!r} for {claim.ttl:g} s: Consul's sessions last from {least:g} s to {most:.0f} s. "
                "Where the agents set a lower session_ttl_min, say so in the URL: ?min_ttl="
            )

    async def wait(self, place: Place, timeout: float) -> None:
        woken = self._sleepers.woken
        mine = self._keeper.find(place.claim.holder)
        if mine is None:
            await self._sleepers.sleep(self._driver.bell(), min(timeout, place.wake_in), woken)
        else:
            await self._sleepers.sleep(mine.bell, timeout, woken)

    def wake_waiters(self) -> None:
        self._sleepers.wake()

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        return await self._renewing.renew(grants, self._parts.by(within))

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        mine = self._keeper.find(claim.holder)
        over = mine is not None and (mine.session.lost or mine.deadline <= self._driver.now())
        there = await leaving.leave(self._parts, claim, self._parts.by(within))
        return there and not over

    async def _put_out_overdue(self, mine: Mine) -> None:
        await leaving.leave(self._parts, mine.claim, self._parts.by(ROUND))

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await leaving.evict(self._parts, name, token, by, self._parts.by(ROUND))

    # ---- looking

    async def watch(self, name: str, token: int, timeout: float) -> None:
        deadline = self._driver.now() + timeout
        try:
            await self._watch(name, token, deadline)
        except Unavailable:
            if self._driver.now() < deadline - 0.02:
                raise  # else there was no time left to ask, and it is over anyway

    async def _watch(self, name: str, token: int, deadline: float) -> None:
        woken = self._sleepers.woken
        bell = self._driver.bell()
        paths = [url_of(self._keys.book(name))]
        self._ears.listen(paths[0], bell, any_change(bell))
        try:
            # What is on its way already may have been told to others before we listened, so look once more now.
            soon = min(deadline, self._parts.by(ROUND))
            book = await self._parts.persistently(soon, lambda: self._ledger.read(name, soon))
            dead = await self._ledger.dead_among({entry.session for entry in book.inside.values()}, soon)
            book.without(dead, delayed=True)
            newest = max(book.inside.values(), key=lambda entry: entry.token, default=None)
            if (newest.token if newest else 0) != token:
                return
            if newest is not None:
                paths.append(url_of(self._keys.alive(newest.session)))
                self._ears.listen(paths[1], bell, its_end(bell), final=True)
            await self._sleepers.sleep(bell, deadline - self._driver.now(), woken)
        finally:
            for path in paths:
                self._ears.forget(path, bell)

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        deadline = self._parts.by(within)

        async def look() -> Snapshot:
            items = await self._ledger.look([self._keys.book(name), self._keys.eviction(name)], deadline)
            found = {item.key: item for item in items}
            item = found.get(self._keys.book(name))
            book = self._ledger.open(name, item) if item else Book()
            book.without(await self._ledger.dead_among(book.sessions(), deadline), delayed=True)
            return seen.snapshot(name, book, found.get(self._keys.eviction(name)))

        return await self._parts.persistently(deadline, look)

    async def names(self, prefix: str = "") -> Sequence[str]:
        deadline = self._parts.by(self._target.timeout)

        async def look() -> list[str]:
            items = await self._ledger.look([self._keys.books(prefix)], deadline)
            books = {self._keys.name_of(item.key): self._ledger.open(item.key, item) for item in items}
            dead = await self._ledger.dead_among(set().union(*(book.sessions() for book in books.values())), deadline)
            for name, book in books.items():
                if book.without(dead, delayed=True) and book.empty:  # all have died: nobody else will tidy up
                    await self._ledger.commit(self._ledger.write(name, book), deadline)
            return sorted(name for name, book in books.items() if not book.empty)

        return await self._parts.persistently(deadline, look)

    def forked(self) -> None:
        self._wire.forked()
        self._start()

    async def close(self) -> None:
        """What stays taken on purpose (`at_least`) stays, with its session, until its TTL ends it."""
        self._ears.close()
        self._keeper.close()
        try:
            await self._sessions.end_idle(self._driver.now() + _GOODBYE)
        finally:
            self._wire.close()
