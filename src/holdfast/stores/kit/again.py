"""What was not answered, and may be done again, is done again until its time is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...drivers.base import Driver
from ...errors import Unavailable
from .pool import Unreachable

T = TypeVar("T")


async def again(driver: Driver, trouble: Unavailable, deadline: float, attempt: Callable[[], Awaitable[T]]) -> T:
    """After `trouble`: ride out a connection that broke, a member that fell silent, the election of a leader."""
    if isinstance(trouble, Unreachable):
        raise trouble
    before, pause = trouble, 0.0  # the first time at once: a connection that lay idle may have been closed
    try:
        while (left := deadline - driver.now()) > 0:
            await driver.sleep(min(left, pause))
            before = trouble
            try:
                return await attempt()
            except Unreachable:
                if driver.now() >= deadline:
                    break
                raise
            except Unavailable as error:
                trouble, pause = error, driver.uniform(0, 0.1)
        raise before from None  # that time ran out at last says less than what was wrong before
    finally:
        del before, trouble  # else the frame, and what it knows, would be kept by its own traceback
