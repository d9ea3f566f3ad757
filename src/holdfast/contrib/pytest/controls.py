"""What can happen to a lock, at a word: for tests of what your code does then."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...claim import new_holder
from ...drivers.aio import Asyncio
from ...drivers.base import finish
from ...errors import Misuse, Unavailable
from ...stores.memory import MemoryStore
from ...sync import Lease, Locks, connect
from .store import TestStore, silent

if TYPE_CHECKING:
    from ... import aio

    AnyLease = Lease | aio.Lease

_PATIENCE = 10.0  # for callbacks of the user's that take their time
_EVICTED = "the store no longer has it: it ran out, was evicted, or the store lost its data"


class Controls:
    """What the fixture `holdfast` gives. `url` is the store of this test: connect() finds it by itself, in HOLDFAST_URL."""

    def __init__(self) -> None:
        self._space = new_holder()[:8]
        self.url = f"memory+test://{self._space}"
        self.locks: Locks = connect(self.url)
        self._strangers = connect(self.url, label="stranger")

    def lose(self, lease: AnyLease) -> None:
        """The holder is told that it is out, as after an eviction: callbacks are called, an `async with` body is cancelled."""
        self._take_away(lease, _EVICTED)

    def expire(self, lease: AnyLease) -> None:
        """The ttl ran out before a renewal came through, as after a long pause. The holder is told."""
        self._take_away(lease, f"its ttl of {lease.ttl:g} s ran out before a renewal was confirmed")

    def steal(self, lease: AnyLease) -> Lease:
        """Somebody else is given the lock, with a higher token, and this holder has not noticed yet: `lease.held` is still true.

        What fencing is for: a write with the old token must be refused from now on. Returns the other's lease.
        """
        store = self._store(lease)
        claim = lease._grant.claim
        if finish(store.inspect(lease.name)).waiters:
            raise Misuse(f"somebody waits for {lease.name!r} already: lose() or expire() lets them in")
        if not finish(store.release(claim)):
            raise Misuse(f"{lease!r} is held no longer, so nobody can steal it")
        ask = self._strangers.lock(lease.name, ttl=claim.ttl)
        if claim.capacity > 1:
            ask._ask = ask._ask._replace(units=claim.units, capacity=claim.capacity)
        return ask.acquire(timeout=0)

    def endanger(self, lease: AnyLease) -> None:
        """A renewal failed, and there is still time: `lease.in_danger`. The next renewal will succeed."""
        self._store(lease)
        renewer = lease._engine.renewer
        error = Unavailable("the store did not answer the renewal (the test said so)")
        self._where_it_lives(lease, lambda: renewer._trouble([(lease, error)], lease.ttl))

    @contextlib.contextmanager
    def unavailable(self) -> Iterator[None]:
        """Meanwhile the store answers nobody: acquire, release and renewals raise Unavailable, or wait and try again."""
        silent[self._space] = "the store does not answer (the test said so)"
        self.locks._engine.store.wake_waiters()
        try:
            yield
        finally:
            silent.pop(self._space, None)

    def _take_away(self, lease: AnyLease, why: str) -> None:
        store = self._store(lease)
        claim = lease._grant.claim
        told = threading.Event()
        lease.on_lost(lambda _: told.set())  # the last of the callbacks, which are called by somebody else
        finish(store.release(claim))
        if not self._where_it_lives(lease, lambda: lease._engine.renewer.taken_away(claim.holder, why)):
            told.wait(_PATIENCE)

    def _store(self, lease: AnyLease) -> MemoryStore:
        """The store itself, which answers also while it is told not to."""
        store = lease._engine.store
        if not isinstance(store, TestStore) or store._name != self._space:
            raise Misuse(f"{lease!r} is no lease of this test's store: connect to {self.url}, or to nothing at all")
        if not lease.held:
            raise Misuse(f"{lease!r} is not held (any more), so nothing can happen to it")
        return MemoryStore(store._driver, f"test/{self._space}")

    def _where_it_lives(self, lease: AnyLease, act: Callable[[], object]) -> bool:
        """In asyncio: in its own loop, also when a test says it from another thread. True: in that loop, which must not wait."""
        driver: Any = lease._engine.driver
        if not isinstance(driver, Asyncio):
            act()
            return False
        loop = next(
            task.get_loop() for task in driver._background
        )  # the renewer, which is there while anything is held
        here = loop is _running_loop()
        if here:
            act()
        else:
            loop.call_soon_threadsafe(act)
        return here

    def __enter__(self) -> Controls:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        silent.pop(self._space, None)
        self._strangers.close()
        self.locks.close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
