"""Redlock: locks that a majority of independent Redis nodes agrees on, with tokens that need no clock."""

from __future__ import annotations

from ...drivers.base import Driver
from ...errors import Misuse
from ..redis.url import parse
from .store import RedlockStore

__all__ = ["RedlockStore", "open_store"]

NODE_TIMEOUT = 0.25


def open_store(url: str, driver: Driver) -> RedlockStore:
    """`redlock://[user:password@]host1,host2,host3[/db][?timeout=…]`: three, five or seven independent nodes."""
    from ...drivers.aio import Asyncio
    from ...drivers.threads import Threads

    target = parse(url)
    if len(target.addresses) not in (3, 5, 7):
        raise Misuse(
            f"a Redlock has 3, 5 or 7 nodes, not {len(target.addresses)}: an even number survives no more failures than "
            "one node less, and one node is redis://"
        )
    if "timeout=" not in url.partition("?")[2]:
        target = target._replace(timeout=NODE_TIMEOUT)
    if isinstance(driver, Asyncio):
        from .fan_aio import AioFan

        return RedlockStore(target, AioFan(target), driver)
    if isinstance(driver, Threads):
        from .fan import BlockingFan

        return RedlockStore(target, BlockingFan(target), driver)
    from .fan_stream import StreamFan

    return RedlockStore(target, StreamFan(target, driver), driver)
