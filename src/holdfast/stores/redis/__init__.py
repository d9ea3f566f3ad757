"""Locks in Redis or Valkey: one server, a replicated one under Sentinels, or a cluster."""

from __future__ import annotations

from collections.abc import Callable

from ...drivers.base import Driver
from .cluster import ClusterWire, NodeWire
from .store import RedisStore
from .url import Target, parse

__all__ = ["RedisStore", "open_store"]


def open_store(url: str, driver: Driver) -> RedisStore:
    """`redis://[user:password@]host[:port][/db]`, `rediss://…`, `unix:///path`, `redis+sentinel://host,host/service`."""
    from ...drivers.aio import Asyncio
    from ...drivers.threads import Threads

    target = parse(url)
    open_wire: Callable[[Target], NodeWire]
    if isinstance(driver, Asyncio):
        from .wire_aio import AioWire as open_wire
    elif isinstance(driver, Threads):
        from .wire import BlockingWire as open_wire
    else:
        from .stream_wire import StreamWire

        return RedisStore(target, StreamWire(target, driver), driver)
    if target.kind == "cluster":
        return RedisStore(target, ClusterWire(target, open_wire), driver)
    return RedisStore(target, open_wire(target), driver)
