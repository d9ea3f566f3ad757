"""`@lock` and `@once`, for functions and coroutine functions; which store is looked up at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Never, TypeVar, overload

from ...decorating import Key
from ...errors import NotAcquired
from ...recipes import DEFAULT_TTL, UNSET, Otherwise, Unset, instead_of
from ..late import Late
from .connections import alocks, locks
from .urls_of_stores import DEFAULT

D = TypeVar("D")


@overload
def lock(
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    ttl: float = DEFAULT_TTL,
    timeout: float | None = None,
    otherwise: Literal["raise"] = "raise",
) -> Late[Never]: ...


@overload
def lock(
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    ttl: float = DEFAULT_TTL,
    timeout: float | None = None,
    otherwise: Literal["skip"],
) -> Late[None]: ...


@overload
def lock(
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    ttl: float = DEFAULT_TTL,
    timeout: float | None = None,
    otherwise: Callable[[NotAcquired], D],
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
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    at_least: float = 0.0,
    at_most: float = 3600.0,
    otherwise: Literal["skip"] = "skip",
) -> Late[None]: ...


@overload
def once(
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    at_least: float = 0.0,
    at_most: float = 3600.0,
    otherwise: Literal["raise"],
) -> Late[Never]: ...


@overload
def once(
    name: str | Unset = UNSET,
    *,
    key: Key | None = None,
    using: str = DEFAULT,
    at_least: float = 0.0,
    at_most: float = 3600.0,
    otherwise: Callable[[NotAcquired], D],
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
    instead_of(otherwise)  # refused here, not at the first call
    named = {} if name is UNSET else {"name": name}
    return Late(
        lambda asynchronous: (alocks if asynchronous else locks)[using],
        lambda found: getattr(found, recipe)(**named, key=key, otherwise=otherwise, **options),
        name,
        key,
        asynchronous=True,
    )
