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
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from inspect import CO_COROUTINE, CO_ITERABLE_COROUTINE
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Never, ParamSpec, TypeVar, Unpack, cast, overload
from weakref import ref

from . import changing, connecting, decorating, electing, events, lifecycle, recipes, waitfor, words
from .asking import Ask, GiveUp
from .body import Body
from .claim import Snapshot, Traits, valid_closing, valid_name, valid_ttl
from .decorating import Key
from .drivers.aio import Asyncio
from .drivers.base import finish
from .drivers.threads import Threads
from .electing import Leader
from .engine import CLOSING, Engine
from .errors import LeaseLost, Misuse, NotAcquired, Unavailable
from .hearing import Told, in_this_loop
from .lease import RELEASED
from .lease import Lease as CoreLease
from .lease import Loss as CoreLoss
from .observe import Observers
from .recipes import DEFAULT_TTL, UNSET, Otherwise, Unset
from .recipes import RWLock as RWLock
from .scope import AsyncExits, Exit, LeaseExit, Scope

if TYPE_CHECKING:
    from .options import LockOptions, OnceOptions, Options, RWOptions

__all__ = [
    "connect",
    "Locks",
    "Lock",
    "LockOr",
    "Semaphore",
    "RWLock",
    "AllOf",
    "Election",
    "Acquiring",
    "Lease",
    "Leases",
    "Loss",
    "Leader",
]

_COROUTINE = CO_COROUTINE | CO_ITERABLE_COROUTINE
P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
M = TypeVar("M", bound="Lease | Leases")


class With(Scope):
    """The scope of one `async with`: left, it gives back what is inside."""

    async def __call__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self.inside is None:
            await self._of._left_by_hand()(kind, error, at)
        else:
            await self.inside._leave(self.body.leave(kind), error)
            self.inside = None


class Loss(CoreLoss):
    """Set when the lease is lost: `is_set()`, `await wait(timeout)`, or just its truth value."""

    def __init__(self, lease: Lease) -> None:
        self._event = Told()
        super().__init__(lease)

    async def wait(self, timeout: float | None = None) -> bool:
        """Until the lease is lost (True), or released, or `timeout` (False).

        `timeout`: so many seconds at most; None: as long as the lease is held.

        >>> async with locks.lock("report") as lease:
        ...     await lease.lost.wait(timeout=0)
        False
        """
        if self._lease.held:  # otherwise nobody would tell
            self._lease._engine.renewer.go_on()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._event.wait()
        return self.is_set()


class Lease(CoreLease, AsyncExits):
    """A live grant. Leaving the `async with`, or `await release()`, gives it back."""

    _here = staticmethod(in_this_loop)

    @property
    def lost(self) -> Loss:
        """Set when the lease is lost: `lease.lost.wait()`, `lease.lost.is_set()`, or `if lease.lost:`."""
        if self._loss is None:
            self._loss = Loss(self)
        loss: Loss = self._loss
        return loss

    async def release(self) -> bool:
        """Give it back. False: the store did not have it any more. Raises Unavailable, and may be repeated.

        >>> lease = await locks.lock("report").acquire()
        >>> await lease.release()
        True
        """
        if sys.exc_info()[0] is GeneratorExit and _is_gone(self, sys.exc_info()[1]):
            self._abandon(1)
            return True
        return await self._engine.release(self)

    async def renew(self) -> None:
        """Renew it now, for another ttl. Raises LeaseLost if it is gone, Unavailable if nobody knows.

        Only who passed `renew=False` needs it: other leases renew themselves.

        >>> async with locks.lock("report", ttl=5, renew=False) as lease:
        ...     await lease.renew()
        """
        await changing.renew(self._engine, self)

    async def extend(self, seconds: float) -> None:
        """Of a lease with an end (`renew=False`, or `once`): keep it for so many `seconds` from now, and no longer.

        Raises LeaseLost if it is gone: what was lost is never brought back.

        >>> async with locks.lock("report", ttl=5, renew=False) as lease:
        ...     await lease.extend(20)
        """
        await changing.renew(self._engine, self, valid_ttl(seconds, "seconds"))

    async def downgrade(self) -> None:
        """Of a write lock: become a reader, without letting another writer in between. The token stays.

        Unavailable: it may have happened, so others may be reading. Do not write; it may be repeated.

        >>> async with locks.rwlock("catalog").write() as lease:
        ...     await lease.downgrade()
        """
        await changing.downgrade(self._engine, self)

    async def __aenter__(self) -> Lease:
        """Enter: a loss cancels the body from now on, and comes out of it as LeaseLost."""
        self.check()
        self._engine.renewer.go_on()
        self._enter(With).body = Body([self])
        return self

    if not TYPE_CHECKING:
        __aexit__ = LeaseExit(With)

    async def _leave(self, ours: bool, error: BaseException | None) -> None:
        if error is not None:
            self._failed()
            if type(error) is GeneratorExit and _is_gone(self, error):
                self._abandon(1)
                return
        before = self._state
        try:
            there = await self._engine.release(self)
        except ConnectionError:
            there = True  # told as an event; the body was covered, and the ttl frees the lock
        if ours:
            raise self._over() from None
        if not there and error is None and before is not RELEASED:  # released inside the body is no loss
            raise recipes.lost_in_body(self)


