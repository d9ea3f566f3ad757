"""Locks in Redis or Valkey: one server, a replicated one under Sentinels, or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...drivers.base import Driver
from .cluster import ClusterWire, NodeWire
from .store import RedisStore
from .url import Target, parse
from .wiring import Wire

if TYPE_CHECKING:
    from .shared_wire import SharedWire

__all__ = ["RedisStore", "open_shared", "open_store", "open_wire"]


def open_store(url: str, driver: Driver) -> RedisStore:
    """`redis://[user:password@]host[:port][/db]`, `rediss://…`, `unix:///path`, `redis+sentinel://host,host/service`."""
    target = parse(url)
    return RedisStore(target, open_wire(target, driver), driver)


def open_wire(target: Target, driver: Driver) -> Wire:
    """The connections of one server, or of a cluster, as this driver waits for them."""
    from ...drivers.threads import Threads

    open_node: Callable[[Target], NodeWire]
    if isinstance(driver, Threads):
        from .wire import BlockingWire as open_node
    else:
        open_node = partial(open_shared, driver=driver)
    return ClusterWire(target, open_node, driver.now) if target.kind == "cluster" else open_node(target)


def open_shared(target: Target, driver: Driver) -> SharedWire:
    """Where tasks are cheap."""
    from ...drivers.aio import Asyncio
    from .shared_wire import SharedWire

    if isinstance(driver, Asyncio):
        from .pipe import open_pipe

        return SharedWire(target, driver, open_pipe)
    from .stream_pipe import by_streams

    return SharedWire(target, driver, by_streams(driver))
