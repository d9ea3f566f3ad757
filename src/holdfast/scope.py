"""One `with`, from its first line to its last.

A lock is one object for all who take it, so `with lock:` needs a place for its lease. Python looks `__exit__` up when a `with`
begins, and keeps what it found until that `with` ends: on the stack of its frame, and nowhere else. So what is found there is
a scope, made for this one `with`, and the lease is in it. It is the right one in whatever thread, task or generator the `with`
is left; and should leaving be interrupted before it has begun, the scope goes with the frame, and lets the lease go.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Never, Protocol
from weakref import ref

from .drivers.base import Driver
from .errors import Misuse

_MANY = 64  # notes of scopes: some of these may have been looked up and never entered


class Inside(Protocol):
    """What a scope has: a lease, or several."""

    _entries: int  # how often it has been entered: once, unless its lock is re-entrant

    def _abandon(self, depth: int) -> None: ...


class Scope:
    """Called as `__exit__`."""

    inside: Any = None
    depth = 0
    body: Any = None  # of an `async with`

    def __init__(self, of: Any) -> None:
        self._of = of

    def entered(self, inside: Inside) -> None:
        self.depth = inside._entries
        self.inside = inside  # last: from here on it is let go with the scope

    def __del__(self) -> None:
        if self.inside is not None:
            self.inside._abandon(self.depth)


class Scopes:
    """Those of one lock that are about to be entered, and those that somebody entered by hand, without a `with`."""

    __slots__ = ("_by_hand", "_driver", "_many", "_name", "looked_up")

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver = driver
        self._name = name
        self.looked_up: dict[int, ref[Scope]] = {}  # by the frame of the `with`
        self._many = _MANY
        self._by_hand: list[tuple[object, Scope]] = []

    def entered(self, make: type[Scope], of: object, inside: Inside, frame: FrameType) -> Scope:
        """By the `with` of this frame; else by hand, as ExitStack does it: then it is found again by thread or task."""
        found = self.looked_up.pop(id(frame), None)
        scope = found() if found is not None else None
        if len(self.looked_up) >= self._many:
            self._forget()
        if scope is None:
            scope = make(of)
            self._by_hand.append((self._driver.me(), scope))
        scope.entered(inside)
        return scope

    def _forget(self) -> None:
        """Those that were looked up and never entered."""
        for where, one in list(self.looked_up.items()):
            if one() is None and self.looked_up.get(where) is one:
                self.looked_up.pop(where, None)
        self._many = max(_MANY, 2 * len(self.looked_up))

    def left(self) -> Scope:
        me = self._driver.me()
        by_hand = list(self._by_hand)
        mine = [one for one in by_hand if one[0] is me]
        if not mine and len(by_hand) == 1:
            mine = by_hand  # entered in one thread and left in another, which is fine while there is no doubt
        if not mine:
            raise Misuse(
                f"left `with` of {self._name!r} in another thread or task than entered it, while others are inside: "
                "use `with lock.acquire() as lease` there, which carries its own lease"
            )
        self._by_hand.remove(mine[-1])
        return mine[-1][1]


class Exit:
    """`__exit__` of a lock: looked up, it is the scope of the `with` that begins."""

    def __init__(self, make: type[Scope]) -> None:
        self._make = make

    def __get__(self, of: Any, owner: object = None) -> Any:
        if of is None:  # ExitStack looks at the class
            return lambda of, *error: self._make(of)(*error)  # type: ignore[operator]  # the surfaces' scopes can be called
        scope = self._make(of)
        of._scopes.looked_up[id(sys._getframe(1))] = ref(scope)
        return scope


class LeaseExit(Exit):
    """`__exit__` of a lease, which has one holder and needs no notes by frame."""

    def __get__(self, of: Any, owner: object = None) -> Any:
        if of is None:
            return super().__get__(of, owner)
        scope = self._make(of)
        of._looked_up = ref(scope)
        return scope


class Mixed(TypeError, AttributeError):
    """The other `with`. A TypeError, as Python's own would be; and an AttributeError, so that who only looks finds nothing."""


class Other:
    """In the place of what the other kind of `with` looks for: says in a sentence which one it has to be."""

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def __get__(self, of: object, owner: type) -> Never:
        # Python looks at the class, and does not mind what else is raised; hasattr() does, and so must be told by this.
        raise Mixed(f"{owner.__module__}.{owner.__qualname__} {self._hint}")


_IN_THREADS = Other("is for threads: write `with`, or connect by holdfast.aio.connect() where you want `async with`")
_IN_TASKS = Other("is for asyncio: write `async with`, or connect by holdfast.connect() where you want `with`")


class Exits:
    """What is entered by `with`. How that ends is here for type checkers only: what is really there is found by `Exit`."""

    __slots__ = ()
    if not TYPE_CHECKING:
        __aenter__ = _IN_THREADS

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
        ) -> None: ...


class AsyncExits:
    """The same for `async with`."""

    __slots__ = ()
    if not TYPE_CHECKING:
        __enter__ = _IN_TASKS

    if TYPE_CHECKING:

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
        ) -> None: ...
