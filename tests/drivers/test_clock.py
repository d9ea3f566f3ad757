"""The clock of deadlines: nobody can set it, and it goes on while the machine is suspended."""

from __future__ import annotations

import time

import pytest

from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import uniform
from holdfast.drivers.threads import Threads


@pytest.mark.parametrize("driver", [Threads(), Asyncio()], ids=["threads", "asyncio"])
def test_deadlines_are_measured_on_a_clock_that_counts_suspend_and_cannot_be_set(driver: Threads | Asyncio) -> None:
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    assert time.clock_gettime(boot) <= driver.now() <= time.clock_gettime(boot)


@pytest.mark.parametrize("driver", [Threads(), Asyncio()], ids=["threads", "asyncio"])
def test_tokens_begin_at_the_wall_clock(driver: Threads | Asyncio) -> None:
    assert time.time_ns() // 1000 <= driver.wall_us() <= time.time_ns() // 1000


def test_jitter_is_within_its_bounds() -> None:
    drawn = [uniform(0.2, 0.4) for _ in range(1000)]
    assert all(0.2 <= one <= 0.4 for one in drawn)
    assert max(drawn) - min(drawn) > 0.1
