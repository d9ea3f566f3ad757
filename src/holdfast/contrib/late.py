"""Functions that are decorated before it is known which store their lock is in: at import, before there is an application."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from .. import decorating
from ..decorating import Key
from ..recipes import Unset, named_or_keyed
from ..sync import Lease

if TYPE_CHECKING:
    from .. import aio

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class Late(Generic[D]):
    """A decorator. `locks(asynchronous)` are asked for at every call, and `guard(locks)`, once for each that it gives, for the
    decorator that does it. D is what a call may return besides the function's own result.
    """

    def __init__(
        self,
        locks: Callable[[bool], Any],
        guard: Callable[[Any], Callable[[Any], Any]],
        name: str | Unset,
        key: Key | None,
        *,
        asynchronous: bool = False,
    ) -> None:
        """`asynchronous`: coroutine functions may be decorated too."""
        self._locks = locks
        self._guard = guard
        self._name = named_or_keyed(name, key)
        self._key = key
        self._asynchronous = asynchronous

    @overload
    def __call__(
        self, function: Callable[Concatenate[aio.Lease, P], Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R | D]]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | D]]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Lease, P], R]) -> Callable[P, R | D]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Callable[P, R | D]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import inspect

        asynchronous = self._asynchronous and inspect.iscoroutinefunction(function)
        # What is wrong with the name shows here, and not at the first call.
        call = decorating.plan(function, self._name, self._key, asynchronous=asynchronous)
        guarded: WeakKeyDictionary[Any, Callable[..., Any]] = WeakKeyDictionary()

        def find() -> Callable[..., Any]:
            locks = self._locks(asynchronous)
            if locks not in guarded:
                guarded[locks] = self._guard(locks)(function)
            return guarded[locks]

        late: Callable[..., Any]
        if asynchronous:

            @decorating.wraps(function)
            async def late(*args: Any, **kwargs: Any) -> Any:
                return await find()(*args, **kwargs)
        else:

            @decorating.wraps(function)
            def late(*args: Any, **kwargs: Any) -> Any:
                return find()(*args, **kwargs)

        call.dress(late)
        return late
