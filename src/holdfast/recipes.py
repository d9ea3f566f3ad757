"""Every kind of lock, as the claims it makes. Checks its arguments at construction, and knows nothing of threads or asyncio.

The two surfaces, `sync` and `aio`, put the names that people type in front of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar
from weakref import ref

from . import decorating, events, rule, words
from .asking import Ask, GiveUp
from .claim import (
    MAX_CAPACITY,
    Snapshot,
    valid_name,
    valid_note,
    valid_timeout,
    valid_ttl,
    valid_units,
)
from .decorating import Key
from .engine import PATIENCE, Engine
from .errors import LeaseLost, Misuse, NotAcquired, Unavailable
from .lease import LOST, RELEASED, Enterable, Lease
from .scope import Scope, Scopes
from .waitfor import WaitGraph

DEFAULT_TTL = 30.0
Instead = Callable[[NotAcquired], Any]
Otherwise = Literal["raise", "skip"] | Instead
_LONGEST_PAUSE = 30.0  # seconds, between two tries to lead
L = TypeVar("L", bound=Lease)


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
        name,
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
    return Ask(name, min(most, max(least, DEFAULT_TTL)), at_most=most, at_least=least)


def _flag(value: object, what: str) -> bool:
    if type(value) is not bool:
        raise Misuse(f"{what} must be True or False, not {value!r:.80}")
    return value


# ---- what both surfaces share


class Guard(Generic[L]):
    """One lock that can be taken again and again: also by many threads or tasks at once, each with its own lease."""

    lease_type: type[L]
    _refusal = ""  # why it cannot be taken, but only decorate
    _template = False  # is its name one that only a decorator fills in?

    def __init__(self, engine: Engine, ask: Ask, timeout: float | None = None, key: Key | None = None) -> None:
        self._engine = engine
        self._ask = ask
        self._timeout = valid_timeout(timeout)
        self._key = key
        self._scopes = Scopes(engine.driver, ask.name)
        if "{" in ask.name:
            self._template = decorating.is_template(ask.name)
        if not ask.name:
            self._refusal = (
                "a lock without a name is for decorators, and named by the function: name it to take it here"
            )

    @property
    def name(self) -> str:
        return self._ask.name

    def _wait(self, timeout: float | Unset | None, foreign: Mapping[str, object]) -> float | None:
        """How long to wait; after a look at what else was asked for."""
        if foreign:
            words.refuse("acquire()", foreign)
        if self._refusal:
            raise Misuse(self._refusal)
        if self._template:
            decorating.warn_as_it_is()
        return self._timeout if isinstance(timeout, Unset) else valid_timeout(timeout)

    def _left_by_hand(self) -> Scope:
        return self._scopes.left()

    async def _acquire(
        self, wait: float | None, units: int | None = None, name: str | None = None, cancel: GiveUp | None = None
    ) -> L:
        ask = self._ask
        if units is not None:
            ask = ask._replace(units=valid_units(units, ask.capacity))
        if name is not None:
            ask = ask._replace(name=name)
        return await self._engine.acquire(ask, wait, self.lease_type, cancel)

    async def _try_acquire(self, units: int | None = None) -> L | None:
        if not self._ask.name:
            raise Misuse(self._refusal)
        if self._template:
            decorating.warn_as_it_is()
        try:
            return await self._acquire(0, units)
        except NotAcquired:
            return None

    def _skipped(self, function: Callable[..., Any], error: NotAcquired, instead: Instead) -> Any:
        """The call did not run. That is told: a job that is always skipped looks just like one that never failed."""
        self._engine.hook.emit(
            events.SKIPPED, error.name, self._engine.owner(), detail=f"{function.__qualname__}() did not run: {error}"
        )
        return instead(error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    if not TYPE_CHECKING:  # a type checker shall go on saying that there is no such attribute

        def __getattr__(self, attribute: str) -> Any:
            raise words.missing(self, attribute)


def named_or_keyed(name: str | Unset, key: Key | None) -> str:
    """The name to ask for; empty if only the decorated function can tell."""
    if key is not None:
        if name is not UNSET:
            raise Misuse(f"give a name or a key, not both: {name!r:.80}")
        if not callable(key):
            raise Misuse(f"key must be a function of the arguments that returns the name, not {key!r:.80}")
    return "" if isinstance(name, Unset) else valid_name(name)


def instead_of(otherwise: object) -> Instead | None:
    """What a decorated call does if it does not get the lock. None: it raises."""
    if otherwise == "raise":
        return None
    if otherwise == "skip":
        return _nothing
    if callable(otherwise):
        return otherwise
    raise Misuse(f'otherwise must be "raise" or "skip", or a function to call instead, not {otherwise!r:.80}')


def _nothing(error: NotAcquired) -> None:
    return None


ONLY_DECORATES = (
    "otherwise= is for decorators: the body of a `with` cannot be skipped. "
    "Here, write `if lease := lock.try_acquire():`, or leave otherwise= out and catch NotAcquired"
)


class Bundle(Enterable, Generic[L]):
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(repr(lease) for lease in self._leases)}>"

    def _abandon(self, depth: int) -> None:
        for lease in self._leases:
            lease._abandon(depth)

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


async def acquire_all(
    engine: Engine, asks: Iterable[Ask], timeout: float | None, lease_type: type[L], cancel: GiveUp | None = None
) -> list[L]:
    """All or nothing, in the order given, one deadline for all."""
    give_up = None if timeout is None else engine.driver.now() + timeout
    taken: list[L] = []
    try:
        for ask in asks:
            left = None if give_up is None else max(0.0, give_up - engine.driver.now())
            taken.append(await engine.acquire(ask, left, lease_type, cancel))
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
            lease._abandon(1)  # if it came before the release had begun
    if interruption is not None:
        try:
            raise interruption
        finally:
            del interruption  # else the frame, and what it knows, would be kept by its own traceback
    return failures


class Pause:
    """Between two terms: short after the first trouble, longer after each that follows at once, none after a quiet term."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._troubles = 0

    async def after(self, error: Unavailable, cancel: GiveUp | None) -> None:
        self._engine.hook.emit(events.IN_DANGER, "", self._engine.owner(), detail=f"cannot stand for election: {error}")
        await self._sleep(cancel)

    async def between(self, lease: Lease, cancel: GiveUp | None) -> None:
        if self._engine.driver.now() - lease._since > lease.ttl:
            self._troubles = 0
        if lease._state is LOST:
            await self._sleep(cancel)

    async def _sleep(self, cancel: GiveUp | None) -> None:
        driver = self._engine.driver
        most = min(_LONGEST_PAUSE, 0.25 * 2**self._troubles)
        self._troubles += 1
        until = driver.now() + driver.uniform(most / 2, most)
        while (left := until - driver.now()) > 0 and (cancel is None or not cancel.is_set()):
            await driver.sleep(min(left, 0.5))


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


async def ping(engine: Engine) -> float:
    """Any name will do: the question goes the whole way, login and tables included, and changes nothing."""
    asked = engine.driver.now()
    await engine.open_store().inspect("holdfast:ping")
    return engine.driver.now() - asked


async def wait_graph(engine: Engine) -> WaitGraph:
    store = engine.open_store()
    return WaitGraph([await store.inspect(name) for name in await store.names()])