def _is_gone(lease: Lease, error: BaseException | None) -> bool:
    """Whoever acquired it never runs again, and is ended by the collector, in the middle of somebody else's task, and of whatever
    that has locked: to wait here is to wait in its name, and a time limit of ours would cancel it."""
    task: asyncio.Task[Any] | None = lease._by() if lease._by is not None else None
    return (task is None or task.get_loop().is_closed()) and _came_through_a_coroutine(error)


def _came_through_a_coroutine(error: BaseException | None) -> bool:
    """A coroutine that is closed can wait for nothing. A generator can, whose aclose() somebody awaits; and so can whoever runs a
    loop in the `finally` of a plain one."""
    at = error.__traceback__ if error is not None else None
    while at is not None and not at.tb_frame.f_code.co_flags & _COROUTINE:
        at = at.tb_next
    return at is not None


def _are_gone(leases: Sequence[Lease], error: BaseException | None) -> bool:
    gone = all(_is_gone(lease, error) for lease in leases)
    for lease in leases if gone else ():
        lease._abandon(1)
    return gone


class Acquiring(Coroutine[Any, Any, M], AsyncExits):
    """`await` it for the lease, enter it with `async with`, or make a task of it: it is a coroutine."""

    __slots__ = ("_coroutine", "_got")

    def __init__(self, coroutine: Coroutine[Any, Any, M]) -> None:
        self._coroutine: Coroutine[Any, Any, M] = coroutine

    if not TYPE_CHECKING:

        def __getattr__(self, attribute):
            raise words.not_awaited(self, attribute)

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


class Takeable(recipes.Guard[Lease], AsyncExits):
    """What can be taken, again and again: also by many tasks at once, each with a lease of its own."""

    lease_type = Lease

    def acquire(
        self, timeout: float | Unset | None = UNSET, *, cancel: GiveUp | None = None, **foreign: Never
    ) -> Acquiring[Lease]:
        """Wait for it, and return the lease. Raises NotAcquired, never returns without.

        `timeout`: how many seconds to wait: None for ever, 0 not at all; without it, what the lock was made with.
        `cancel`: anything with `is_set()`, such as a threading.Event; once it is set, the wait is given up within a
        second, and NotAcquired raised.

        >>> lease = await locks.lock("report").acquire(timeout=5)
        >>> await lease.release()
        True
        """
        wait = self._wait(timeout, foreign)
        return Acquiring(self._engine.acquire(self._ask, wait, self.lease_type, cancel))

    async def try_acquire(self) -> Lease | None:
        """The lease at once, or None.

        >>> if lease := await locks.lock("report").try_acquire():
        ...     await lease.release()
        True
        """
        return await self._try_acquire()

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        return self._enter(sys._getframe(1))

    async def _enter(self, frame: FrameType) -> Lease:
        lease = await self.acquire()
        lease.check()
        self._scopes.entered(With, self, lease, frame).body = Body([lease])
        return lease

    if not TYPE_CHECKING:
        __aexit__ = Exit(With)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        call = decorating.plan(function, self._ask.name, self._key, asynchronous=True)

        @decorating.wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            name = call.name(args, kwargs)
            try:
                lease = await self._acquire(self._timeout, name=name)
            except NotAcquired as error:
                if self._instead is None:
                    raise
                return self._skipped(function, error)
            async with lease:
                args, kwargs = call.with_lease(lease, args, kwargs)
                return await function(*args, **kwargs)

        call.dress(guarded)
        return guarded


