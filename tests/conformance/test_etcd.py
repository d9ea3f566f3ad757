"""A real etcd of three members passes the suite; also with one of them dead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.conformance.deaths import Deaths
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def etcd() -> Iterator[Cluster[Etcd]]:
    # No waiting for the disk, which is not what is tested here.
    with servers.cluster("etcd", 3, "--unsafe-no-fsync") as cluster:
        yield cluster


class TestEtcd(Suite):
    lines_at_a_time = 11
    turns_at_a_time = 3
    ttl_short = 0.6  # three members and a busy machine: a third of it must be enough for a renewal

    @pytest.fixture
    def url(self, etcd: Cluster[Etcd], mended: Callable[[Cluster[Etcd]], None]) -> str:
        mended(etcd)
        return f"{etcd.url}/{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def two_of_three(etcd: Cluster[Etcd]) -> Iterator[Cluster[Etcd]]:
    dead = etcd.leader()
    dead.kill()
    etcd.leader()
    yield etcd
    dead.restart()


class TestEtcdWithAMemberDown(Exclusion, Tokens, Deaths):
    """What a dead member could break; its address stands in the URL all the same."""

    ttl_short = Suite.ttl_short
    slack = Suite.slack
    world = Suite.world

    @pytest.fixture
    def url(self, two_of_three: Cluster[Etcd]) -> str:
        return f"{two_of_three.url}/{uuid4().hex[:8]}"
