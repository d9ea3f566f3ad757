"""The stores that the simulator runs, and what can happen to each. To add one (a simulated Redis, a Redlock of five nodes):
an entry here with what can be done to it; scenarios name what they need, and are then offered with it."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from ..drivers.simulated import Process
from ..stores.base import Store
from ..stores.memory import MemoryStore
from ..stores.sqlite import SqliteStore
from ..testing.simulation.local import Local
from ..testing.simulation.remote import Remote
from .strikes import CLOCK, CUT, DEAF, DEPOSE, DOWN, FAILOVER, FAIR, FORGET, NODES, PROMPT

if TYPE_CHECKING:
    from ..drivers.simulated_streams import Streams
    from .stage import Stage

_runs = itertools.count()


class Kind(NamedTuple):
    title: str
    can: frozenset[str]  # beside pausing and killing processes, which can be done everywhere
    open: Callable[[Stage, Process], Store]


def _memory(stage: Stage, process: Process) -> Store:
    """One store at a server, which every process reaches over the network."""
    if stage.memory is None:
        stage.memory = MemoryStore(stage.server.driver, f"lab-{next(_runs)}")
    return Remote(stage.watched(stage.memory), stage.to_store, process)


def _sqlite(stage: Stage, process: Process) -> Store:
    """A file that every process of one machine opens for itself."""
    if stage.folder is None:
        memory = "/dev/shm"  # noqa: S108 - a folder of our own in it
        stage.folder = tempfile.TemporaryDirectory(prefix="holdfast-", dir=memory if os.path.isdir(memory) else None)
        stage.at_end.append(stage.folder.cleanup)
    store = SqliteStore(os.path.join(stage.folder.name, "locks.db"), process.driver)
    stage.at_end.insert(0, store._database.close)
    stage.at_end.insert(0, store._renewals.close)
    return Local(stage.watched(store), process)


def _redis(stage: Stage, process: Process) -> Store:
    """The production client, over simulated connections, to a simulated server that runs our Lua scripts."""
    from ..stores import redis

    stage.start_servers(("redis",))
    return stage.watched(redis.open_store("redis://redis?timeout=0.5&retention=30", process.driver))


def _redlock(stage: Stage, process: Process) -> Store:
    from ..stores import redlock

    stage.start_servers(NODES)
    return stage.watched(redlock.open_store(f"redlock://{','.join(NODES)}?retention=30", process.driver))


def _etcd(stage: Stage, process: Process) -> Store:
    """The production client, and three members that follow a leader."""
    from ..stores import etcd
    from ..testing.simulation.servers.etcd import EtcdCluster

    stage.start_cluster(lambda streams: EtcdCluster(stage.world, streams, [(name, 2379) for name in NODES]))
    return stage.watched(etcd.open_store(f"etcd://{','.join(NODES)}?timeout=0.5", process.driver))


def _consul(stage: Stage, process: Process) -> Store:
    """As above. Its sessions end when they should, and its agents let them be short: else it would take half a minute."""
    from ..stores import consul
    from ..testing.simulation.servers.consul import ConsulCluster

    def cluster(streams: Streams) -> ConsulCluster:
        streams.one_at_a_time = True  # HTTP/1.1
        return ConsulCluster(stage.world, streams, [(name, 8500) for name in NODES], patience=1.0)

    stage.start_cluster(cluster)
    return stage.watched(consul.open_store(f"consul://{','.join(NODES)}?timeout=1&min_ttl=0.05", process.driver))


_HAS_LUA = find_spec("lupa") is not None and find_spec("hiredis") is not None
_HAS_HTTP2 = find_spec("hpack") is not None
_MEMBERS = frozenset({CUT, DEPOSE, FAIR})
STORES = {
    "memory": Kind(
        "a server (the memory store behind a network)", frozenset({CUT, CLOCK, FORGET, DEAF, FAIR, PROMPT}), _memory
    ),
    "sqlite": Kind("an SQLite file on one machine", frozenset({FAIR, PROMPT}), _sqlite),
    **(
        {
            "redis": Kind("a simulated Redis", frozenset({CUT, CLOCK, FORGET, FAILOVER, FAIR, PROMPT}), _redis),
            "redlock": Kind("Redlock on three simulated nodes", frozenset({CUT, DOWN, PROMPT}), _redlock),
        }
        if _HAS_LUA
        else {}
    ),
    **({"etcd": Kind("etcd, three simulated members", _MEMBERS, _etcd)} if _HAS_HTTP2 else {}),
    "consul": Kind("Consul, three simulated servers", _MEMBERS, _consul),
}
