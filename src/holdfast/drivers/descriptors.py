"""Descriptors that are somebody's from the first moment on.

The number that `os.dup` or `os.pipe` gives is nobody's until an object has it, and a signal handler that raises in between leaves
it open for ever: so do `socket.dup()` and `socket.socket(fileno=os.dup(number))`, since that constructor is written in Python.
Here the interpreter looks for no signal in between: whoever is interrupted has nothing, or what is closed when it is forgotten.
"""

from __future__ import annotations

import io
import os
import socket
from itertools import chain, starmap

_NOTHING: tuple[tuple[()], ...] = ((),)


def another(plain: int) -> socket.SocketType:
    """Of the same connection, by the number of a socket of it."""
    return next(map(socket.SocketType, (-1,), (-1,), (-1,), map(socket.dup, (plain,))))


def another_number(plain: int) -> io.FileIO:
    """The same, to be watched and not to be used; so whether it blocks stays as it is."""
    return next(map(io.FileIO, map(os.dup, (plain,))))


def pipe() -> list[io.FileIO]:
    """Its ends: what is written to the second is read from the first."""
    return list(map(io.FileIO, chain.from_iterable(starmap(os.pipe, _NOTHING))))


def nothing() -> io.FileIO:
    """Can be read and written, in vain."""
    return io.FileIO(os.devnull, "r+")