class Lock(Takeable):
    """Take it with `async with`, `acquire()`, `try_acquire()`, or as a decorator."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Lease, P], Awaitable[R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As a decorator: every call of `function` runs under the lock; one that cannot get it in time raises
        NotAcquired.

        A function with a parameter `lease` is given the lease, for its token; as the first parameter, it is not one of
        the result's.
        """
        return self._guarded(function)


class LockOr(Takeable, Generic[D]):
    """A lock with `otherwise=`: a decorated call that does not get it returns something else, and the log says so."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Lease, P], Awaitable[R]]
    ) -> Callable[P, Coroutine[Any, Any, R | D]]: ...

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | D]]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As a decorator: every call of `function` runs under the lock; one that cannot get it is skipped, or something
        else done instead.
        """
        return self._guarded(function)


class Semaphore(Lock):
    """Up to `capacity` units inside at once."""

    def acquire(
        self,
        timeout: float | Unset | None = UNSET,
        units: int = 1,
        *,
        cancel: GiveUp | None = None,
        **foreign: Never,
    ) -> Acquiring[Lease]:
        """Wait for some of the units, and return the lease. Raises NotAcquired, never returns without.

        `timeout`: how many seconds to wait: None for ever, 0 not at all; without it, what the semaphore was made with.
        `units`: how many to take, all at once.
        `cancel`: anything with `is_set()`; once it is set, the wait is given up.

        >>> lease = await locks.semaphore("gpu", 4).acquire(timeout=5, units=2)
        >>> await lease.release()
        True
        """
        return Acquiring(self._acquire(self._wait(timeout, foreign), units, cancel=cancel))

    async def try_acquire(self, units: int = 1) -> Lease | None:
        """So many `units` at once, or None.

        >>> if lease := await locks.semaphore("gpu", 4).try_acquire(units=2):
        ...     await lease.release()
        True
        """
        return await self._try_acquire(units)


class Leases(recipes.Bundle[Lease], AsyncExits):
    """Several leases, in the order of their names. `leases["alice"].token` is the token for alice."""

    async def release(self) -> None:
        """Give all back, also when one fails; then raise the first failure.

        >>> leases = await locks.all_of("bob", "alice").acquire()
        >>> await leases.release()
        """
        if sys.exc_info()[0] is GeneratorExit and _are_gone(self._leases, sys.exc_info()[1]):
            return
        failures = await recipes.release_all(self._engine, self._leases)
        if failures:
            raise failures[0]

    async def __aenter__(self) -> Leases:
        """Enter: the loss of any of them cancels the body from now on, and comes out of it as LeaseLost."""
        self.check()
        self._engine.renewer.go_on()
        self._enter(With).body = Body(self._leases)
        return self

    if not TYPE_CHECKING:
        __aexit__ = LeaseExit(With)

    async def _leave(self, ours: bool, error: BaseException | None) -> None:
        if type(error) is GeneratorExit and _are_gone(self._leases, error):
            return
        await recipes.release_all(self._engine, self._leases)
        if (ours or error is None) and (lost := self._lost()):
            raise lost from None


