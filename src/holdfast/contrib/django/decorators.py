"""`@lock` and `@once`, for functions and coroutine functions; which store is looked up at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Never, TypedDict, TypeVar, Unpack, overload

from ...decorating import Key
from ...errors import NotAcquired
from ...recipes import DEFAULT_TTL, UNSET, Otherwise, Unset, instead_of
from ..late import Late
from .connections import alocks, locks
from .urls_of_stores import DEFAULT

D = TypeVar("D")


class Options(TypedDict, total=False):
    key: Key | None
    using: str


class LockOptions(Options, total=False):
    ttl: float
    timeout: float | None


class OnceOptions(Options, total=False):
    at_least: float
    at_most: float


@overload
def lock(
    name: str | Unset = UNSET, *, otherwise: Literal["raise"] = "raise", **options: Unpack[LockOptions]
) -> Late[Never]: ...


@overload
def lock(name: str | Unset = UNSET, *, otherwise: Literal["skip"], **options: Unpack[LockOptions]) -> Late[None]: ...


@overload
def lock(
    name: str | Unset = UNSET, *, otherwise: Callable[[NotAcquired], D], **options: Unpack[LockOptions]
) -> Late[D]: ...


def lock(
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    ttl: float = DEFAULT_TTL,
    timeout: float | None = None,
    otherwise: Otherwise = "raise",
) -> Late[Any]:
    """Every call runs under the lock. `using` is an alias of settings.HOLDFAST; the rest is as in `locks.lock()`."""
    return _late("lock", name, key, using, otherwise, ttl=ttl, timeout=timeout)


@overload
def once(
    name: str | Unset = UNSET, *, otherwise: Literal["skip"] = "skip", **options: Unpack[OnceOptions]
) -> Late[None]: ...


@overload
def once(name: str | Unset = UNSET, *, otherwise: Literal["raise"], **options: Unpack[OnceOptions]) -> Late[Never]: ...


@overload
def once(
    name: str | Unset = UNSET, *, otherwise: Callable[[NotAcquired], D], **options: Unpack[OnceOptions]
) -> Late[D]: ...


def once(
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    at_least: float = 0.0,
    at_most: float = 3600.0,
    otherwise: Otherwise = "skip",
) -> Late[Any]:
    """For a job that several processes start: one runs it, the others skip, and say so in the log."""
    return _late("once", name, key, using, otherwise, at_least=at_least, at_most=at_most)


def _late(
    recipe: str, name: str | Unset, key: Key | None, using: str, otherwise: Otherwise, **options: float | None
) -> Late[Any]:
    if otherwise != "raise":
        instead_of(otherwise)  # refused here, not at the first call
    named = {} if name is UNSET else {"name": name}
    return Late(
        lambda asynchronous: (alocks if asynchronous else locks)[using],
        lambda found: getattr(found, recipe)(**named, key=key, otherwise=otherwise, **options),
        name,
        key,
        asynchronous=True,
    )
