"""What a worker does, again and again: take a lock of some kind, read the register under its token, think, write.

Between the last look at the lease and the write there is a moment in which everything can happen, here as in any program. The
nemesis knows that moment by what is written down (`IN_THE_GAP`), and likes to strike there.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..databases.wire import settle
from ..errors import HoldfastError, LeaseLost, StaleToken
from ..testing.history import ACQUIRE, CHECK, DONE, FAILED, GRANTED, LOST, READ, RELEASE, STALE, WRITE, Operation
from .journal import Journal
from .plan import HOLD, NAMES
from .register import Register, Unanswered

MUTEX, REENTRANT, RWLOCK, SEMAPHORE, ALL_OF = KINDS = ("mutex", "reentrant", "rwlock", "semaphore", "all_of")
PLACES = 2  # of the semaphore
IN_THE_GAP = "the last look before a write"


@dataclass
class Turns:
    locks: Any
    register: Register
    journal: Journal
    lane: int
    prefix: str
    ttl: float
    patience: float

    def __post_init__(self) -> None:
        self._name = f"{self.journal.process}.{self.lane}"
        self._random = random.Random(self._name)
        self._count = 0

    async def one(self, era: int) -> None:
        """A turn. What goes wrong with locks and storage is in the history, and no failure of the worker."""
        self._count += 1
        kind = self._random.choice(KINDS)
        takes, changes = self._choose(kind, era)
        made = takes()
        held = await self._acquire(kind, made)
        if held is None:
            await self._think()
            return
        leases = tuple(held) if kind == ALL_OF else (held,)
        for lease in leases:
            lease.on_lost(lambda lost: self.journal.tell(LOST, lost.name, lost.token))
        try:
            if kind == REENTRANT:
                with suppress(HoldfastError):  # the same once more, and out again; what is outside stays held
                    await settle((await settle(made.acquire(timeout=self.patience))).release())
            await self._inside(leases, changes)
        except (LeaseLost, StaleToken, Unanswered):
            return  # it is in the history
        finally:
            await self._release(held, leases)

    def _choose(self, kind: str, era: int) -> tuple[Callable[[], Any], bool]:
        """What to take, and whether whoever has it is alone and may write."""
        locks, ttl = self.locks, self.ttl
        number = self._random.randrange(NAMES)
        name = f"{self.prefix}{kind}.{number}.{era}"
        if kind == REENTRANT:
            return lambda: locks.lock(name, ttl=ttl, reentrant=True), True
        if kind == SEMAPHORE:
            return lambda: locks.semaphore(name, PLACES, ttl=ttl), False
        if kind == RWLOCK:
            writes = self._random.random() < 0.5
            both = locks.rwlock(name, ttl=ttl)
            return (both.write if writes else both.read), writes
        mutex = f"{self.prefix}{MUTEX}.{number}.{era}"
        if kind == ALL_OF:  # one of the two is the mutex that others take alone
            return lambda: locks.all_of(mutex, name, ttl=ttl), True
        return lambda: locks.lock(mutex, ttl=ttl), True

    async def _acquire(self, kind: str, made: Any) -> Any:
        names = [ask.name for ask in made._asks] if kind == ALL_OF else [made._ask.name]
        steps = [self.journal.step(ACQUIRE, name, ttl=self.ttl, detail=kind) for name in names]
        try:
            held = await settle(made.acquire(timeout=self._how_long()))
        except HoldfastError as error:
            for step in steps:
                step.detail = f"{kind}: {type(error).__name__}"
                step.end(time.monotonic(), FAILED)
            return None
        for step, lease in zip(steps, held if kind == ALL_OF else (held,), strict=True):
            claim = lease._grant.claim
            step.holder, step.units, step.capacity = self._holder(lease), claim.units, claim.capacity
            step.end(time.monotonic(), GRANTED, lease.token)
        return held

    async def _inside(self, leases: tuple[Any, ...], changes: bool) -> None:
        self._check(leases)
        if not changes:
            self._look(leases[0].name)
            await self._think()
            self._check(leases)
            return
        tokens = {lease.name: lease.token for lease in leases}
        steps = [self.journal.step(READ, lease.name, token=lease.token, holder=self._holder(lease)) for lease in leases]
        bases = self._touch(steps, lambda: self.register.read(tokens))
        await self._think()
        self._check(leases, IN_THE_GAP)
        await self._think(often=0.5)
        entry = f"{self._name}.{self._count}"
        steps = [
            self.journal.step(
                WRITE,
                lease.name,
                token=lease.token,
                holder=self._holder(lease),
                value=((entry, lease.token),),
                detail=f"after {bases[lease.name] or 'none'}",
            )
            for lease in leases
        ]
        self._touch(steps, lambda: self.register.write(tokens, bases, entry))
        await self._think()
        self._check(leases)

    def _check(self, leases: tuple[Any, ...], detail: str = "") -> None:
        for lease in leases:
            step = self.journal.step(CHECK, lease.name, holder=self._holder(lease), token=lease.token, detail=detail)
            try:
                lease.check()
            except LeaseLost:
                step.end(time.monotonic(), LOST)
                raise
            step.end(time.monotonic(), DONE)

    def _holder(self, lease: Any) -> str:
        return self.journal.alias(lease._grant.claim.holder)

    def _look(self, name: str) -> None:
        """Those who share read without a token: the order in which they do is nobody's business."""
        step = self.journal.step(READ, name)
        last = self.register.look(name)  # Unanswered: the step stays open
        step.value = ((last, 0),) if last else ()
        step.end(time.monotonic(), DONE)

    def _touch(self, steps: list[Operation], touch: Callable[[], dict[str, str] | None]) -> dict[str, str]:
        """Of the register; of several at once, all or none."""
        try:
            found = touch() or {}
        except (StaleToken, sqlite3.OperationalError) as error:
            refused = getattr(error, "resource", None)
            for step in steps:
                if step.name == refused and isinstance(error, StaleToken):
                    step.detail = f"{step.detail} seen {error.seen}".strip()
                step.end(time.monotonic(), STALE if step.name == refused else FAILED)
            raise
        for step in steps:
            if step.kind == READ and found[step.name]:
                step.value = ((found[step.name], 0),)
            step.end(time.monotonic(), DONE)
        return found

    async def _release(self, held: Any, leases: tuple[Any, ...]) -> None:
        try:
            await settle(held.release())
        except HoldfastError as error:  # it goes on in the background, and ends with the ttl
            for lease in leases:
                self.journal.tell(f"{RELEASE}: {type(error).__name__}", lease.name, lease.token)

    def _how_long(self) -> float:
        """Half of them wait until they are served; the others go away soon, as people do, and work elsewhere."""
        return self.patience if self._random.random() < 0.5 else self._random.uniform(0, 0.3) * self.ttl

    async def _think(self, often: float = 0.2) -> None:
        """So often for longer: a turn is there to be struck in, and yet there are to be many of them."""
        most = HOLD if self._random.random() < often else HOLD / 20
        await self.locks._engine.driver.sleep(self._random.uniform(0, most))
