"""Fork and exit: a forked child owns nothing; an interpreter that exits releases what it holds."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

_engines: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def adopt(engine: Any, release_at_exit: Callable[[Any], None]) -> None:
    """Look after an engine for as long as somebody uses it."""
    _engines[engine] = release_at_exit


def _forked() -> None:
    for engine in list(_engines):
        engine.forked()


def _exit() -> None:
    for engine, release in list(_engines.items()):
        try:
            release(engine)
        except Exception:
            continue  # the ttl ends it


os.register_at_fork(after_in_child=_forked)
atexit.register(_exit)