class AllOf(recipes.Several, AsyncExits):
    """Several locks, all or nothing, taken in sorted order under one deadline: two of these cannot deadlock."""

    def acquire(
        self, timeout: float | Unset | None = UNSET, *, cancel: GiveUp | None = None, **foreign: Never
    ) -> Acquiring[Leases]:
        """Wait for all of them, under one deadline. Raises NotAcquired, and then has none of them.

        `timeout`: how many seconds to wait for all together: None for ever, 0 not at all; without it, what `all_of()`
        was told.
        `cancel`: anything with `is_set()`; once it is set, the wait is given up.

        >>> async with locks.all_of("bob", "alice").acquire(timeout=5) as leases:
        ...     sorted(leases.tokens)
        ['alice', 'bob']
        """
        wait = self._wait(timeout, foreign)
        return Acquiring(self._acquire(wait, cancel))

    async def _acquire(self, wait: float | None, cancel: GiveUp | None) -> Leases:
        return Leases(self._engine, await recipes.acquire_all(self._engine, self._asks, wait, Lease, cancel))

    async def try_acquire(self) -> Leases | None:
        """All of them at once, or None.

        >>> if leases := await locks.all_of("bob", "alice").try_acquire():
        ...     await leases.release()
        """
        try:
            return await self.acquire(0)
        except NotAcquired:
            return None

    def __aenter__(self) -> Coroutine[Any, Any, Leases]:
        return self._enter(sys._getframe(1))

    async def _enter(self, frame: FrameType) -> Leases:
        leases = await self.acquire()
        leases.check()
        self._scopes.entered(With, self, leases, frame).body = Body(leases)
        return leases

    if not TYPE_CHECKING:
        __aexit__ = Exit(With)


class _Leadership(Lock):
    def __init__(self, election: Election, engine: Engine, ask: Ask, timeout: float | None) -> None:
        super().__init__(engine, ask, timeout)
        self._election = election

    def acquire(
        self, timeout: float | Unset | None = UNSET, *, cancel: GiveUp | None = None, **foreign: Never
    ) -> Acquiring[Lease]:
        """Wait until it leads, and return the lease of its term. `timeout` and `cancel` are as in `Lock.acquire()`."""
        return Acquiring(self._acquire(self._wait(timeout, foreign), cancel=cancel))

    async def _acquire(
        self, wait: float | None, units: int | None = None, name: str | None = None, cancel: GiveUp | None = None
    ) -> Lease:
        lease = await super()._acquire(wait, units, name, cancel)
        self._election._terms.add(lease)
        return lease


class Election(electing.Office[Lease]):
    """One leader at a time. Its `term` is the lease's token: pass it with everything the leader does."""

    def lead(self, timeout: float | None = None) -> Lock:
        """Stand for election: `async with election.lead() as lease:` is entered as the leader.

        `timeout`: how many seconds to stand: None for ever, 0 not at all.

        >>> async with locks.election("scheduler").lead(timeout=5) as lease:
        ...     lease.name
        'scheduler'
        """
        return _Leadership(self, self._engine, self._ask, timeout)

    async def leader(self) -> Leader | None:
        """Who leads now, as the store sees it; None: nobody.

        >>> election = locks.election("scheduler", address="10.0.0.7")
        >>> async with election.lead():
        ...     (await election.leader()).address
        '10.0.0.7'
        """
        return electing.leader_of(await self._engine.open_store().inspect(self.name))

    async def watch(self, timeout: float | None = None) -> AsyncIterator[Leader | None]:
        """The leader now (None: nobody), and then every change. Ends after `timeout` seconds without one; None: never.

        >>> async for leader in locks.election("scheduler").watch(timeout=0):
        ...     print(leader)
        None
        """
        seen = -1
        while (found := await electing.next_leader(self._engine, self.name, seen, timeout)) is not electing.UNCHANGED:
            leader = found if isinstance(found, Leader) else None
            seen = leader.term if leader else 0
            yield leader

    async def terms(self, *, cancel: GiveUp | None = None) -> AsyncGenerator[Lease, None]:
        """Stand for election again and again: each round of the loop is one term, entered as the leader.

        Work while `lease.held`. What is still held when the round ends is given back, and after a term that was lost it
        waits a moment before it stands again. A store that does not answer is ridden out.

        `cancel`: anything with `is_set()`, such as a threading.Event; once it is set, the loop ends.

        >>> async for lease in locks.election("scheduler").terms():
        ...     print(lease.held)
        ...     break
        True
        """
        pause = electing.Pause(self._engine)
        while cancel is None or not cancel.is_set():
            try:
                lease = await self.lead().acquire(cancel=cancel)
            except NotAcquired:
                return
            except Unavailable as error:
                await pause.after(error, cancel)
                continue
            try:
                yield lease
            finally:
                with contextlib.suppress(ConnectionError):  # told as an event; the ttl ends the term
                    await lease.release()
            await pause.between(lease, cancel)

    async def run(
        self,
        lead: Callable[[Lease], Awaitable[R]],
        *,
        on_lost: Callable[[Lease], object] | None = None,
        cancel: GiveUp | None = None,
    ) -> R | None:
        """Lead until the work is done, and return what it returned; None if `cancel` was set before.

        `lead`: called with the lease, as the leader, and again in a later term if that one was lost. It may raise what
        it likes: the term is given back first, then it is raised.
        `on_lost`: called with the lease of a term that was lost, before it stands again. A LeaseLost is no reason to
        end.
        `cancel`: anything with `is_set()`; once it is set, it stands no more.

        >>> async def lead(lease):
        ...     return lease.name
        >>> await locks.election("scheduler").run(lead)
        'scheduler'
        """
        async with contextlib.aclosing(self.terms(cancel=cancel)) as terms:
            async for lease in terms:
                try:
                    async with lease:
                        return await lead(lease)
                except LeaseLost:
                    if not lease._is_lost():
                        raise  # another lock's
                    if on_lost is not None:
                        on_lost(lease)
        return None

    async def resign(self) -> bool:
        """Step down, if this object leads. False: it did not.

        >>> await locks.election("scheduler").resign()
        False
        """
        resigned = [await lease.release() for lease in self._terms.held()]
        return any(resigned)


