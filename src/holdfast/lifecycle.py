"""Fork and exit: a forked child owns nothing; a process that ends releases what it holds."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from .drivers.system import at_fork

_engines: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()
_looked_after: set[int] = set()  # the process in which multiprocessing was asked to tell of the end


def adopt(engine: Any, release_at_exit: Callable[[Any], None]) -> None:
    """Look after an engine for as long as somebody uses it."""
    _engines[engine] = release_at_exit
    _hear_of_the_end()


def _hear_of_the_end() -> None:
    """A child that multiprocessing forked ends by os._exit(): atexit does not run there, but its own finalizers do."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or os.getpid() in _looked_after:
        return
    from multiprocessing.util import Finalize

    _looked_after.clear()
    _looked_after.add(os.getpid())
    Finalize(None, _exit, exitpriority=0)


def _forked() -> None:
    for engine in list(_engines):
        engine.forked()
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # once it has forgotten its parent's finalizers
        util.register_after_fork(_engines, lambda _: _hear_of_the_end())


def _exit() -> None:
    for engine, release in list(_engines.items()):
        engine.exiting = True
        try:
            release(engine)
        except Exception:
            continue  # the ttl ends it


at_fork(after_in_child=_forked)
atexit.register(_exit)
