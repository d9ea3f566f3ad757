"""How a thread is started: here, and nowhere else. A signal handler may raise in the middle of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def start(work: Callable[[], None], name: str) -> threading.Thread:
    """In a thread of its own; and if this call is interrupted, either it runs or nobody knows of it any more.

    So whoever keeps the thread does so under a mutex that `work` takes first, and `work` goes home if it is not the one that is
    known: its start, or what came after it, was interrupted.

    A daemon: it must not keep the interpreter alive. What is held at exit is released by lifecycle.py.
    """
    before = sys.exc_info()[1]
    todo = [work]
    thread = threading.Thread(target=_work_off, args=(todo,), name=name, daemon=True)
    try:
        thread.start()
        return thread
    except BaseException as error:
        # The interpreter remembers for ever whom it was about to start, and what for: so that is taken out.
        todo.clear()
        # It may also say RuntimeError, since the mutex that it waited with is not locked; or KeyError, since the thread was
        # quicker to strike itself off: tell what really happened.
        cause = error.__context__
        if not isinstance(error, RuntimeError | KeyError) or cause is None or cause is before:
            del cause
            raise
    try:
        raise cause  # only now: within, each would know of the other, and both keep what was to be done until they are collected
    finally:
        del cause


def _work_off(todo: list[Callable[[], None]]) -> None:
    try:
        work = todo.pop()
    except IndexError:  # taken back
        return
    work()
