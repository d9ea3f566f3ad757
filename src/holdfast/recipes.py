"""Every kind of lock, as the claims it makes. Checks its arguments at construction, and knows nothing of threads or asyncio.

The two surfaces, `sync` and `aio`, put the names that people type in front of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from . import decorating, events, rule, words
from .asking import Ask, GiveUp
from .claim import (
    MAX_CAPACITY,
    is_name,
    valid_keep,
    valid_name,
    valid_note,
    valid_prefix,
    valid_timeout,
    valid_ttl,
    valid_units,
)
from .decorating import Key
from .engine import Engine
from .errors import LeaseLost, Misuse, NotAcquired, Unsupported
from .lease import LOST, RELEASED, Enterable, Lease
from .lending import wanted_of
from .scope import Other, Scope, Scopes
from .waitfor import WaitGraph

DEFAULT_TTL = 30.0
Instead = Callable[[NotAcquired], Any]
Otherwise = Literal["raise", "skip"] | Instead
L = TypeVar("L", bound=Lease)
G = TypeVar("G", bound="Guard[Any]")
H = TypeVar("H", bound="Guard[Any]")


class Unset:
    """The timeout that was given when the lock was made."""

    def __repr__(self) -> str:
        return "as given"


UNSET = Unset()


# ---- what each recipe asks for


def lock_ask(name: str | Unset, ttl: float, fair: bool, reentrant: bool, renew: bool, key: Key | None = None) -> Ask:
    if key is not None:
        # Not remembered: it may be a method, whose object has a lease, and that is let go when nobody has it.
        return _lock_ask(name, ttl, fair, reentrant, renew, key)
    try:
        return _known_ask(name, ttl, fair, reentrant, renew)
    except TypeError:  # a list, say, is no key of a dict; nor is it a name: that is said better than so
        return _lock_ask(name, ttl, fair, reentrant, renew)


def _lock_ask(name: str | Unset, ttl: float, fair: bool, reentrant: bool, renew: bool, key: Key | None = None) -> Ask:
    return Ask(
        named_or_keyed(name, key),
        valid_ttl(ttl),
        fair=_flag(fair, "fair"),
        renew=_flag(renew, "renew"),
        reentrant=_flag(reentrant, "reentrant"),
    )


# Most are asked for again and again: what was found right once is right. `typed`: True is no number of seconds, though it is 1.
_known_ask = lru_cache(1024, typed=True)(_lock_ask)


def past_the_floor(engine: Engine, ask: Ask, keep: float, confirm: bool) -> Ask:
    """Without a round trip, or two. Kept only where somebody who waits is heard of: else they would wait until nobody uses it."""
    ask = ask._replace(keep=valid_keep(keep), confirm=_flag(confirm, "confirm"))
    if ask.keep and not ask.renew:
        raise Misuse("keep= goes with renewal: a name that stays here is renewed while it does. Leave renew=False out")
    if ask.keep and wanted_of(engine.store) is None:
        raise Unsupported(
            f"{engine.store.traits.system} cannot tell a holder that somebody waits, so nothing can be kept there: "
            "leave keep= out, or use another store"
        )
    return ask


def semaphore_ask(name: str, capacity: int, ttl: float, fair: bool, renew: bool) -> Ask:
    most = valid_units(capacity, MAX_CAPACITY - 1, "a semaphore's capacity")
    return Ask(valid_name(name), valid_ttl(ttl), 1, most, _flag(fair, "fair"), _flag(renew, "renew"))


def rwlock_asks(
    name: str, ttl: float, fair: bool, renew: bool, engine: Engine | None = None, keep: float = 0.0
) -> tuple[Ask, Ask]:
    """Kept for readers only: who writes is alone, and readers wait."""
    read = Ask(
        valid_name(name), valid_ttl(ttl), 1, rule.EVERYBODY, _flag(fair, "fair"), _flag(renew, "renew"), reads=True
    )
    write = read._replace(units=rule.EVERYBODY, reads=False, alone=True)
    return read if engine is None or keep == 0.0 else past_the_floor(engine, read, keep, True), write


def all_of_asks(names: Iterable[str], ttl: float, fair: bool, renew: bool) -> tuple[Ask, ...]:
    """In sorted order, which is what keeps two of them from deadlocking. A name given twice is one lock."""
    given = list(names)
    if len(given) == 1 and isinstance(given[0], list | tuple | set | frozenset):
        raise Misuse("all_of takes the names one by one: all_of(*names)")
    wanted = sorted({valid_name(name) for name in given})
    if not wanted:
        raise Misuse("all_of takes at least one name")
    return tuple(lock_ask(name, ttl, fair, reentrant=False, renew=renew) for name in wanted)


def election_ask(name: str, address: str, ttl: float) -> Ask:
    return Ask(valid_name(name), valid_ttl(ttl), note=valid_note(address, "an election's address"), alone=True)


def once_ask(name: str | Unset, at_least: float, at_most: float, key: Key | None = None) -> Ask:
    wanted = named_or_keyed(name, key)
    most = valid_ttl(at_most, "at_most")
    least = valid_timeout(at_least)
    if least is None or least > most:
        raise Misuse(f"at_least must be a number of seconds up to at_most ({most:g}), not {at_least!r:.80}")
    # A crash must not free the job before at_least is over, so the first grant already lasts that long.
    return Ask(wanted, min(most, max(least, DEFAULT_TTL)), at_most=most, at_least=least)


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

    def __init__(
        self,
        engine: Engine,
        ask: Ask | None = None,
        timeout: float | None = None,
        key: Key | None = None,
        instead: Instead | None = None,
        *,
        takes: bool = True,
    ) -> None:
        if type(ask) is not Ask:  # somebody has called the class
            raise Misuse(words.made_by_connect(type(self).__name__))
        self._engine = engine
        self._ask = ask
        self._timeout = None if timeout is None else valid_timeout(timeout)
        self._key = key
        self._instead = instead  # of a decorated call that does not get it; None: it raises
        self._scopes = Scopes(engine.driver, ask.name)
        if "{" in ask.name:
            self._template = decorating.is_template(ask.name)
        if not ask.name:
            self._refusal = (
                "a lock without a name is for decorators, and named by the function: name it to take it here"
            )
        elif not takes:
            self._refusal = ONLY_DECORATES

    @property
    def name(self) -> str:
        """Of the lock; of one that only decorates, as it was written."""
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

    def _skipped(self, function: Callable[..., Any], error: NotAcquired) -> Any:
        """The call did not run. That is told: a job that is always skipped looks just like one that never failed."""
        self._engine.hook.emit(
            events.SKIPPED, error.name, self._engine.owner(), detail=f"{function.__qualname__}() did not run: {error}"
        )
        return self._instead(error) if self._instead is not None else None

    def __repr__(self) -> str:
        _, _, units, capacity, *_ = self._ask
        if capacity == rule.EVERYBODY:
            what = ", to read" if units == 1 else ", to write"
        else:
            what = f", {capacity} units" if capacity > 1 else ""
        return f"<{type(self).__name__} {self.name!r}{what}>"

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
    if callable(name):
        raise Misuse(
            f"{name!r:.80} was taken for the name: a decorator without one has parentheses, as in @locks.lock()"
        )
    return "" if isinstance(name, Unset) else valid_name(name)


def guard(
    plain: type[G],
    other: type[H],
    engine: Engine,
    ask: Ask,
    timeout: float | None,
    otherwise: Otherwise,
    key: Key | None = None,
    *,
    takes: bool = False,
) -> G | H:
    """A surface's plain lock; or its `other` one, whose decorated calls do something else than raise."""
    if otherwise == "raise":
        return plain(engine, ask, timeout, key)
    return other(engine, ask, timeout, key, instead_of(otherwise), takes=takes)


