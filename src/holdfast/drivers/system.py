"""What not every system has, and what does instead: the rest of holdfast asks here, and not for the system's name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any


def _nobody_forks(**_: Callable[[], Any]) -> None:
    pass


at_fork: Callable[..., None] = getattr(os, "register_at_fork", _nobody_forks)


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