class Locks(AsyncExits):
    """A connected store. Use it as an async context manager, or `close()` it; it belongs to one event loop at a time."""

    def __init__(self, engine: Engine, *, check: bool = False) -> None:
        self._engine = engine
        self._check = check

    def __repr__(self) -> str:
        return f"<Locks {self._engine.where}{', closed' if self._engine.closed else ''}>"

    if not TYPE_CHECKING:  # a type checker shall go on saying that there is no such attribute

        def __getattr__(self, attribute: str) -> Any:
            raise words.missing(self, attribute)

    # ---- recipes

    @overload
    def lock(
        self, name: str | Unset = UNSET, *, otherwise: Literal["raise"] = "raise", **options: Unpack[LockOptions]
    ) -> Lock: ...

    @overload
    def lock(
        self, name: str | Unset = UNSET, *, otherwise: Literal["skip"], **options: Unpack[LockOptions]
    ) -> LockOr[None]: ...

    @overload
    def lock(
        self, name: str | Unset = UNSET, *, otherwise: Callable[[NotAcquired], D], **options: Unpack[LockOptions]
    ) -> LockOr[D]: ...

    def lock(
        self,
        name: str | Unset = UNSET,
        *,
        key: Key | None = None,
        ttl: float = DEFAULT_TTL,
        timeout: float | None = None,
        fair: bool = True,
        reentrant: bool = False,
        renew: bool = True,
        keep: float = 0.0,
        confirm: bool = True,
        otherwise: Otherwise = "raise",
        **foreign: object,
    ) -> Lock | LockOr[Any]:
        """One at a time.

        `name`: any text of up to 512 bytes. As a decorator it may be made of the arguments, `"invoice:{invoice_id}"`;
        without one it is the function's own name.
        `key`: of a decorator: a function of the arguments that returns the name.
        `ttl`: how many seconds the lock outlives a holder that died; while it lives, it renews it.
        `timeout`: how many seconds to wait (None: for ever, 0: not at all).
        `fair`: first come, first served; False: whoever comes when it is free.
        `renew`: False: it ends with its ttl, unless you `extend()` it.
        `reentrant`: True lets the same task in again, with the same token.
        `keep`: released, the grant stays with this process for so many seconds after its last use, and is lent again
        without a word to the store; somebody elsewhere who waits is told of, and gets it when the section under way
        ends. Sections that are lent one grant share its token, which orders processes and not the threads of one.
        `confirm`: False: leaving does not wait for the answer to the release, if the store is behind a network; if
        none comes, it is repeated in the background. What only the answer could have told (an eviction at the last
        moment) is an event.
        `otherwise`: of a decorated call that does not get the lock: "raise" NotAcquired, "skip" it and return None, or
        a function that is called with the NotAcquired, and whose result is returned.

        >>> async with locks.lock("invoice:42", ttl=10, timeout=5) as lease:
        ...     lease.check()
        """
        if foreign:
            words.refuse("lock()", foreign)
        ask = recipes.lock_ask(name, ttl, fair, reentrant, renew, key)
        if keep != 0.0 or confirm is not True:
            ask = recipes.past_the_floor(self._engine, ask, keep, confirm)
        return recipes.guard(Lock, LockOr, self._engine, ask, timeout, otherwise, key)

    @overload
    def semaphore(
        self, name: str, capacity: int, *, otherwise: Literal["raise"] = "raise", **options: Unpack[Options]
    ) -> Semaphore: ...

    @overload
    def semaphore(
        self, name: str, capacity: int, *, otherwise: Literal["skip"], **options: Unpack[Options]
    ) -> LockOr[None]: ...

    @overload
    def semaphore(
        self, name: str, capacity: int, *, otherwise: Callable[[NotAcquired], D], **options: Unpack[Options]
    ) -> LockOr[D]: ...

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
        **foreign: object,
    ) -> Semaphore | LockOr[Any]:
        """Some units, of which everybody takes one or more.

        `name`: any text of up to 512 bytes.
        `capacity`: how many units there are; all who use the name have to agree.
        `ttl`: how many seconds the lock outlives a holder that died; while it lives, it renews it.
        `timeout`: how many seconds to wait (None: for ever, 0: not at all).
        `fair`: first come, first served; False: whoever comes when it is free.
        `renew`: False: it ends with its ttl, unless you `extend()` it.
        `otherwise`: of a decorated call that gets none: "raise", "skip", or a function, as in `lock()`.

        >>> async with locks.semaphore("gpu", 4, timeout=5).acquire(units=2):
        ...     (await locks.inspect("gpu")).used
        2
        """
        if foreign:
            words.refuse("semaphore()", foreign)
        ask = recipes.semaphore_ask(name, capacity, ttl, fair, renew)
        return recipes.guard(Semaphore, LockOr, self._engine, ask, timeout, otherwise)

    @overload
    def rwlock(
        self, name: str, *, otherwise: Literal["raise"] = "raise", **options: Unpack[RWOptions]
    ) -> RWLock[Lock]: ...

    @overload
    def rwlock(
        self, name: str, *, otherwise: Literal["skip"], **options: Unpack[RWOptions]
    ) -> RWLock[LockOr[None]]: ...

    @overload
    def rwlock(
        self, name: str, *, otherwise: Callable[[NotAcquired], D], **options: Unpack[RWOptions]
    ) -> RWLock[LockOr[D]]: ...

    def rwlock(
        self,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        timeout: float | None = None,
        fair: bool = True,
        renew: bool = True,
        keep: float = 0.0,
        otherwise: Otherwise = "raise",
        **foreign: object,
    ) -> RWLock[Any]:
        """Many readers or one writer: `read()` and `write()` are locks.

        `name`: any text of up to 512 bytes.
        `ttl`: how many seconds the lock outlives a holder that died; while it lives, it renews it.
        `timeout`: how many seconds to wait (None: for ever, 0: not at all).
        `fair`: first come, first served; False: whoever comes when it is free.
        `renew`: False: it ends with its ttl, unless you `extend()` it.
        `keep`: of readers: when the last one here has left, the grant stays with this process for so many seconds, and is
        lent to all its readers without a word to the store, as that of `lock()`. Whoever writes is not kept.
        `otherwise`: of a decorated call that does not get it: "raise", "skip", or a function, as in `lock()`.

        >>> async with locks.rwlock("catalog", timeout=5).read() as lease:
        ...     lease.check()
        """
        if foreign:
            words.refuse("rwlock()", foreign)
        read, write = (
            recipes.guard(Lock, LockOr, self._engine, ask, timeout, otherwise)
            for ask in recipes.rwlock_asks(name, ttl, fair, renew, self._engine, keep)
        )
        return RWLock(read, write)

    def all_of(
        self,
        *names: str,
        ttl: float = DEFAULT_TTL,
        timeout: float | None = None,
        fair: bool = True,
        renew: bool = True,
        **foreign: Never,
    ) -> AllOf:
        """Several locks at once, all or nothing, in one order for everybody: two of these cannot deadlock.

        `names`: of the locks, in any order.
        `ttl`: how many seconds the lock outlives a holder that died; while it lives, it renews it.
        `timeout`: how many seconds to wait (None: for ever, 0: not at all).
        `fair`: first come, first served; False: whoever comes when it is free.
        `renew`: False: it ends with its ttl, unless you `extend()` it.

        >>> async with locks.all_of("bob", "alice", timeout=5) as leases:
        ...     leases["alice"].check()
        """
        if foreign:
            words.refuse("all_of()", foreign)
        return AllOf(self._engine, recipes.all_of_asks(names, ttl, fair, renew), timeout)

    def election(self, name: str, *, address: str = "", ttl: float = DEFAULT_TTL, **foreign: Never) -> Election:
        """One leader at a time.

        `name`: of what is led; any text of up to 512 bytes.
        `address`: what the others are told of the leader.
        `ttl`: how many seconds a leader that died stays in office.

        >>> election = locks.election("scheduler", address="10.0.0.7", ttl=10)
        >>> async with election.lead() as lease:
        ...     lease.check()
        """
        if foreign:
            words.refuse("election()", foreign)
        return Election(self._engine, recipes.election_ask(name, address, ttl))

    @overload
    def once(
        self, name: str | Unset = UNSET, *, otherwise: Literal["skip"] = "skip", **options: Unpack[OnceOptions]
    ) -> LockOr[None]: ...

    @overload
    def once(
        self, name: str | Unset = UNSET, *, otherwise: Literal["raise"], **options: Unpack[OnceOptions]
    ) -> Lock: ...

    @overload
    def once(
        self, name: str | Unset = UNSET, *, otherwise: Callable[[NotAcquired], D], **options: Unpack[OnceOptions]
    ) -> LockOr[D]: ...

    def once(
        self,
        name: str | Unset = UNSET,
        *,
        key: Key | None = None,
        at_least: float = 0.0,
        at_most: float = 3600.0,
        otherwise: Otherwise = "skip",
        **foreign: object,
    ) -> Lock | LockOr[Any]:
        """For a job that several schedulers start at the same moment: one runs it, the others skip, and say so in the
        log.

        `name` and `key`: as in `lock()`.
        `at_least`: the lock stays taken for so many seconds, however short the job, so that a late scheduler skips too.
        `at_most`: it is over after so many seconds, however long the job.
        `otherwise`: of a call that comes second: "skip", "raise", or a function, as in `lock()`. In `async with`, it
        gets NotAcquired.

        >>> @locks.once("bill:{month}", at_least=60)
        ... async def bill(month: str) -> str:
        ...     return f"billed {month}"
        >>> await bill("2026-11")
        'billed 2026-11'
        >>> await bill("2026-11")  # None: it was skipped
        """
        if foreign:
            words.refuse("once()", foreign)
        ask = recipes.once_ask(name, at_least, at_most, key)
        return recipes.guard(Lock, LockOr, self._engine, ask, 0, otherwise, key, takes=True)

    # ---- looking and intervening

    async def inspect(self, name: str) -> Snapshot:
        """Who is inside and who waits, for the lock `name`: a Snapshot.

        >>> (await locks.inspect("invoice:42")).holders
        ()
        """
        return await self._engine.open_store().inspect(valid_name(name))

    async def names(self, prefix: str = "") -> Sequence[str]:
        """The names that are held or waited for, and begin with `prefix`.

        >>> async with locks.lock("invoice:42"):
        ...     await locks.names(prefix="invoice:")
        ['invoice:42']
        """
        return await recipes.names(self._engine, prefix)

    async def force_release(self, name: str, *, token: int) -> int | None:
        """Evict the holder of one token, and only that one. Returns a token past it, to seal the storage with.

        `name`: of the lock.
        `token`: of the holder that you looked at, as `inspect()` tells it. None is returned if nobody holds it any
        more.

        The evicted holder is told at its next renewal, at the latest.

        >>> lease = await locks.lock("stuck").acquire()
        >>> seal = await locks.force_release("stuck", token=lease.token)
        >>> seal > lease.token
        True
        """
        return await recipes.force_release(self._engine, name, token)

    async def wait_graph(self) -> waitfor.WaitGraph:
        """Who waits for whom, over all locks of this store; `graph.deadlocks()` names the cycles.

        >>> (await locks.wait_graph()).deadlocks()
        ()
        """
        return await recipes.wait_graph(self._engine)

    async def ping(self) -> float:
        """Ask the store something, and return the seconds that it took. Raises what the first acquire would:
        Unavailable, say.

        >>> await locks.ping() < 60
        True
        """
        return await recipes.ping(self._engine)

    @property
    def traits(self) -> Traits:
        """What this store promises, and what it does not."""
        return self._engine.store.traits

    def subscribe(self, subscriber: events.Subscriber, kinds: Iterable[str] = events.KINDS) -> Callable[[], None]:
        """Be told of events; returns what ends it. A subscriber that raises breaks nothing.

        `subscriber`: called with each Event, where it happened; so it should be quick.
        `kinds`: which ones, of `holdfast.events.KINDS`.

        >>> stop = locks.subscribe(print, kinds=["lost", "in danger"])
        >>> stop()
        """
        return self._engine.hook.subscribe(subscriber, kinds)

    # ---- the end

    async def close(self, timeout: float = CLOSING) -> None:
        """Release what is held and disconnect, in at most `timeout` seconds. What is left then ends by its ttl, and is
        told.

        >>> other = connect("memory://")
        >>> await other.close(timeout=1)
        """
        timeout = valid_closing(timeout)
        # What a loop that is over has left in the middle may be to be released.
        cast(Asyncio, self._engine.driver).tidy_up()
        await self._engine.close(timeout)

    async def __aenter__(self) -> Locks:
        if self._check:
            try:
                await self.ping()
            except BaseException:
                await self.close(timeout=0)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def connect(
    url: str | None = None,
    *,
    label: str = "",
    check: bool = False,
    observe: Observers | None = None,
    also: str | None = None,
    **foreign: Never,
) -> Locks:
    """Open a store for asyncio, and return its locks. Everything is as in `holdfast.connect`.

    `url`: which store, and where: `redis://localhost:6379`, `postgresql://…`, `sqlite:///path`, `memory://` and others.
    Without it: HOLDFAST_URL, or an SQLite file of this user.
    `label`: shown to whoever asks who holds a lock.
    `check`: True asks the store something on entering `async with`, and raises there what is wrong.
    `observe`: who is to be told what happens, as in `observe=["prometheus"]`.
    `also`: a second lock, of another library or at another URL, that is taken as well while old code still runs.

    >>> async with connect("memory://", label="billing", check=True) as locks:
    ...     async with locks.lock("invoice:42") as lease:
    ...         lease.check()
    """
    if foreign:
        words.refuse("connect()", foreign)
    url = target = connecting.resolve(url)  # a secret, also in this frame
    also = second = also if also is None else connecting.resolve(also)
    driver = Asyncio()
    engine = connecting.open_engine(target, driver, label, observe, second)
    driver.one_loop = _two_loops if engine.store.traits.scope == "network" else None
    driver.serves = _calls_of(ref(engine))
    lifecycle.adopt(engine, lambda held: _release_at_exit(held, driver, target, second))
    return Locks(engine, check=check)


def _calls_of(known: ref[Engine]) -> Callable[[Any], bool]:
    def is_one(called: Any) -> bool:
        engine = known()
        return engine is not None and (called is engine or called is engine.store)

    return is_one


def _two_loops() -> Misuse:
    return Misuse(
        "this connection is in use by another event loop, which runs now, in another thread: aio.connect() in each loop, "
        "or use holdfast.connect() in threads (in Django: ask alocks in the coroutine, not at import)"
    )


def _release_at_exit(engine: Engine, driver: Asyncio, url: str, also: str | None) -> None:
    """The loop is gone by now, so what was left held goes back through a blocking connection of its own."""
    driver.bury()  # what was being released when it was closed is still to be
    owed = engine.leftovers()
    if owed:
        instead = connecting.open_engine(url, Threads(), also=also)
        for one in owed:
            instead.leaving.owe(one)
        finish(instead.close())
