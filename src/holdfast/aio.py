"""The same names for asyncio: what blocks in `holdfast.sync` is awaited here, and nothing else differs.

>>> import asyncio
>>> from holdfast import aio
>>> async def main() -> None:
...     async with aio.connect("memory://") as locks:
...         async with locks.lock("invoice:42") as lease:
...             print(lease.name)
>>> asyncio.run(main())
invoice:42
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from . import connecting, events, lifecycle, recipes, waitfor
from .body import Body
from .claim import Snapshot, Traits, valid_closing, valid_name, valid_prefix, valid_timeout
from .drivers.aio import Asyncio
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
M = TypeVar("M", bound="Lease | Leases")


class Loss:
    """Set when the lease is lost: `is_set()`, `await wait(timeout)`, or just its truth value."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._event = asyncio.Event()
        lease.on_lost(lambda _: self._event.set())

    def is_set(self) -> bool:
        return self._lease._is_lost()

    __bool__ = is_set

    async def wait(self, timeout: float | None = None) -> bool:
        """Until the lease is lost (True), or released, or `timeout` (False)."""
        if self._lease.held:  # otherwise nobody would tell
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._event.wait()
        return self.is_set()

    def over(self) -> None:
        self._event.set()


class Lease(CoreLease):
    """A live grant. Leaving the `async with`, or `await release()`, gives it back."""

    _bodies: tuple[Body, ...] = ()

    @property
    def lost(self) -> Loss:
        if self._loss is None:
            self._loss = Loss(self)
        loss: Loss = self._loss
        return loss

    async def release(self) -> bool:
        """Give it back. False: the store did not have it any more. Raises Unavailable, and may be repeated."""
        return await self._engine.release(self)

    async def downgrade(self) -> None:
        """Of a write lock: become a reader, without letting another writer in between. The token stays.

        Unavailable: it may have happened, so others may be reading. Do not write; it may be repeated.
        """
        await self._engine.downgrade(self)

    async def __aenter__(self) -> Lease:
        """Enter: a loss cancels the body from now on, and comes out of it as LeaseLost."""
        self.check()
        self._bodies = (*self._bodies, Body([self]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        *rest, body = self._bodies
        self._bodies = tuple(rest)
        ours = body.leave(kind)
        fine = self._is_lost() or self._state is RELEASED  # lost is told below; released inside the body is no loss
        try:
            released = await self.release() or fine
        except ConnectionError:
            released = True  # told as an event; the body was covered, and the ttl frees the lock
        if ours:
            raise self._over() from None
        if error is None and (loss := recipes.lost_in_body(self, released)):
            raise loss


class Acquiring(Coroutine[Any, Any, M]):
    """`await` it for the lease, enter it with `async with`, or make a task of it: it is a coroutine."""

    __slots__ = ("_coroutine", "_got")

    def __init__(self, coroutine: Coroutine[Any, Any, M]) -> None:
        self._coroutine: Coroutine[Any, Any, M] = coroutine

    def __await__(self) -> Generator[Any, Any, M]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> M:
        self._got: M = await self._coroutine
        await self._got.__aenter__()
        return self._got

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._got.__aexit__(kind, error, at)


class Lock(recipes.Guard[Lease]):
    """Take it with `async with`, `acquire()`, `try_acquire()`, or as a decorator."""

    lease_type = Lease

    def acquire(self, timeout: float | Unset | None = UNSET) -> Acquiring[Lease]:
        """Wait for it: None for ever, 0 not at all, else so many seconds. Raises NotAcquired, never returns without."""
        if timeout is UNSET:  # nothing to look at first: a coroutine less
            return Acquiring(self._engine.acquire(self._ask, self._timeout, self.lease_type))
        return Acquiring(self._acquire(timeout))

    async def try_acquire(self) -> Lease | None:
        """At once, or None."""
        return await self._try_acquire()

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        try:
            await lease.__aenter__()
            self._entered.push(lease)
            return lease
        except BaseException:
            self._entered.discard(lease)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._entered.pop().__aexit__(kind, error, at)

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | None]]:
        """As a decorator: every call runs under the lock; with `otherwise="skip"`, one that cannot get it returns None.

        A function with a parameter `lease` is given the lease, for its token.
        """
        give = recipes.decorated(function, asynchronous=True)

        @recipes.wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                lease = await self.acquire()
            except NotAcquired:
                if self._otherwise == "skip":
                    return None
                raise
            async with lease:
                if give:
                    kwargs["lease"] = lease
                return await function(*args, **kwargs)

        return guarded


class Semaphore(Lock):
    """Up to `capacity` units inside at once."""

    def acquire(self, timeout: float | Unset | None = UNSET, units: int = 1) -> Acquiring[Lease]:
        return Acquiring(self._acquire(timeout, units))

    async def try_acquire(self, units: int = 1) -> Lease | None:
        return await self._try_acquire(units)


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
        """Asked for by a task that reads already, it is refused: the reader would wait for itself."""
        return self._write


