"""What not every system has, and what does instead: the rest of holdfast asks here, and not for the system's name."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial

_process = os.getpid()
_in_child: list[Callable[[], object]] = []
_noticing = threading.RLock()


def at_fork(
    *,
    before: Callable[[], object] | None = None,
    after_in_parent: Callable[[], object] | None = None,
    after_in_child: Callable[[], object] | None = None,
) -> None:
    """As os.register_at_fork(), where there is one. What is for the child is done by `notice_fork()`, too."""
    if after_in_child is not None:
        _in_child.append(after_in_child)
    told = {"before": before, "after_in_parent": after_in_parent}
    if hasattr(os, "register_at_fork") and any(told.values()):
        os.register_at_fork(**{when: what for when, what in told.items() if what is not None})


def _forked() -> None:
    global _process, _noticing
    _process, _noticing = os.getpid(), threading.RLock()  # another thread of the parent's may have had it
    _tell_all()


def _tell_all() -> None:
    troubles: list[Exception] = []
    for one in tuple(_in_child):
        try:
            one()
        except Exception as error:
            troubles.append(error)
    if troubles:
        raise troubles[0]


def notice_fork() -> None:
    """uWSGI forks its workers without a word to Python: who is about to use what may be the parent's asks here before."""
    global _process
    with _noticing:
        if os.getpid() != _process:
            _tell_all()
            _process = os.getpid()  # last: other threads wait until all is done


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def host_name() -> str:
    if hasattr(os, "uname"):
        return os.uname().nodename
    import socket

    return socket.gethostname()


def _boot_clock() -> Callable[[], float]:
    """Linux has a clock for it; macOS's CLOCK_MONOTONIC counts sleep, unlike Python's own there; Windows has Python's only."""
    if not hasattr(time, "clock_gettime"):
        return time.monotonic
    return partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


# Seconds, by a clock that nobody can set and that counts suspend too: a lease does not outlive its ttl in a closed laptop.
boot_time: Callable[[], float] = _boot_clock()
