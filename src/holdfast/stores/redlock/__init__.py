"""Redlock: locks that a majority of independent Redis nodes agrees on, with tokens that need no clock."""

from __future__ import annotations

from functools import partial

from ...drivers.base import Driver
from ...errors import Misuse
from ..redis import open_shared
from ..redis.url import Target, parse
from .fan import Fan
from .store import RedlockStore

__all__ = ["RedlockStore", "open_store"]

NODE_TIMEOUT = 0.25


def open_store(url: str, driver: Driver) -> RedlockStore:
    """`redlock://[user:password@]host1,host2,host3[/db][?timeout=…]`: three, five or seven independent nodes."""
    target = parse(url)
    if len(target.addresses) not in (3, 5, 7):
        raise Misuse(
            f"a Redlock has 3, 5 or 7 nodes, not {len(target.addresses)}: an even number survives no more failures than "
            "one node less, and one node is redis://"
        )
    if "timeout=" not in url.partition("?")[2]:
        target = target._replace(timeout=NODE_TIMEOUT)
    return RedlockStore(target, _fan(target, driver), driver)


def _fan(target: Target, driver: Driver) -> Fan:
    from ...drivers.threads import Threads

    if isinstance(driver, Threads):
        from .polled import PolledFan

        return PolledFan(target, driver.now)
    from .shared import SharedFan

    return SharedFan(target, driver, partial(open_shared, driver=driver))
