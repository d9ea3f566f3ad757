"""Two locks as one: a grant of the new store counts only with the old lock in hand.

Rule 1: the new store's first. It has the line, so one process at a time asks for the old lock, and tokens are the new store's.
Rule 2: what is given back goes in the other order, so that whoever the new store rings finds the old lock free.
Rule 3: a lease lives no longer than either. Lost there is lost; unknown there is unknown.
Rule 4: who does not queue leaves nothing behind when the old lock is taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ...claim import LAST_WORDS, ROUND, Claim, Grant, Holding, Place, Snapshot, Traits, Verdict
from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Unavailable, Unsupported
from ..base import Store
from .old import Kept, Old

_LOOK_AGAIN = (0.05, 0.15)  # seconds: the old lock rings no bell
_LEAST = 0.05


class Both:
    def __init__(self, new: Store, old: Old, driver: Driver) -> None:
        self._new = new
        self._old = old
        self._driver = driver
        self._blocked: dict[str, Bell] = {}  # holders that are inside the new store, and wait for the old lock
        self._wanted: dict[str, str] = {}  # of what name

    @property
    def traits(self) -> Traits:
        return self._new.traits

    @property
    def reached(self) -> bool:
        reached: bool = getattr(
            self._new, "reached", True
        )  # whoever is not inside there has not asked for the old lock
        return reached

    def tell_losses_to(self, listener: Callable[[str, str], None]) -> None:
        told = getattr(self._new, "tell_losses_to", None)
        if told is not None:
            told(listener)

    def tell_repeats_to(self, listener: Callable[[str], None]) -> None:
        told = getattr(self._new, "tell_repeats_to", None)
        if told is not None:
            told(listener)

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        if claim.capacity != 1 and self._old.mutexes_only:
            raise Unsupported(
                f"{claim.name!r} is a {claim.lock} lock, and the locks of {self._old.whose} let in one at a time: with also=, "
                "take mutexes, elections and once only"
            )
        until = self._driver.now() + within
        answer = await self._new.claim(claim, within)
        if type(answer) is not Grant:
            if (
                claim.holder in self._blocked
            ):  # put out of the new store: whoever is inside there now is next in the old one
                self._unblock(claim)
                await self._let_go(claim, until)
            return answer
        try:
            lives = await self._old.take(claim, self._left(until))
        except HoldfastError:
            if not claim.queue:
                with contextlib.suppress(Unavailable):  # what it was that failed is to be told
                    await self.release(claim, self._left(until))
            raise
        if lives:
            self._unblock(claim)
            return answer._replace(ttl=min(answer.ttl, lives))
        if not claim.queue:
            await self._new.release(claim, self._left(until))
        elif claim.holder not in self._blocked:
            self._wanted[claim.holder] = claim.name
            self._blocked[claim.holder] = self._driver.bell()
        return Place(claim, self._driver.uniform(*_LOOK_AGAIN))

    async def wait(self, place: Place, timeout: float) -> None:
        bell = self._blocked.get(place.claim.holder)
        if bell is None:
            await self._new.wait(place, timeout)
        else:
            await bell.wait(min(timeout, place.wake_in))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        until = self._driver.now() + within
        verdicts = list(await self._new.renew(grants, within / 2))
        kept = [index for index, verdict in enumerate(verdicts) if isinstance(verdict, Grant)]
        for index, lives in zip(kept, await self._keep([grants[one].claim for one in kept], until), strict=True):
            grant = verdicts[index]
            if isinstance(lives, Unavailable):
                verdicts[index] = lives
            elif isinstance(grant, Grant):
                verdicts[index] = grant._replace(ttl=min(grant.ttl, lives)) if lives else None
        for lost in [grant for grant, verdict in zip(grants, verdicts, strict=True) if verdict is None]:
            if self._driver.now() >= until:
                break
            with contextlib.suppress(
                Unavailable
            ):  # nobody gives back what is lost: the other half would live on for a ttl
                await self.release(lost.claim, self._left(until))
        return verdicts

    async def _keep(self, claims: Sequence[Claim], until: float) -> Sequence[Kept]:
        try:
            return await self._old.keep(claims, self._left(until)) if claims else ()
        except Unavailable as error:
            return [error] * len(claims)

    async def _let_go(self, claim: Claim, until: float) -> None:
        with contextlib.suppress(Unavailable):
            await self._old.give_back(claim, self._left(until))

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        until = self._driver.now() + within
        self._unblock(claim)
        trouble: Unavailable | None = None
        try:
            await self._old.give_back(claim, within / 2)
        except Unavailable as error:  # the new one must not wait for it
            trouble = error
        there = await self._new.release(claim, self._left(until))
        if trouble is not None:
            raise trouble
        return there

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        until = self._driver.now() + within
        found = await self._new.inspect(name, within)
        if found.holders and name not in tuple(self._wanted.values()):  # else that is us, and we are not inside
            return found
        try:
            taken = await self._old.is_taken(name, self._left(until))
        except Unavailable:
            return found
        if not taken:
            return found
        somebody = Holding(f"somebody who uses {self._old.whose}", 0, 1, 0.0, 0.0)
        return found._replace(capacity=1, holders=(somebody,))

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._new.watch(name, token, timeout)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await self._new.evict(name, token, by)

    async def names(self, prefix: str = "") -> Sequence[str]:
        return await self._new.names(prefix)

    def wake_waiters(self) -> None:
        self._new.wake_waiters()
        for bell in tuple(self._blocked.values()):
            bell.ring()

    def forked(self) -> None:
        self._blocked = {}
        self._wanted = {}
        self._old.forked()
        self._new.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        until = self._driver.now() + within
        try:
            await self._old.close(within / 2)
        finally:
            await self._new.close(max(until - self._driver.now(), 0.0))

    def _unblock(self, claim: Claim) -> None:
        self._wanted.pop(claim.holder, None)
        bell = self._blocked.pop(claim.holder, None)
        if bell is not None:
            bell.close()

    def _left(self, until: float) -> float:
        return max(until - self._driver.now(), _LEAST)
