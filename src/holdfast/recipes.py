"""Every kind of lock, as the claims it makes. Checks its arguments at construction, and knows nothing of threads or asyncio.

The two surfaces, `sync` and `aio`, put the names that people type in front of this.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from weakref import ref

from . import events, rule
from .claim import (
    MAX_CAPACITY,
    Snapshot,
    valid_name,
    valid_note,
    valid_timeout,
    valid_ttl,
    valid_units,
)
from .engine import PATIENCE, Ask, Engine
from .errors import LeaseLost, Misuse, NotAcquired, Unavailable
from .lease import LOST, RELEASED, Lease
from .waitfor import WaitGraph

DEFAULT_TTL = 30.0
Otherwise = Literal["raise", "skip"]
L = TypeVar("L", bound=Lease)
X = TypeVar("X")


class Unset:
    """The timeout that was given when the lock was made."""

    def __repr__(self) -> str:
        return "as given"


UNSET = Unset()


class Leader(NamedTuple):
    """Who leads, as the others see it. `term` is the fencing token of that leadership."""

    address: str
    term: int
    owner: str
    age: float


# ---- what each recipe asks for


def lock_ask(name: str, ttl: float, fair: bool, reentrant: bool, renew: bool) -> Ask:
    return Ask(
        valid_name(name),
        valid_ttl(ttl),
        fair=_flag(fair, "fair"),
        renew=_flag(renew, "renew"),
        reentrant=_flag(reentrant, "reentrant"),
    )


def semaphore_ask(name: str, capacity: int, ttl: float, fair: bool, renew: bool) -> Ask:
    most = valid_units(capacity, MAX_CAPACITY - 1, "a semaphore's capacity")
    return Ask(valid_name(name), valid_ttl(ttl), 1, most, _flag(fair, "fair"), _flag(renew, "renew"))


def rwlock_asks(name: str, ttl: float, fair: bool, renew: bool) -> tuple[Ask, Ask]:
    read = Ask(
        valid_name(name), valid_ttl(ttl), 1, rule.EVERYBODY, _flag(fair, "fair"), _flag(renew, "renew"), reads=True
    )
    return read, read._replace(units=rule.EVERYBODY, reads=False, alone=True)


def all_of_asks(names: Iterable[str], ttl: float, fair: bool, renew: bool) -> tuple[Ask, ...]:
    """In sorted order, which is what keeps two of them from deadlocking. A name given twice is one lock."""
    wanted = sorted({valid_name(name) for name in names})
    if not wanted:
        raise Misuse("all_of takes at least one name")
    return tuple(lock_ask(name, ttl, fair, reentrant=False, renew=renew) for name in wanted)


def election_ask(name: str, address: str, ttl: float) -> Ask:
    return Ask(valid_name(name), valid_ttl(ttl), note=valid_note(address, "an election's address"), alone=True)


def once_ask(name: str, at_least: float, at_most: float) -> Ask:
    most = valid_ttl(at_most, "at_most")
    least = valid_timeout(at_least)
    if least is None or least > most:
        raise Misuse(f"at_least must be a number of seconds up to at_most ({most:g}), not {at_least!r:.80}")
    # A crash must not free the job before at_least is over, so the first grant already lasts that long.
    return Ask(valid_name(name), min(most, max(least, DEFAULT_TTL)), at_most=most, at_least=least)


def _flag(value: object, what: str) -> bool:
    if type(value) is not bool:
        raise Misuse(f"{what} must be True or False, not {value!r:.80}")
    return value


# ---- what both surfaces share


class Entered(Generic[X]):
    """What a `with` remembers between enter and exit, by thread or task: the lock object itself may be shared."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._by_whom: dict[object, list[X]] = {}  # by the object, not its id, which the next thread may be given

    def push(self, item: X) -> None:
        me = self._engine.driver.me()
        with self._engine.mutex:
            self._by_whom.setdefault(me, []).append(item)

    def pop(self) -> X:
        me = self._engine.driver.me()
        with self._engine.mutex:
            if me not in self._by_whom and len(self._by_whom) == 1:
                me = next(iter(self._by_whom))  # a generator's `with` may be left by another thread than entered it
            mine = self._by_whom.get(me)
            if not mine:
                raise Misuse(
                    f"left `with` of {self._name!r} in another thread or task than entered it, while others are inside: "
                    "use `with lock.acquire() as lease` there, which carries its own lease"
                )
            item = mine.pop()
            if not mine:
                del self._by_whom[me]
            return item

    def discard(self, item: X) -> None:
        """Interrupted on the way in: nobody will leave."""
        with self._engine.mutex:
            for me, mine in list(self._by_whom.items()):
                if item in mine:
                    mine.remove(item)
                    if not mine:
                        del self._by_whom[me]


