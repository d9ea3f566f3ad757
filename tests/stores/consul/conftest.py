"""Three real Consul servers for the tests of this folder, and fresh keys for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

import holdfast
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.consul import Consul

Connect = Callable[..., Locks]


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster[Consul]]:
    with servers.cluster("consul", 3, "-hcl", 'session_ttl_min = "100ms"') as group:
        yield group


@pytest.fixture
def cluster(shared_cluster: Cluster[Consul]) -> Cluster[Consul]:
    """Whole, whatever the test before has done to it."""
    shared_cluster.mend()
    return shared_cluster


@pytest.fixture
def prefix() -> str:
    return uuid4().hex[:8]


@pytest.fixture
def connect(prefix: str) -> Iterator[Connect]:
    """`holdfast.connect` to these addresses, closed at the end of the test."""
    opened: list[Locks] = []

    def open_locks(*addresses: tuple[str, int], options: str = "") -> Locks:
        hosts = ",".join(f"{host}:{port}" for host, port in addresses)
        opened.append(holdfast.connect(f"consul://{hosts}/{prefix}?min_ttl=0.1{options}"))
        return opened[-1]

    yield open_locks
    for locks in opened:
        locks.close()
