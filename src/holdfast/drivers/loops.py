"""Connections that end with their event loop: asyncio closes none, and until the collector came the server would keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .sockets import void
from .system import at_fork

C = TypeVar("C")

# Of each loop: what is connected there, and how it is ended.
_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Any, Callable[[Any], object]]]
_of_loops = WeakKeyDictionary()


def ends_with_this_loop(connection: C, end: Callable[[C], object]) -> None:
    end_what_loops_have_left()
    _of_loops.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())[connection] = end


def end_what_loops_have_left() -> None:
    """By whoever comes first once they are closed, whatever it was that they had been connected to."""
    for one in _of_loops.keyrefs():  # one step: other threads connect meanwhile
        loop = one()
        if loop is not None and loop.is_closed():
            left = _of_loops.pop(loop, WeakKeyDictionary())  # of two threads, one has them
            for connection, end in list(left.items()):
                try:
                    end(connection)
                except OSError:  # no descriptor is free, say
                    _of_loops.setdefault(loop, WeakKeyDictionary())[connection] = end  # by the next one, then


def give_up_socket(plain: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Of a transport whose loop is closed. asyncio leaves it open; uvloop closes it itself, by its number, and says that it is
    closed before it has: the number may be that of anything else by the time that we would use it."""
    if isinstance(loop, asyncio.BaseEventLoop):
        void(plain)


at_fork(after_in_child=_of_loops.clear)  # the child's stores disown theirs; what nobody knows of is the parent's to end
