"""What a thread user holds. Each body is one call into the core, run to its end on the spot.

What needs no await is said once, in recipes, electing, lease and scope. What stands here and again in aio.py are names,
signatures and their documentation: a type checker must see each world's own (overloads cannot be generic over two kinds of
lock), and tests/test_surfaces.py compares them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, Never, ParamSpec, TypeVar, Unpack, overload

from . import changing, connecting, decorating, electing, events, lifecycle, recipes, waitfor, words
from .asking import Ask, GiveUp
from .claim import Snapshot, Traits, valid_closing, valid_name, valid_ttl
from .decorating import Key
from .drivers.base import finish
from .drivers.threads import Flag, Threads
from .electing import Leader
from .engine import CLOSING, Engine
from .errors import LeaseLost, NotAcquired, Unavailable
from .lease import RELEASED
from .lease import Lease as CoreLease
from .lease import Loss as CoreLoss
from .observe import Observers
from .recipes import DEFAULT_TTL, UNSET, Otherwise, Unset
from .recipes import RWLock as RWLock
from .scope import Exit, Exits, LeaseExit, Scope

if TYPE_CHECKING:
    from .options import LockOptions, OnceOptions, Options, RWOptions

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class With(Scope):
    """The scope of one `with`: left, it gives back what is inside."""

    def __call__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.inside is None:
            self._of._left_by_hand()(kind, error, at)
        else:
            self.inside._leave(error)
            self.inside = None


class Loss(CoreLoss):
    """Set when the lease is lost: `is_set()`, `wait(timeout)`, or just its truth value."""

    def __init__(self, lease: Lease) -> None:
        self._event = Flag()
        super().__init__(lease)

    def wait(self, timeout: float | None = None) -> bool:
        """Until the lease is lost (True), or released, or `timeout` (False).

        `timeout`: so many seconds at most; None: as long as the lease is held.

        >>> with locks.lock("report") as lease:
        ...     lease.lost.wait(timeout=0)
        False
        """
        if self._lease.held:  # otherwise nobody would tell
            self._event.wait(timeout)
        return self.is_set()


class Lease(CoreLease, Exits):
    """A live grant. Leaving the `with`, or `release()`, gives it back."""

    _outside = 4  # behind the engine, `finish` and what was called

    @property
    def lost(self) -> Loss:
        """Set when the lease is lost: `lease.lost.wait()`, `lease.lost.is_set()`, or `if lease.lost:`."""
        if self._loss is None:
            made = Loss(self)
            with self._engine.mutex:  # one for all who ask, or release would wake only some of them
                if self._loss is None:  # not `or`: a loss is false until it has happened
                    self._loss = made
        loss: Loss = self._loss
        return loss

    def release(self) -> bool:
        """Give it back. False: the store did not have it any more. Raises Unavailable, and may be repeated.

        >>> lease = locks.lock("report").acquire()
        >>> lease.release()
        True
        """
        return finish(self._engine.release(self))

    def renew(self) -> None:
        """Renew it now, for another ttl. Raises LeaseLost if it is gone, Unavailable if nobody knows.

        Only who passed `renew=False` needs it: other leases renew themselves.

        >>> with locks.lock("report", ttl=5, renew=False) as lease:
        ...     lease.renew()
        """
        finish(changing.renew(self._engine, self))

    def extend(self, seconds: float) -> None:
        """Of a lease with an end (`renew=False`, or `once`): keep it for so many `seconds` from now, and no longer.

        Raises LeaseLost if it is gone: what was lost is never brought back.

        >>> with locks.lock("report", ttl=5, renew=False) as lease:
        ...     lease.extend(20)
        """
        finish(changing.renew(self._engine, self, valid_ttl(seconds, "seconds")))

    def downgrade(self) -> None:
        """Of a write lock: become a reader, without letting another writer in between. The token stays.

        Unavailable: it may have happened, so others may be reading. Do not write; it may be repeated.

        >>> with locks.rwlock("catalog").write() as lease:
        ...     lease.downgrade()
        """
        finish(changing.downgrade(self._engine, self))

    def __enter__(self) -> Lease:
        self.check()
        self._enter(With)
        return self

    if not TYPE_CHECKING:
        __exit__ = LeaseExit(With)

    def _leave(self, error: BaseException | None) -> None:
        if error is not None:
            self._failed()
        before = self._state
        try:
            if finish(self._engine.release(self)):
                return
        except ConnectionError:
            return  # told as an event; the body was covered, and the ttl frees the lock
        if error is None and before is not RELEASED:  # released inside the body is no loss
            raise recipes.lost_in_body(self)


class Takeable(recipes.Guard[Lease], Exits):
    """What can be taken, again and again: also by many threads at once, each with a lease of its own."""

    lease_type = Lease

    def acquire(
        self, timeout: float | Unset | None = UNSET, *, cancel: GiveUp | None = None, **foreign: Never
    ) -> Lease:
        """Wait for it, and return the lease. Raises NotAcquired, never returns without.

        `timeout`: how many seconds to wait: None for ever, 0 not at all; without it, what the lock was made with.
        `cancel`: anything with `is_set()`, such as a threading.Event; once it is set, the wait is given up within a
        second, and NotAcquired raised.

        >>> lease = locks.lock("report").acquire(timeout=5)
        >>> lease.release()
        True
        """
        wait = self._wait(timeout, foreign)
        return finish(self._engine.acquire(self._ask, wait, self.lease_type, cancel))

    def try_acquire(self) -> Lease | None:
        """The lease at once, or None.

        >>> if lease := locks.lock("report").try_acquire():
        ...     lease.release()
        True
        """
        return finish(self._try_acquire())

    def __enter__(self) -> Lease:
        lease = self.acquire()
        self._scopes.entered(With, self, lease, sys._getframe(1))
        return lease

    if not TYPE_CHECKING:
        __exit__ = Exit(With)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        call = decorating.plan(function, self._ask.name, self._key, asynchronous=False)

        @decorating.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            name = call.name(args, kwargs)
            try:
                lease = finish(self._acquire(self._timeout, name=name))
            except NotAcquired as error:
                if self._instead is None:
                    raise
                return self._skipped(function, error)
            with lease:
                args, kwargs = call.with_lease(lease, args, kwargs)
                return function(*args, **kwargs)

        call.dress(guarded)
        return guarded


class Lock(Takeable):
    """Take it with `with`, `acquire()`, `try_acquire()`, or as a decorator."""

    @overload
    def __call__(self, function: Callable[Concatenate[Lease, P], R]) -> Callable[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R]: ...

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
    def __call__(self, function: Callable[Concatenate[Lease, P], R]) -> Callable[P, R | D]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R | D]: ...

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
    ) -> Lease:
        """Wait for some of the units, and return the lease. Raises NotAcquired, never returns without.

        `timeout`: how many seconds to wait: None for ever, 0 not at all; without it, what the semaphore was made with.
        `units`: how many to take, all at once.
        `cancel`: anything with `is_set()`; once it is set, the wait is given up.

        >>> lease = locks.semaphore("gpu", 4).acquire(timeout=5, units=2)
        >>> lease.release()
        True
        """
        return finish(self._acquire(self._wait(timeout, foreign), units, cancel=cancel))

    def try_acquire(self, units: int = 1) -> Lease | None:
        """So many `units` at once, or None.

        >>> if lease := locks.semaphore("gpu", 4).try_acquire(units=2):
        ...     lease.release()
        True
        """
        return finish(self._try_acquire(units))


class Leases(recipes.Bundle[Lease], Exits):
    """Several leases, in the order of their names. `leases["alice"].token` is the token for alice."""

    def release(self) -> None:
        """Give all back, also when one fails; then raise the first failure.

        >>> leases = locks.all_of("bob", "alice").acquire()
        >>> leases.release()
        """
        failures = finish(recipes.release_all(self._engine, self._leases))
        if failures:
            raise failures[0]

    def __enter__(self) -> Leases:
        self.check()
        self._enter(With)
        return self

    if not TYPE_CHECKING:
        __exit__ = LeaseExit(With)

    def _leave(self, error: BaseException | None) -> None:
        finish(recipes.release_all(self._engine, self._leases))
        if error is None and (lost := self._lost()):
            raise lost


class AllOf(recipes.Several, Exits):
    """Several locks, all or nothing, taken in sorted order under one deadline: two of these cannot deadlock."""

    def acquire(
        self, timeout: float | Unset | None = UNSET, *, cancel: GiveUp | None = None, **foreign: Never
    ) -> Leases:
        """Wait for all of them, under one deadline. Raises NotAcquired, and then has none of them.

        `timeout`: how many seconds to wait for all together: None for ever, 0 not at all; without it, what `all_of()`
        was told.
        `cancel`: anything with `is_set()`; once it is set, the wait is given up.

        >>> with locks.all_of("bob", "alice").acquire(timeout=5) as leases:
        ...     sorted(leases.tokens)
        ['alice', 'bob']
        """
        wait = self._wait(timeout, foreign)
        return Leases(self._engine, finish(recipes.acquire_all(self._engine, self._asks, wait, Lease, cancel)))

    def try_acquire(self) -> Leases | None:
        """All of them at once, or None.

        >>> if leases := locks.all_of("bob", "alice").try_acquire():
        ...     leases.release()
        """
        try:
            return self.acquire(0)
        except NotAcquired:
            return None

    def __enter__(self) -> Leases:
        leases = self.acquire()
        self._scopes.entered(With, self, leases, sys._getframe(1))
        return leases

    if not TYPE_CHECKING:
        __exit__ = Exit(With)


class _Leadership(Lock):
    def __init__(self, election: Election, engine: Engine, ask: Ask, timeout: float | None) -> None:
        super().__init__(engine, ask, timeout)
        self._election = election

    def acquire(
        self, timeout: float | Unset | None = UNSET, *, cancel: GiveUp | None = None, **foreign: Never
    ) -> Lease:
        """Wait until it leads, and return the lease of its term. `timeout` and `cancel` are as in `Lock.acquire()`."""
        return finish(self._acquire(self._wait(timeout, foreign), cancel=cancel))

    async def _acquire(
        self, wait: float | None, units: int | None = None, name: str | None = None, cancel: GiveUp | None = None
    ) -> Lease:
        lease = await super()._acquire(wait, units, name, cancel)
        self._election._terms.add(lease)
        return lease


class Election(electing.Office[Lease]):
    """One leader at a time. Its `term` is the lease's token: pass it with everything the leader does."""

    def lead(self, timeout: float | None = None) -> Lock:
        """Stand for election: `with election.lead() as lease:` is entered as the leader.

        `timeout`: how many seconds to stand: None for ever, 0 not at all.

        >>> with locks.election("scheduler").lead(timeout=5) as lease:
        ...     lease.name
        'scheduler'
        """
        return _Leadership(self, self._engine, self._ask, timeout)

    def leader(self) -> Leader | None:
        """Who leads now, as the store sees it; None: nobody.

        >>> election = locks.election("scheduler", address="10.0.0.7")
        >>> with election.lead():
        ...     election.leader().address
        '10.0.0.7'
        """
        return electing.leader_of(finish(self._engine.open_store().inspect(self.name)))

    def watch(self, timeout: float | None = None) -> Iterator[Leader | None]:
        """The leader now (None: nobody), and then every change. Ends after `timeout` seconds without one; None: never.

        >>> for leader in locks.election("scheduler").watch(timeout=0):
        ...     print(leader)
        None
        """
        seen = -1
        while (found := finish(electing.next_leader(self._engine, self.name, seen, timeout))) is not electing.UNCHANGED:
            leader = found if isinstance(found, Leader) else None
            seen = leader.term if leader else 0
            yield leader

    def terms(self, *, cancel: GiveUp | None = None) -> Iterator[Lease]:
        """Stand for election again and again: each round of the loop is one term, entered as the leader.

        Work while `lease.held`. What is still held when the round ends is given back, and after a term that was lost it
        waits a moment before it stands again. A store that does not answer is ridden out.

        `cancel`: anything with `is_set()`, such as a threading.Event; once it is set, the loop ends.

        >>> for lease in locks.election("scheduler").terms():
        ...     print(lease.held)
        ...     break
        True
        """
        pause = electing.Pause(self._engine)
        while cancel is None or not cancel.is_set():
            try:
                lease = self.lead().acquire(cancel=cancel)
            except NotAcquired:
                return
            except Unavailable as error:
                finish(pause.after(error, cancel))
                continue
            try:
                yield lease
            finally:
                with contextlib.suppress(ConnectionError):  # told as an event; the ttl ends the term
                    lease.release()
            finish(pause.between(lease, cancel))

    def run(
        self,
        lead: Callable[[Lease], R],
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

        >>> def lead(lease):
        ...     return lease.name
        >>> locks.election("scheduler").run(lead)
        'scheduler'
        """
        for lease in self.terms(cancel=cancel):
            try:
                with lease:
                    return lead(lease)
            except LeaseLost:
                if not lease._is_lost():
                    raise  # another lock's
                if on_lost is not None:
                    on_lost(lease)
        return None

    def resign(self) -> bool:
        """Step down, if this object leads. False: it did not.

        >>> locks.election("scheduler").resign()
        False
        """
        resigned = [lease.release() for lease in self._terms.held()]
        return any(resigned)


class Locks(Exits):
    """A connected store. Use it as a context manager, or `close()` it; it may be shared by threads and kept for ever."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

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
        `reentrant`: True lets the same thread in again, with the same token.
        `keep`: released, the grant stays with this process for so many seconds after its last use, and is lent again
        without a word to the store; somebody elsewhere who waits is told of, and gets it when the section under way
        ends. Sections that are lent one grant share its token, which orders processes and not the threads of one.
        `confirm`: False: leaving does not wait for the answer to the release, if the store is behind a network; if
        none comes, it is repeated in the background. What only the answer could have told (an eviction at the last
        moment) is an event.
        `otherwise`: of a decorated call that does not get the lock: "raise" NotAcquired, "skip" it and return None, or
        a function that is called with the NotAcquired, and whose result is returned.

        >>> with locks.lock("invoice:42", ttl=10, timeout=5) as lease:
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

        >>> with locks.semaphore("gpu", 4, timeout=5).acquire(units=2):
        ...     locks.inspect("gpu").used
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

        >>> with locks.rwlock("catalog", timeout=5).read() as lease:
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

        >>> with locks.all_of("bob", "alice", timeout=5) as leases:
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
        >>> with election.lead() as lease:
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
        `otherwise`: of a call that comes second: "skip", "raise", or a function, as in `lock()`. In `with`, it gets
        NotAcquired.

        >>> @locks.once("bill:{month}", at_least=60)
        ... def bill(month: str) -> str:
        ...     return f"billed {month}"
        >>> bill("2026-11")
        'billed 2026-11'
        >>> bill("2026-11")  # None: it was skipped
        """
        if foreign:
            words.refuse("once()", foreign)
        ask = recipes.once_ask(name, at_least, at_most, key)
        return recipes.guard(Lock, LockOr, self._engine, ask, 0, otherwise, key, takes=True)

    # ---- looking and intervening

    def inspect(self, name: str) -> Snapshot:
        """Who is inside and who waits, for the lock `name`: a Snapshot.

        >>> locks.inspect("invoice:42").holders
        ()
        """
        return finish(self._engine.open_store().inspect(valid_name(name)))

    def names(self, prefix: str = "") -> Sequence[str]:
        """The names that are held or waited for, and begin with `prefix`.

        >>> with locks.lock("invoice:42"):
        ...     locks.names(prefix="invoice:")
        ['invoice:42']
        """
        return finish(recipes.names(self._engine, prefix))

    def force_release(self, name: str, *, token: int) -> int | None:
        """Evict the holder of one token, and only that one. Returns a token past it, to seal the storage with.

        `name`: of the lock.
        `token`: of the holder that you looked at, as `inspect()` tells it. None is returned if nobody holds it any
        more.

        The evicted holder is told at its next renewal, at the latest.

        >>> lease = locks.lock("stuck").acquire()
        >>> seal = locks.force_release("stuck", token=lease.token)
        >>> seal > lease.token
        True
        """
        return finish(recipes.force_release(self._engine, name, token))

    def wait_graph(self) -> waitfor.WaitGraph:
        """Who waits for whom, over all locks of this store; `graph.deadlocks()` names the cycles.

        >>> locks.wait_graph().deadlocks()
        ()
        """
        return finish(recipes.wait_graph(self._engine))

    def ping(self) -> float:
        """Ask the store something, and return the seconds that it took. Raises what the first acquire would:
        Unavailable, say.

        >>> locks.ping() < 60
        True
        """
        return finish(recipes.ping(self._engine))

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

    def close(self, timeout: float = CLOSING) -> None:
        """Release what is held and disconnect, in at most `timeout` seconds. What is left then ends by its ttl, and is
        told.

        >>> other = connect("memory://")
        >>> other.close(timeout=1)
        """
        finish(self._engine.close(valid_closing(timeout)))

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def connect(
    url: str | None = None,
    *,
    label: str = "",
    check: bool = False,
    observe: Observers | None = None,
    also: str | None = None,
    **foreign: Never,
) -> Locks:
    """Open a store, and return its locks.

    `url`: which store, and where: `redis://localhost:6379`, `postgresql://…`, `sqlite:///path`, `memory://` and others,
    or one that another package brings. Without it: HOLDFAST_URL, or an SQLite file of this user.
    `label`: shown to whoever asks who holds a lock.
    `check`: nothing is sent yet, unless this is True: then the store is asked something at once, and what is wrong with
    the URL, the network or the login is raised here and not at the first acquire.
    `observe`: who is to be told what happens, as in `observe=["prometheus"]` (see `holdfast.observe`); without it,
    those that HOLDFAST_OBSERVE names.
    `also`: a second lock, of another library or at another URL, that is taken as well while old code still runs:
    `also="redis-py+redis://localhost:6379"` (see docs/migrating.md).

    >>> locks = connect("memory://", label="billing", check=True)
    >>> with locks.lock("invoice:42") as lease:
    ...     lease.check()
    """
    if foreign:
        words.refuse("connect()", foreign)
    also = also if also is None else connecting.resolve(also)
    url = connecting.resolve(url)  # a secret, also in this frame
    engine = connecting.open_engine(url, Threads(), label, observe, also)
    lifecycle.adopt(engine, lambda held: finish(held.close()))
    locks = Locks(engine)
    if check:
        try:
            locks.ping()
        except BaseException:
            locks.close(timeout=0)
            raise
    return locks
