"""Locks in Redis or Valkey: one server, a replicated one under Sentinels, or a cluster."""

from __future__ import annotations

from collections.abc import Callable

from ...drivers.base import Driver
from .cluster import ClusterWire, NodeWire
from .store import RedisStore
from .url import Target, parse
from .wiring import Wire

__all__ = ["RedisStore", "open_store", "open_wire"]


def open_store(url: str, driver: Driver) -> RedisStore:
    """`redis://[user:password@]host[:port][/db]`, `rediss://…`, `unix:///path`, `redis+sentinel://host,host/service`."""
    target = parse(url)
    return RedisStore(target, open_wire(target, driver), driver)


def open_wire(target: Target, driver: Driver) -> Wire:
    """The connections of one server, or of a cluster, as this driver waits for them."""
    from ...drivers.aio import Asyncio
    from ...drivers.threads import Threads

    open_node: Callable[[Target], NodeWire]
    if isinstance(driver, Asyncio):
        from .wire_aio import AioWire as open_node
    elif isinstance(driver, Threads):
        from .wire import BlockingWire as open_node
    else:
        from .stream_wire import StreamWire

        return StreamWire(target, driver)
    return ClusterWire(target, open_node) if target.kind == "cluster" else open_node(target)
