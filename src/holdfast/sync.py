"""What a thread user holds. Each body is one call into the core, run to its end on the spot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import ParamSpec, TypeVar

from . import connecting, events, lifecycle, recipes, waitfor
from .claim import Snapshot, Traits, valid_closing, valid_name, valid_prefix, valid_timeout
from .drivers.base import finish
from .drivers.threads import Threads
from .engine import CLOSING, Ask, Engine
from .errors import NotAcquired
from .lease import RELEASED
from .lease import Lease as CoreLease
from .observe import Observers
from .recipes import DEFAULT_TTL, UNSET, Leader, Otherwise, Unset

P = ParamSpec("P")
R = TypeVar("R")


class Loss:
    """Set when the lease is lost: `is_set()`, `wait(timeout)`, or just its truth value."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._event = threading.Event()
        lease.on_lost(lambda _: self._event.set())

    def is_set(self) -> bool:
        return self._lease._is_lost()

    __bool__ = is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Until the lease is lost (True), or released, or `timeout` (False)."""
        if self._lease.held:  # otherwise nobody would tell
            self._event.wait(timeout)
        return self.is_set()

    def over(self) -> None:
        self._event.set()


class Lease(CoreLease):
    """A live grant. Leaving the `with`, or `release()`, gives it back."""

    @property
    def lost(self) -> Loss:
        if self._loss is None:
            made = Loss(self)
            with self._engine.mutex:  # one for all who ask, or release would wake only some of them
                if self._loss is None:  # not `or`: a loss is false until it has happened
                    self._loss = made
        loss: Loss = self._loss
        return loss

    def release(self) -> bool:
        """Give it back. False: the store did not have it any more. Raises Unavailable, and may be repeated."""
        return finish(self._engine.release(self))

    def downgrade(self) -> None:
        """Of a write lock: become a reader, without letting another writer in between. The token stays.

        Unavailable: it may have happened, so others may be reading. Do not write; it may be repeated.
        """
        finish(self._engine.downgrade(self))

    def __enter__(self) -> Lease:
        self.check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        fine = self._is_lost() or self._state is RELEASED  # lost is told below; released inside the body is no loss
        try:
            released = self.release() or fine
        except ConnectionError:
            released = True  # told as an event; the body was covered, and the ttl frees the lock
        if error is None and (loss := recipes.lost_in_body(self, released)):
            raise loss


class Lock(recipes.Guard[Lease]):
    """Take it with `with`, `acquire()`, `try_acquire()`, or as a decorator."""

    lease_type = Lease

    def acquire(self, timeout: float | Unset | None = UNSET) -> Lease:
        """Wait for it: None for ever, 0 not at all, else so many seconds. Raises NotAcquired, never returns without."""
        wait = self._timeout if timeout is UNSET else valid_timeout(timeout)
        return finish(self._engine.acquire(self._ask, wait, self.lease_type))

    def try_acquire(self) -> Lease | None:
        """At once, or None."""
        return finish(self._try_acquire())

    def __enter__(self) -> Lease:
        lease = self.acquire()
        try:
            self._entered.push(lease)
            return lease
        except BaseException:
            self._entered.discard(lease)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._entered.pop().__exit__(kind, error, at)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """As a decorator: every call runs under the lock; with `otherwise="skip"`, one that cannot get it returns None.

        A function with a parameter `lease` is given the lease, for its token.
        """
        give = recipes.decorated(function, asynchronous=False)

        @recipes.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                lease = self.acquire()
            except NotAcquired:
                if self._otherwise == "skip":
                    return None
                raise
            with lease:
                if give:
                    kwargs["lease"] = lease
                return function(*args, **kwargs)

        return guarded


class Semaphore(Lock):
    """Up to `capacity` units inside at once."""

    def acquire(self, timeout: float | Unset | None = UNSET, units: int = 1) -> Lease:
        return finish(self._acquire(timeout, units))

    def try_acquire(self, units: int = 1) -> Lease | None:
        return finish(self._try_acquire(units))


class RWLock:
    """Many readers or one writer, first come, first served: a writer never starves."""

    def __init__(self, read: Lock, write: Lock) -> None:
        self._read = read
        self._write = write

    @property
    def name(self) -> str:
        return self._read.name

    def read(self) -> Lock:
        return self._read

    def write(self) -> Lock:
        """Asked for by a thread that reads already, it is refused: the reader would wait for itself."""
        return self._write


class Leases(recipes.Bundle[Lease]):
    """Several leases, in the order of their names. `leases["alice"].token` is the token for alice."""

    def release(self) -> None:
        """Give all back, also when one fails; then raise the first failure."""
        failures = finish(recipes.release_all(self._engine, self._leases))
        if failures:
            raise failures[0]

    def __enter__(self) -> Leases:
        self.check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        finish(recipes.release_all(self._engine, self._leases))
        if error is None and (lost := self._lost()):
            raise lost


class AllOf:
    """Several locks, all or nothing, taken in sorted order under one deadline: two of these cannot deadlock."""

    def __init__(self, engine: Engine, asks: tuple[Ask, ...], timeout: float | None) -> None:
        self._engine = engine
        self._asks = asks
        self._timeout = valid_timeout(timeout)
        self._entered: recipes.Entered[Leases] = recipes.Entered(engine, ", ".join(ask.name for ask in asks))

    def acquire(self, timeout: float | Unset | None = UNSET) -> Leases:
        wait = self._timeout if isinstance(timeout, Unset) else valid_timeout(timeout)
        return Leases(self._engine, finish(recipes.acquire_all(self._engine, self._asks, wait, Lease)))

    def try_acquire(self) -> Leases | None:
        try:
            return self.acquire(0)
        except NotAcquired:
            return None

    def __enter__(self) -> Leases:
        leases = self.acquire()
        try:
            self._entered.push(leases)
            return leases
        except BaseException:
            self._entered.discard(leases)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._entered.pop().__exit__(kind, error, at)


class _Leadership(Lock):
    def __init__(self, election: Election, engine: Engine, ask: Ask, timeout: float | None) -> None:
        super().__init__(engine, ask, timeout)
        self._election = election

    def acquire(self, timeout: float | Unset | None = UNSET) -> Lease:
        return finish(self._acquire(timeout))

    async def _acquire(self, timeout: float | Unset | None, units: int | None = None) -> Lease:
        lease = await super()._acquire(timeout, units)
        self._election._terms.add(lease)
        return lease


class Election:
    """One leader at a time. Its `term` is the lease's token: pass it with everything the leader does."""

    def __init__(self, engine: Engine, ask: Ask) -> None:
        self._engine = engine
        self._ask = ask
        self._terms: recipes.Terms[Lease] = recipes.Terms()

    @property
    def name(self) -> str:
        return self._ask.name

    def lead(self, timeout: float | None = None) -> Lock:
        """Stand for election: `with election.lead() as lease:` is entered as the leader."""
        return _Leadership(self, self._engine, self._ask, timeout)

    def leader(self) -> Leader | None:
        """Who leads now, as the store sees it."""
        return recipes.leader_of(finish(self._engine.open_store().inspect(self.name)))

    def watch(self, timeout: float | None = None) -> Iterator[Leader | None]:
        """The leader now (None: nobody), and then every change. Ends after `timeout` seconds without one."""
        seen = -1
        while (found := finish(recipes.next_leader(self._engine, self.name, seen, timeout))) is not recipes.UNCHANGED:
            leader = found if isinstance(found, Leader) else None
            seen = leader.term if leader else 0
            yield leader

    def resign(self) -> bool:
        """Step down, if this object leads. False: it did not."""
        resigned = [lease.release() for lease in self._terms.held()]
        return any(resigned)


