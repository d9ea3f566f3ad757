"""A real etcd of three members for the tests of this folder, and fresh keys for each."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import holdfast
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

from ..hands import Connect


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster[Etcd]]:
    # Else members may be added only when all have been up for five seconds.
    with servers.cluster("etcd", 3, "--strict-reconfig-check=false") as three:
        yield three


@pytest.fixture
def cluster(shared_cluster: Cluster[Etcd]) -> Cluster[Etcd]:
    """Whole, whatever the test before has done to it."""
    shared_cluster.mend()
    return shared_cluster


@pytest.fixture
def prefix() -> str:
    return uuid4().hex[:8]


@pytest.fixture
def url(cluster: Cluster[Etcd], prefix: str) -> str:
    return f"{cluster.url}/{prefix}"


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    """`holdfast.connect`, closed at the end of the test."""
    opened: list[Locks] = []

    def open_locks(where: str = "", label: str = "") -> Locks:
        opened.append(holdfast.connect(where or url, label=label))
        return opened[-1]

    yield open_locks
    for locks in opened:
        locks.close()
