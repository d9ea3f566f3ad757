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

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...claim import LAST_WORDS, ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict
from ...drivers.base import Driver
from ...errors import Misuse, Unavailable
from .. import promises
from ..kit.again import again
from ..kit.sleepers import Sleepers
from . import looking
from .claiming import Books, Claiming, Leaving
from .ears import Ears
from .keeper import Keeper, Record
from .keys import Keys
from .renewing import Renewing
from .sessions import MOST_TTL, Sessions
from .url import Target
from .wire import Wire

T = TypeVar("T")


class ConsulStore:
    def __init__(self, target: Target, driver: Driver) -> None:
        self.target = target
        self.driver = driver
        self.keys = Keys(target.prefix)
        self._start()

    def _start(self) -> None:
        target, driver = self.target, self.driver
        self.wire = wire = Wire(target, driver)
        self.books = Books(driver)
        self.sleepers = Sleepers()
        self.sessions = Sessions(target, wire, driver, self.keys)
        self.ears = Ears(wire, driver, len(target.addresses))
        self.keeper = Keeper(self)
        self._renewing = Renewing(self)

    # ---- for those who do the work

    def by(self, within: float) -> float:
        """When a conversation that may take so long is over: never longer than the URL says."""
        return self.driver.now() + min(within, self.target.timeout)

    def wall_ms(self) -> int:
        """For people to read, and for nothing else."""
        return self.driver.wall_us() // 1000

    async def persistently(self, deadline: float, attempt: Callable[[], Awaitable[T]]) -> T:
        """Ride out a broken connection and the election of a leader: all that is done so may be done again."""
        try:
            return await attempt()
        except Unavailable as trouble:
            return await again(self.driver, trouble, deadline, attempt)

    async def try_again(self, name: str, tries: int, deadline: float) -> None:
        """Others were quicker to write in this book: a moment later, and not all at once."""
        if self.driver.now() >= deadline:
            raise Unavailable(
                f"others were quicker to write {name!r} in Consul at {self.wire.where} {tries + 1} times in a row"
            )
        await self.driver.sleep(self.driver.uniform(0, 0.005 * min(tries, 8)))

    @property
    def traits(self) -> Traits:
        delay = f", and after {self.target.lock_delay:g} s of lock-delay" if self.target.lock_delay else ""
        clock = promises.CONSUL.clock + delay
        return promises.CONSUL._replace(clock=clock, min_ttl=self.target.min_ttl, max_ttl=MOST_TTL * 8 / 9)

    @property
    def reached(self) -> bool:
        return self.wire.pool.reached

    # ---- coming, waiting, going

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        deadline = self.by(within)
        try:
            return await self._claim(claim, deadline)
        except Unavailable as trouble:
            return await again(self.driver, trouble, deadline, lambda: self._claim(claim, deadline))

    async def _claim(self, claim: Claim, deadline: float) -> Grant | Place:
        mine = self.keeper.records.get(claim.holder)
        self._check_ttl(claim, mine)
        sent = self.driver.now()
        session = await self.sessions.fit_for(claim.ttl, deadline)
        claiming = Claiming(self, claim, session, sent, deadline)
        return await self.books.writing(claim.name, deadline, claiming.run)

    def _check_ttl(self, claim: Claim, mine: Record | None) -> None:
        least, most = self.target.min_ttl, MOST_TTL * 8 / 9
        if mine is None and not least <= claim.ttl <= most:
            raise Misuse(
                f"cannot claim {claim.name!r} for {claim.ttl:g} s: Consul's sessions last from {least:g} s to {most:.0f} s. "
                "Where the agents set a lower session_ttl_min, say so in the URL: ?min_ttl="
            )

    async def wait(self, place: Place, timeout: float) -> None:
        woken = self.sleepers.woken
        mine = self.keeper.records.get(place.claim.holder)
        if mine is None or mine.bell is None:
            await self.sleepers.sleep(self.driver.bell(), min(timeout, place.wake_in), woken)
        else:
            await self.sleepers.sleep(mine.bell, timeout, woken)

    def wake_waiters(self) -> None:
        self.sleepers.wake()

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        return await self._renewing.renew(grants, self.by(within))

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        mine = self.keeper.records.get(claim.holder)
        if mine is None:
            return False  # nothing was ever written for it, or it has gone with its session
        over = mine.session.lost or mine.deadline <= self.driver.now()
        return await self.leave(mine, self.by(within)) and not over

    async def leave(self, mine: Record, deadline: float, *, overdue: bool = False) -> bool:
        leaving = Leaving(self, mine, deadline, overdue=overdue)
        try:
            return await leaving()
        except Unavailable as trouble:
            return await again(self.driver, trouble, deadline, leaving)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await looking.evict(self, name, token, by, self.by(ROUND))

    # ---- looking

    async def watch(self, name: str, token: int, timeout: float) -> None:
        deadline = self.driver.now() + timeout
        await self._unless_over(deadline, looking.watch(self, name, token, deadline))

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        deadline = self.driver.now() + timeout
        await self._unless_over(deadline, looking.wanted(self, grant, deadline))
        return self.driver.now() < deadline

    async def _unless_over(self, deadline: float, looked: Awaitable[None]) -> None:
        try:
            await looked
        except Unavailable:
            if self.driver.now() < deadline - 0.02:
                raise  # else there was no time left to ask, and it is over anyway

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        deadline = self.by(within)
        return await self.persistently(deadline, lambda: looking.inspect(self, name, deadline))

    async def names(self, prefix: str = "") -> Sequence[str]:
        deadline = self.by(self.target.timeout)
        return await self.persistently(deadline, lambda: looking.names(self, prefix, deadline))

    def forked(self) -> None:
        self.wire.pool.forked()
        self._start()

    async def close(self, within: float = LAST_WORDS) -> None:
        """What stays taken on purpose (`at_least`) stays, with its session, until its TTL ends it."""
        self.ears.close()
        self.keeper.alarm.close()
        try:
            await self.keeper.end_idle(self.driver.now() + within)
        finally:
            self.wire.pool.close()
