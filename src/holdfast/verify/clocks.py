"""A worker whose clocks jump: run as a script, it shifts what Python says of the time, and then becomes the worker.

As a script, and before anything of holdfast is imported, since the core takes the clock in its hand when it is imported. That by
which histories are written (`time.monotonic`) is left alone.

    python -P clocks.py        then, in the worker:  sys.modules[NAME].shift(wall=3600.0, suspended=2.0)
"""

from __future__ import annotations

import sys
import time

NAME = "holdfast_verify_clocks"
_by = {"wall": 0.0, "suspended": 0.0}


def shift(wall: float, suspended: float) -> None:
    """Wall time is set so many seconds ahead (or back), and so long the machine has been asleep since it was started."""
    _by["wall"] = wall
    _by["suspended"] += suspended  # no machine is un-suspended


def install() -> None:
    sys.modules[NAME] = sys.modules[__name__]
    wall, wall_ns, gettime = time.time, time.time_ns, time.clock_gettime
    asleep = getattr(time, "CLOCK_BOOTTIME", None)

    def shifted(which: int) -> float:
        if which == time.CLOCK_REALTIME:
            return gettime(which) + _by["wall"]
        return gettime(which) + (_by["suspended"] if which == asleep else 0.0)

    time.time = lambda: wall() + _by["wall"]
    time.time_ns = lambda: wall_ns() + int(_by["wall"] * 1e9)
    time.clock_gettime = shifted


if __name__ == "__main__":
    import runpy

    install()
    runpy.run_module("holdfast.verify.worker", run_name="holdfast_verify_worker")["main"]()
