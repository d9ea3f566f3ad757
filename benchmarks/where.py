"""A store to measure, by its name: a server of its own, on this machine, for as long as it is needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from holdfast.testing import servers

STORES = ("memory", "sqlite", "redis", "redlock", "etcd", "zookeeper", "consul", "postgresql", "mysql")


class Where(NamedTuple):
    url: str
    pids: tuple[int, ...] = ()  # of its servers


@contextmanager
def started(store: str) -> Iterator[Where]:
    with ExitStack() as stack:
        if store == "memory":
            yield Where("memory://")
        elif store == "sqlite":
            yield Where(f"sqlite://{stack.enter_context(tempfile.TemporaryDirectory())}/locks.db")
        elif store in ("redis", "redlock"):
            count = 1 if store == "redis" else 5
            nodes = [stack.enter_context(servers.start("redis", "--appendonly", "no")) for _ in range(count)]
            several = "redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
            yield Where(nodes[0].url if store == "redis" else several, tuple(node.pid for node in nodes))
        elif store in ("postgresql", "mysql"):
            server = stack.enter_context(servers.start("mariadb" if store == "mysql" else "postgresql"))
            yield Where(server.url, (server.pid,))
        else:
            cluster = stack.enter_context(servers.cluster(store, 3))
            yield Where(cluster.url, tuple(member.pid for member in cluster.members))
