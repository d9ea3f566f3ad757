"""What a simulated process holds: the real engine and the real recipes, every step of theirs written down."""

from __future__ import annotations

from collections.abc import Sequence

from ... import events, recipes
from ...asking import Ask
from ...drivers.simulated import Process
from ...drivers.world import Cancelled, Interrupt, Raised
from ...engine import Engine
from ...errors import HoldfastError, LeaseLost
from ...lease import Lease
from ...stores.base import Store
from ..history import ACQUIRE, CHECK, DONE, FAILED, GRANTED, LOST, History, Operation, Recording

SIGNALS = (events.LOST, events.IN_DANGER, events.RELEASE_FAILED, events.WAITING)


class SimulatedEngine(Engine):
    """Its owner is the simulated process, so that a story reads the same wherever it is told."""

    driver_process: Process

    def owner(self) -> str:
        return f"{self.driver_process.name}/{self.driver.whoami()}"


class Client:
    """`store` is what the engine talks to: a `Recording`, or something around one."""

    def __init__(self, process: Process, store: Store, history: History) -> None:
        self.process = process
        self.engine = SimulatedEngine(store, process.driver)
        self.engine.driver_process = process
        self._history = history
        self._inherited: object = None
        self.engine.hook.subscribe(self._heard, SIGNALS)

    def became(self, child: str, inherited: object) -> None:
        """This is a copy, in a forked child. What its parent had in memory stays as long as the child does."""
        self._inherited = inherited
        assert isinstance(self.engine.store, Recording)
        self.engine.store.process = child

    async def acquire(self, ask: Ask, timeout: float | None = None) -> Lease:
        [lease] = await self.acquire_all([ask], timeout)
        return lease

    async def acquire_all(self, asks: Sequence[Ask], timeout: float | None = None) -> list[Lease]:
        """One lease a name, all or nothing."""
        now = self._now()
        waits = [
            self._history.begin(
                Operation(
                    self.process.name, ACQUIRE, ask.name, now, units=ask.units, capacity=ask.capacity, ttl=ask.ttl
                )
            )
            for ask in asks
        ]
        try:
            leases = await recipes.acquire_all(self.engine, asks, timeout, Lease)
        except (HoldfastError, Cancelled, Raised, Interrupt) as error:
            for wait in waits:
                wait.detail = type(error).__name__
                wait.end(self._now(), FAILED)
            raise
        for wait, lease in zip(waits, leases, strict=True):
            wait.holder = self._history.alias(lease._grant.claim.holder)
            wait.end(self._now(), GRANTED, lease.token)
        return leases

    def check(self, lease: Lease) -> None:
        """A guarded step: LeaseLost, or the lease says that it is held."""
        now = self._now()
        claim = lease._grant.claim
        check = self._history.begin(
            Operation(
                self.process.name,
                CHECK,
                claim.name,
                now,
                holder=self._history.alias(claim.holder),
                token=lease.token,
                ttl=lease.ttl,
            )
        )
        try:
            lease.check()
        except LeaseLost:
            check.end(now, LOST)
            raise
        check.end(now, DONE)

    async def release(self, *leases: Lease) -> None:
        """Give them back, whatever interrupts us; what cannot be given back ends by its ttl."""
        await self.process.driver.shield(lambda: recipes.release_all(self.engine, leases))

    def drop(self, *leases: Lease) -> None:
        """What the collector does with leases that nobody has any more; here, at the same moment in every run."""
        for lease in leases:
            self._history.note(self._now(), self.process.name, "dropped", lease.name, lease.token)
            lease._let_go(told=True)

    def leaks(self) -> list[str]:
        """What is left in this process, though nothing is held."""
        found = [f"{self.process.name} still renews {lease!r}" for lease in self.engine.renewer.leases()]
        found += [f"{self.process.name} still keeps {name!r}" for name in self.engine.lending.names()]
        if not self.engine.closed:  # else it is all forgotten with the connection
            found += [f"{self.process.name} still remembers {name!r}" for name, _ in self.engine.mine.remembered()]
        return found

    def _now(self) -> float:
        return self.process.world.time

    def _heard(self, event: events.Event) -> None:
        if self.process.world.over or not self.process.alive:
            return  # nobody hears what a process says that is no more
        self._history.note(self._now(), self.process.name, event.kind, event.name, event.token, event.detail)
