"""What each thread or task holds of the locks that know their own holder: to let it in again, or to tell why it cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar
from weakref import ref

from . import rule
from .asking import Ask
from .claim import Claim
from .drivers.base import Driver
from .errors import Misuse
from .lease import HELD, Lease

L = TypeVar("L", bound=Lease)
Key: TypeAlias = tuple[str, int]  # a name, and the id of a thread or task


class Mine:
    """Leases by who acquired them, as long as somebody has them."""

    def __init__(self, driver: Driver, mutex: threading.Lock) -> None:
        self._driver = driver
        self._mutex = mutex  # the engine's
        self._leases: dict[Key, list[ref[Lease]]] = {}

    def remembered(self) -> tuple[Key, ...]:
        return tuple(self._leases)

    def leases(self) -> list[Lease]:
        return [lease for some in self._leases.values() for one in some if (lease := one()) is not None]

    def again(self, ask: Ask, lease_type: type[L]) -> L | None:
        """A lock that lets its own holder in again, or says why it cannot."""
        key = (ask.name, id(self._driver.me()))
        if key not in self._leases:
            return None
        with self._mutex:  # in one piece: another thread may be releasing a lease that it was handed
            mine = tuple(lease for one in self._leases.get(key, ()) if (lease := one()) is not None)
            held = tuple(lease for lease in mine if lease.held)
            if ask.reentrant and mine:
                mine[-1].check()  # a lost lock is not entered again: the outer body would not know
            elif not held:
                return None
            lease = held[-1]
            claim = lease._grant.claim
            rule.same_capacity(ask.name, ask.capacity, claim.capacity)
            if not ask.reentrant and (ask.alone or claim.units > 1):
                since = self._driver.now() - lease._since
                raise Misuse(f"{ask.name!r} is {_waits_for_itself(ask, claim, since)}")
            # A reader that reads again comes in at once: behind a waiting writer, it would wait for itself.
            lease._entries += 1
        assert isinstance(lease, lease_type)
        return lease

    def not_for_itself(self, claim: Claim, held: Iterable[Lease]) -> None:
        """Somebody is inside. If that is who asks, and would wait for ever, it had better be told."""
        me = self._driver.me()
        for lease in held:
            if lease.name == claim.name and lease.held and lease._by is not None and lease._by() is me:
                raise Misuse(
                    f"you hold {claim.name!r} already, since {self._driver.now() - lease._since:.1f} s (token {lease.token}), "
                    "and would wait for yourself: reentrant=True lets you in again, or pass a timeout"
                )

    def remember(self, lease: Lease) -> None:
        key = (lease.name, id(self._driver.me()))
        lease._key = (
            key,
            self._driver.me(),
        )  # the thread or task too, so that its id is not given to another meanwhile
        with self._mutex:
            self._leases.setdefault(key, []).append(ref(lease))

    def forget(self, lease: Lease) -> None:
        """Called under the mutex."""
        key, _ = lease._key
        self._keep(key, lambda one: one is not lease)
        lease._key = None  # last: if we are interrupted, whoever takes this up knows where it is

    def forget_dropped(self, key: Key | None) -> None:
        if key is not None:
            with self._mutex:
                self._keep(key, lambda one: one._state is HELD)

    def _keep(self, key: Key, which: Callable[[Lease], bool]) -> None:
        mine = [one for one in self._leases.get(key, ()) if (lease := one()) is not None and which(lease)]
        if mine:
            self._leases[key] = mine
        else:
            self._leases.pop(key, None)


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
