"""What the tests of ZooKeeper share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kazoo.client import KazooClient

from holdfast.sync import Locks
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.zookeeper import ZooKeeper

Ensemble = Cluster[ZooKeeper]


@contextmanager
def admin(hosts: str, **more: Any) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=10, **more)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def proxied(ensemble: Ensemble) -> Iterator[tuple[str, list[Proxy]]]:
    """The hosts of an ensemble as a client sees it that we can cut off."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(member.address)) for member in ensemble.members]
        yield ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies), proxies


def session_of(locks: Locks) -> Any:
    """The one session of a connection that uses one ttl."""
    (session,) = locks._engine.store._sessions._open.values()  # type: ignore[attr-defined]
    return session