def instead_of(otherwise: object) -> Instead:
    """What a decorated call does that does not get the lock, and is not to raise."""
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
        """By name: the token of each."""
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


def lost_in_body(lease: Lease) -> LeaseLost:
    """At the end of a `with` body that raised nothing: the lock was not there to the end."""
    if not lease._is_lost():
        lease._why = "the store no longer had it when it was released"
        lease._state = LOST
    return lease._over()


class RWLock(Generic[G]):
    """Many readers or one writer, first come, first served: a writer never starves."""

    def __init__(self, read: G, write: G) -> None:
        self._read = read
        self._write = write

    @property
    def name(self) -> str:
        """Of the lock, for readers and writers."""
        return self._read.name

    def read(self) -> G:
        """To read: beside other readers, and no writer."""
        return self._read

    def write(self) -> G:
        """To write: alone. Asked for by a thread or task that reads already, it is refused: the reader would wait for itself."""
        return self._write

    def __repr__(self) -> str:
        return f"<RWLock {self.name!r}>"

    if not TYPE_CHECKING:
        __enter__ = __aenter__ = Other("has two sides: enter `rwlock.read()` or `rwlock.write()`")

        def __getattr__(self, attribute: str) -> Any:
            raise words.missing(self, attribute)


class Several:
    """Locks that are taken together."""

    def __init__(self, engine: Engine, asks: tuple[Ask, ...], timeout: float | None) -> None:
        self._engine = engine
        self._asks = asks
        self._timeout = valid_timeout(timeout)
        self._scopes = Scopes(engine.driver, ", ".join(ask.name for ask in asks))

    def _wait(self, timeout: float | Unset | None, foreign: Mapping[str, object]) -> float | None:
        if foreign:
            words.refuse("acquire()", foreign)
        return self._timeout if isinstance(timeout, Unset) else valid_timeout(timeout)

    def _left_by_hand(self) -> Scope:
        return self._scopes.left()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(repr(ask.name) for ask in self._asks)}>"


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
                lost_in_body(lease)
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


async def names(engine: Engine, prefix: str) -> Sequence[str]:
    """Without those that no lock can have: somebody else put them there, and whoever looked at all would stumble over one."""
    return [name for name in await engine.open_store().names(valid_prefix(prefix)) if is_name(name)]


async def wait_graph(engine: Engine) -> WaitGraph:
    store = engine.open_store()
    return WaitGraph([await store.inspect(name) for name in await names(engine, "")])