class Locks:
    """A connected store. Use it as a context manager, or `close()` it; it may be shared by threads and kept for ever."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ---- recipes

    def lock(
        self,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        timeout: float | None = None,
        fair: bool = True,
        reentrant: bool = False,
        renew: bool = True,
        otherwise: Otherwise = "raise",
    ) -> Lock:
        """One at a time. `reentrant=True` lets the same thread in again, with the same token."""
        return Lock(self._engine, recipes.lock_ask(name, ttl, fair, reentrant, renew), timeout, otherwise)

    def semaphore(
        self,
        name: str,
        capacity: int,
        *,
        ttl: float = DEFAULT_TTL,
        timeout: float | None = None,
        fair: bool = True,
        renew: bool = True,
        otherwise: Otherwise = "raise",
    ) -> Semaphore:
        """`capacity` units, of which everybody takes one or more."""
        return Semaphore(self._engine, recipes.semaphore_ask(name, capacity, ttl, fair, renew), timeout, otherwise)

    def rwlock(
        self,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        timeout: float | None = None,
        fair: bool = True,
        renew: bool = True,
        otherwise: Otherwise = "raise",
    ) -> RWLock:
        """Many readers or one writer."""
        read, write = recipes.rwlock_asks(name, ttl, fair, renew)
        return RWLock(Lock(self._engine, read, timeout, otherwise), Lock(self._engine, write, timeout, otherwise))

    def all_of(
        self,
        *names: str,
        ttl: float = DEFAULT_TTL,
        timeout: float | None = None,
        fair: bool = True,
        renew: bool = True,
    ) -> AllOf:
        """Several locks at once, all or nothing."""
        return AllOf(self._engine, recipes.all_of_asks(names, ttl, fair, renew), timeout)

    def election(self, name: str, *, address: str = "", ttl: float = DEFAULT_TTL) -> Election:
        """One leader at a time; `address` is what the others are told."""
        return Election(self._engine, recipes.election_ask(name, address, ttl))

    def once(self, name: str, *, at_least: float = 0.0, at_most: float = 3600.0, otherwise: Otherwise = "skip") -> Lock:
        """For a job that several schedulers start at the same moment: one runs it, the others skip.

        The lock stays taken for `at_least` seconds, however short the job (so that a late scheduler skips too), and is
        over after `at_most`, however long.
        """
        return Lock(self._engine, recipes.once_ask(name, at_least, at_most), 0, otherwise)

    # ---- looking and intervening

    def inspect(self, name: str) -> Snapshot:
        """Who is inside and who waits."""
        return finish(self._engine.open_store().inspect(valid_name(name)))

    def names(self, prefix: str = "") -> Sequence[str]:
        """The names that are held or waited for."""
        return finish(self._engine.open_store().names(valid_prefix(prefix)))

    def force_release(self, name: str, *, token: int) -> int | None:
        """Put out the holder of `token`, and only that one. Returns a token past it, to seal the storage with.

        The evicted holder is told at its next renewal, at the latest. None: nobody holds that token any more.
        """
        return finish(recipes.force_release(self._engine, name, token))

    def wait_graph(self) -> waitfor.WaitGraph:
        """Who waits for whom, over all locks of this store; `graph.deadlocks()` names the cycles."""
        return finish(recipes.wait_graph(self._engine))

    @property
    def traits(self) -> Traits:
        """What this store promises, and what it does not."""
        return self._engine.store.traits

    def subscribe(self, subscriber: events.Subscriber, kinds: Iterable[str] = events.KINDS) -> Callable[[], None]:
        """Be told of events; returns what ends it. A subscriber that raises breaks nothing."""
        return self._engine.hook.subscribe(subscriber, kinds)

    # ---- the end

    def close(self, timeout: float = CLOSING) -> None:
        """Release what is held and disconnect, in at most `timeout` seconds. What is left then ends by its ttl, and is told."""
        finish(self._engine.close(valid_closing(timeout)))

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def connect(url: str | None = None, *, label: str = "", observe: Observers | None = None) -> Locks:
    """Open a store: `memory://`, `sqlite:///path`, or one that another package brings.

    With no url: HOLDFAST_URL, or an SQLite file of this user. `label` is shown to whoever asks who holds
    a lock. `observe` are who is to be told what happens, as in `observe=["prometheus"]` (see `holdfast.observe`); without
    it, those that HOLDFAST_OBSERVE names.

    >>> locks = connect("memory://")
    >>> with locks.lock("invoice:42") as lease:
    ...     lease.check()
    """
    url = connecting.resolve(url)  # a secret, also in this frame
    engine = connecting.open_engine(url, Threads(), label, observe)
    lifecycle.adopt(engine, lambda held: finish(held.close()))
    return Locks(engine)