class Guard(Generic[L]):
    """One lock that can be taken again and again: also by many threads or tasks at once, each with its own lease."""

    lease_type: type[L]

    def __init__(self, engine: Engine, ask: Ask, timeout: float | None = None, otherwise: Otherwise = "raise") -> None:
        if otherwise not in ("raise", "skip"):
            raise Misuse(f'otherwise must be "raise" or "skip", not {otherwise!r:.80}')
        self._engine = engine
        self._ask = ask
        self._timeout = valid_timeout(timeout)
        self._otherwise = otherwise
        self._entered: Entered[L] = Entered(engine, ask.name)

    @property
    def name(self) -> str:
        return self._ask.name

    async def _acquire(self, timeout: float | Unset | None, units: int | None = None) -> L:
        wait = self._timeout if timeout is UNSET else valid_timeout(timeout)
        ask = self._ask
        if units is not None:
            ask = ask._replace(units=valid_units(units, ask.capacity))
        return await self._engine.acquire(ask, wait, self.lease_type)

    async def _try_acquire(self, units: int | None = None) -> L | None:
        try:
            return await self._acquire(0, units)
        except NotAcquired:
            return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Bundle(Generic[L]):
    """Several leases, in the order of their names. `leases["alice"].token` is the token for alice."""

    def __init__(self, engine: Engine, leases: Iterable[L]) -> None:
        self._engine = engine
        self._leases = tuple(leases)

    @property
    def tokens(self) -> dict[str, int]:
        return {lease.name: lease.token for lease in self._leases}

    def __getitem__(self, name: str) -> L:
        for lease in self._leases:
            if lease.name == name:
                return lease
        raise KeyError(name)

    def __iter__(self) -> Iterator[L]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def check(self) -> None:
        """Raise LeaseLost if any of them is over."""
        for lease in self._leases:
            lease.check()

    def _lost(self) -> LeaseLost | None:
        return next((lease._over() for lease in self._leases if lease._is_lost()), None)


def lost_in_body(lease: Lease, released: bool) -> LeaseLost | None:
    """At the end of a `with` body that raised nothing: was the lock there to the end?"""
    if lease._is_lost():
        return lease._over()
    if not released:
        lease._why = "the store no longer had it when it was released"
        lease._state = LOST
        return lease._over()
    return None


def decorated(function: Callable[..., Any], *, asynchronous: bool) -> bool:
    """Refuse a function that this surface cannot guard; tell whether it wants to be given the lease."""
    import inspect  # late: it would double the time that `import holdfast` takes

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Misuse(f"{function!r} is a generator, which runs after the call returned: use `with` inside it")
    if inspect.iscoroutinefunction(function) is not asynchronous:
        other = "holdfast.connect()" if asynchronous else "holdfast.aio.connect()"
        raise Misuse(f"{function!r} is {'not ' * asynchronous}asynchronous: decorate it with a lock from {other}")
    parameter = inspect.signature(function).parameters.get("lease")
    return parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)


wraps = functools.wraps


async def acquire_all(engine: Engine, asks: Iterable[Ask], timeout: float | None, lease_type: type[L]) -> list[L]:
    """All or nothing, in the order given, one deadline for all."""
    give_up = None if timeout is None else engine.driver.now() + timeout
    taken: list[L] = []
    try:
        for ask in asks:
            left = None if give_up is None else max(0.0, give_up - engine.driver.now())
            taken.append(await engine.acquire(ask, left, lease_type))
        for lease in taken:
            lease.check()  # the first may have been lost while we waited for the last
    except BaseException:
        await engine.driver.shield(lambda: release_all(engine, taken))
        raise
    return taken


async def release_all(engine: Engine, leases: Iterable[Lease]) -> list[Exception]:
    """In reverse order; the failure of one does not strand the rest, nor does an interruption. Returns the failures."""
    failures: list[Exception] = []
    interruption: BaseException | None = None
    for lease in reversed(list(leases)):
        over = lease._state is RELEASED
        try:
            if not await engine.release(lease) and not over:
                lost_in_body(lease, released=False)
        except Exception as error:
            failures.append(error)
        except BaseException as error:
            interruption = error
    if interruption is not None:
        raise interruption
    return failures


class Terms(Generic[L]):
    """The leaderships that one object stood for: known, but not kept alive."""

    def __init__(self) -> None:
        self._leases: deque[ref[L]] = deque(maxlen=16)

    def add(self, lease: L) -> None:
        self._leases.append(ref(lease))

    def held(self) -> list[L]:
        return [lease for one in self._leases if (lease := one()) is not None and lease.held]


def leader_of(snapshot: Snapshot) -> Leader | None:
    if not snapshot.holders:
        return None
    holding = max(snapshot.holders, key=lambda one: one.token)
    return Leader(holding.note, holding.token, holding.owner, holding.age)


class _Unchanged:
    pass


UNCHANGED = _Unchanged()


async def next_leader(engine: Engine, name: str, seen: int, timeout: float | None) -> Leader | _Unchanged | None:
    """The leader, as soon as it is another than that of term `seen` (0: nobody; -1: tell at once)."""
    give_up = None if (wait := valid_timeout(timeout)) is None else engine.driver.now() + wait
    try:
        while True:
            leader = leader_of(await engine.open_store().inspect(name))
            if (leader.term if leader else 0) != seen:
                return leader
            left = PATIENCE if give_up is None else min(PATIENCE, give_up - engine.driver.now())
            if left <= 0:
                return UNCHANGED
            await engine.watch(name, seen, left)
    except Unavailable:
        engine.open_store()  # if it was closed meanwhile, that is what is to be told
        raise


async def force_release(engine: Engine, name: str, token: int) -> int | None:
    valid_name(name)
    if type(token) is not int or token < 1:
        raise Misuse(f"force_release takes the token of the grant that you looked at, not {token!r:.80}")
    by = engine.owner()
    past = await engine.open_store().evict(name, token, by)
    if past is not None:
        engine.hook.emit(events.EVICTED, name, by, token, detail=f"by {by}; token {past} outranks it")
    return past


async def wait_graph(engine: Engine) -> WaitGraph:
    store = engine.open_store()
    return WaitGraph([await store.inspect(name) for name in await store.names()])
