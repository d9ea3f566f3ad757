"""Locks in Redis or Valkey: one server, a replicated one under Sentinels, or a cluster."""

from __future__ import annotations

from ...drivers.base import Driver
from .store import RedisStore
from .url import parse

__all__ = ["RedisStore", "open_store"]


def open_store(url: str, driver: Driver) -> RedisStore:
    """`redis://[user:password@]host[:port][/db]`, `rediss://…`, `unix:///path`, `redis+sentinel://host,host/service`."""
    from ...drivers.aio import Asyncio

    target = parse(url)
    if isinstance(driver, Asyncio):
        from .wire_aio import AioWire

        return RedisStore(target, AioWire(target), driver)
    from .wire import BlockingWire

    return RedisStore(target, BlockingWire(target), driver)
