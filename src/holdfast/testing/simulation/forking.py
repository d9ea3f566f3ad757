"""The memory of a simulated process, copied as fork() copies it: every object once, all that points to it pointing to the copy.

What is of the world (clocks, servers, the history, other processes) is no memory of the process, and is shared. So are
coroutines: those of a parent are other threads to its child, which has their memory and never runs them; nor are they
collected there, so what only they referred to lives as long as the child does.
"""

from __future__ import annotations

import copyreg
import itertools
import types
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import _lru_cache_wrapper, lru_cache, partial
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from hiredis import Reader

from ...drivers.simulated import Bell, Process
from ...drivers.simulated_streams import InheritedStream, SimulatedStream
from ...drivers.world import Task

T = TypeVar("T")

_SHARED = (
    *(type(None), bool, int, float, complex, str, bytes, type, range, types.ModuleType, types.CodeType),
    *(types.CoroutineType, types.GeneratorType, types.BuiltinFunctionType, BaseException, Enum, Task),
)


class Memory:
    """Of `child`, as it was in `parent`. `shared`: what the two see both, as they see the world."""

    def __init__(self, parent: Process, child: Process, shared: tuple[object, ...]) -> None:
        self._parent, self._child = parent, child
        self._copies: dict[int, Any] = {id(one): one for one in (parent.world, *shared)}
        self._copies[id(parent)] = child
        self._copies[id(parent.driver)] = child.driver
        self.talking: list[InheritedStream] = []  # in the middle of a conversation when it was forked
        self._originals: list[object] = []  # kept, so that no number is anybody else's meanwhile

    def copied(self, one: T) -> T:
        known = self._copies.get(id(one))
        if known is not None:
            return cast("T", known)
        if isinstance(one, _SHARED) and not _bound(one):
            return one
        self._originals.append(one)
        made = _SPECIAL.get(type(one), Memory._plain)(self, one)
        return cast("T", self._keep(one, made))

    def _keep(self, one: object, made: Any) -> Any:
        return self._copies.setdefault(id(one), made)

    # ---- one kind after the other

    def _plain(self, one: Any) -> Any:
        """An object with attributes; or a container, or a tuple with names, of whatever class."""
        if isinstance(one, tuple):
            return tuple.__new__(type(one), map(self.copied, one))
        if isinstance(one, Process):
            return one  # another than the parent
        made = self._keep(one, _empty(one))
        if isinstance(one, dict):
            for key, value in list(one.items()):
                made[self.copied(key)] = self.copied(value)
        elif isinstance(one, (list, deque)):
            made.extend(map(self.copied, list(one)))
        elif isinstance(one, (set, bytearray)):
            made.update(map(self.copied, one)) if isinstance(one, set) else made.extend(one)
        for name in (*getattr(one, "__dict__", ()), *copyreg._slotnames(type(one))):  # type: ignore[attr-defined]
            if hasattr(one, name):
                object.__setattr__(made, name, self.copied(getattr(one, name)))
        return made

    def _bell(self, one: Bell) -> Bell:
        made = Bell(self._child)
        made._rung = one._rung
        return made

    def _function(self, one: types.FunctionType) -> types.FunctionType:
        if one.__closure__ is None:
            return one
        cells = tuple(types.CellType() for _ in one.__closure__)
        made: types.FunctionType = self._keep(
            one, types.FunctionType(one.__code__, one.__globals__, one.__name__, one.__defaults__, cells)
        )
        for cell, of in zip(cells, one.__closure__, strict=True):
            if of != types.CellType():  # not empty
                cell.cell_contents = self.copied(of.cell_contents)
        return made

    def _method(self, one: Any) -> Any:
        return types.MethodType(one.__func__, self.copied(one.__self__))

    def _built_in(self, one: Any) -> Any:
        return getattr(self.copied(one.__self__), one.__name__)

    def _partial(self, one: Any) -> Any:
        given = {key: self.copied(value) for key, value in one.keywords.items()}
        return partial(self.copied(one.func), *map(self.copied, one.args), **given)

    def _cache(self, one: Any) -> Any:
        return lru_cache(**one.cache_parameters())(self.copied(one.__wrapped__))

    def _frozen(self, one: Any) -> Any:
        return frozenset(map(self.copied, one))

    def _weak(self, one: ref[Any]) -> ref[Any]:
        there = one()
        return one if there is None else ref(self.copied(there), self.copied(one.__callback__))

    def _weak_set(self, one: WeakSet[Any]) -> WeakSet[Any]:
        return WeakSet(map(self.copied, list(one)))

    def _weak_dict(self, one: Any) -> Any:
        return type(one)((self.copied(key), self.copied(value)) for key, value in list(one.items()))

    def _count(self, one: Any) -> Any:
        return one.__reduce__()[0](*one.__reduce__()[1])

    def _stream(self, one: SimulatedStream | InheritedStream) -> InheritedStream:
        made = InheritedStream(one, self._child)
        if isinstance(one, SimulatedStream) and one.process is self._parent and one.is_awaited:
            self.talking.append(made)
        return made


def _bound(one: object) -> bool:
    """A method of an object of C's."""
    return type(one) is types.BuiltinMethodType and not isinstance(one.__self__, (types.ModuleType, type, type(None)))


def _empty(one: Any) -> Any:
    if isinstance(one, deque):
        return type(one)(maxlen=one.maxlen)
    kind: Any = type(one)
    return kind.__new__(kind)


_SPECIAL: dict[type, Callable[[Memory, Any], Any]] = {
    Bell: Memory._bell,
    types.FunctionType: Memory._function,
    types.MethodType: Memory._method,
    types.BuiltinMethodType: Memory._built_in,
    partial: Memory._partial,
    _lru_cache_wrapper: Memory._cache,
    frozenset: Memory._frozen,
    ref: Memory._weak,
    WeakSet: Memory._weak_set,
    WeakKeyDictionary: Memory._weak_dict,
    WeakValueDictionary: Memory._weak_dict,
    itertools.count: Memory._count,
    type(Lock()): lambda *_: Lock(),
    Reader: lambda *_: Reader(),  # of a connection that the child has no use for
    SimulatedStream: Memory._stream,
    InheritedStream: Memory._stream,
}
