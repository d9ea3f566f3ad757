"""Functions that are decorated before it is known which store their lock is in: at import, before there is an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from .. import decorating
from ..decorating import Key
from ..recipes import Unset, named_or_keyed
from ..sync import Lease, Locks

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class Late(Generic[D]):
    """A decorator. `guard(locks)` is asked, at the first call with these locks, for the decorator that does it.

    D is what a call may return besides the function's own result.
    """

    def __init__(
        self,
        locks: Callable[[], Locks],
        guard: Callable[[Locks], Callable[[Any], Any]],
        name: str | Unset,
        key: Key | None,
    ) -> None:
        self._locks = locks
        self._guard = guard
        self._name = named_or_keyed(name, key)
        self._key = key

    @overload
    def __call__(self, function: Callable[Concatenate[Lease, P], R]) -> Callable[P, R | D]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R | D]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        call = decorating.plan(
            function, self._name, self._key, asynchronous=False
        )  # what is wrong shows here, not later
        guarded: WeakKeyDictionary[Locks, Callable[..., Any]] = WeakKeyDictionary()

        @decorating.wraps(function)
        def late(*args: Any, **kwargs: Any) -> Any:
            locks = self._locks()
            if locks not in guarded:
                guarded[locks] = self._guard(locks)(function)
            return guarded[locks](*args, **kwargs)

        call.dress(late)
        return late