class Leases(recipes.Bundle[Lease]):
    """Several leases, in the order of their names. `leases["alice"].token` is the token for alice."""

    _body: Body

    async def release(self) -> None:
        """Give all back, also when one fails; then raise the first failure."""
        failures = await recipes.release_all(self._engine, self._leases)
        if failures:
            raise failures[0]

    async def __aenter__(self) -> Leases:
        """Enter: the loss of any of them cancels the body from now on, and comes out of it as LeaseLost."""
        self.check()
        self._body = Body(self._leases)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        ours = self._body.leave(kind)
        await recipes.release_all(self._engine, self._leases)
        if (ours or error is None) and (lost := self._lost()):
            raise lost from None


class AllOf:
    """Several locks, all or nothing, taken in sorted order under one deadline: two of these cannot deadlock."""

    def __init__(self, engine: Engine, asks: tuple[Ask, ...], timeout: float | None) -> None:
        self._engine = engine
        self._asks = asks
        self._timeout = valid_timeout(timeout)
        self._entered: recipes.Entered[Leases] = recipes.Entered(engine, ", ".join(ask.name for ask in asks))

    def acquire(self, timeout: float | Unset | None = UNSET) -> Acquiring[Leases]:
        return Acquiring(self._acquire(self._timeout if isinstance(timeout, Unset) else valid_timeout(timeout)))

    async def _acquire(self, wait: float | None) -> Leases:
        return Leases(self._engine, await recipes.acquire_all(self._engine, self._asks, wait, Lease))

    async def try_acquire(self) -> Leases | None:
        try:
            return await self.acquire(0)
        except NotAcquired:
            return None

    async def __aenter__(self) -> Leases:
        leases = await self.acquire()
        try:
            await leases.__aenter__()
            self._entered.push(leases)
            return leases
        except BaseException:
            self._entered.discard(leases)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._entered.pop().__aexit__(kind, error, at)


class _Leadership(Lock):
    def __init__(self, election: Election, engine: Engine, ask: Ask, timeout: float | None) -> None:
        super().__init__(engine, ask, timeout)
        self._election = election

    def acquire(self, timeout: float | Unset | None = UNSET) -> Acquiring[Lease]:
        return Acquiring(self._acquire(timeout))

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
        """Stand for election: `async with election.lead() as lease:` is entered as the leader."""
        return _Leadership(self, self._engine, self._ask, timeout)

    async def leader(self) -> Leader | None:
        """Who leads now, as the store sees it."""
        return recipes.leader_of(await self._engine.open_store().inspect(self.name))

    async def watch(self, timeout: float | None = None) -> AsyncIterator[Leader | None]:
        """The leader now (None: nobody), and then every change. Ends after `timeout` seconds without one."""
        seen = -1
        while (found := await recipes.next_leader(self._engine, self.name, seen, timeout)) is not recipes.UNCHANGED:
            leader = found if isinstance(found, Leader) else None
            seen = leader.term if leader else 0
            yield leader

    async def resign(self) -> bool:
        """Step down, if this object leads. False: it did not."""
        resigned = [await lease.release() for lease in self._terms.held()]
        return any(resigned)


class Locks:
    """A connected store. Use it as an async context manager, or `close()` it; it belongs to one event loop."""

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
        """One at a time. `reentrant=True` lets the same task in again, with the same token."""
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

    async def inspect(self, name: str) -> Snapshot:
        """Who is inside and who waits."""
        return await self._engine.open_store().inspect(valid_name(name))

    async def names(self, prefix: str = "") -> Sequence[str]:
        """The names that are held or waited for."""
        return await self._engine.open_store().names(valid_prefix(prefix))

    async def force_release(self, name: str, *, token: int) -> int | None:
        """Put out the holder of `token`, and only that one. Returns a token past it, to seal the storage with.

        The evicted holder is told at its next renewal, at the latest. None: nobody holds that token any more.
        """
        return await recipes.force_release(self._engine, name, token)

    async def wait_graph(self) -> waitfor.WaitGraph:
        """Who waits for whom, over all locks of this store; `graph.deadlocks()` names the cycles."""
        return await recipes.wait_graph(self._engine)

    @property
    def traits(self) -> Traits:
        """What this store promises, and what it does not."""
        return self._engine.store.traits

    def subscribe(self, subscriber: events.Subscriber, kinds: Iterable[str] = events.KINDS) -> Callable[[], None]:
        """Be told of events; returns what ends it. A subscriber that raises breaks nothing."""
        return self._engine.hook.subscribe(subscriber, kinds)

    # ---- the end

    async def close(self, timeout: float = CLOSING) -> None:
        """Release what is held and disconnect, in at most `timeout` seconds. What is left then ends by its ttl, and is told."""
        await self._engine.close(valid_closing(timeout))

    async def __aenter__(self) -> Locks:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def connect(url: str | None = None, *, label: str = "", observe: Observers | None = None) -> Locks:
    """Open a store for asyncio; see `holdfast.connect`."""
    url = target = connecting.resolve(url)  # a secret, also in this frame
    engine = connecting.open_engine(target, Asyncio(), label, observe)
    lifecycle.adopt(engine, lambda held: _release_at_exit(held, target))
    return Locks(engine)


def _release_at_exit(engine: Engine, url: str) -> None:
    """The loop is gone by now, so what was left held goes back through a blocking connection of its own."""
    owed = engine.leftovers()
    if owed:
        instead = connecting.open_engine(url, Threads())
        for one in owed:
            instead.leaving.owe(one)
        finish(instead.close())
