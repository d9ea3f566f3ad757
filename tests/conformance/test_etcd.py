"""A real etcd of three members passes the suite, for a user who has what `holdfast migrate --acl` prints and nothing besides.

Also with one of the members dead.
"""

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

from ..tenants import PASSWORD, guard_etcd, on_etcd

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def etcd() -> Iterator[Cluster[Etcd]]:
    # No waiting for the disk, nor for a password's hash, neither of which is what is tested here.
    with servers.cluster("etcd", 3, "--unsafe-no-fsync", "--bcrypt-cost=4") as cluster:
        on_etcd(cluster.members[0], tenant(cluster))
        guard_etcd(cluster.members)
        yield cluster


def tenant(cluster: Cluster[Etcd], below: str = "") -> str:
    return f"etcd://tenant:{PASSWORD}@{cluster.hosts}/tenant{below}"


class TestEtcd(Suite):
    lines_at_a_time = 11
    turns_at_a_time = 3
    ttl_short = 0.6  # three members and a busy machine: a third of it must be enough for a renewal

    @pytest.fixture
    def url(self, etcd: Cluster[Etcd], mended: Callable[[Cluster[Etcd]], None]) -> str:
        mended(etcd)
        return tenant(etcd, f"/{uuid4().hex[:8]}")


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
        return tenant(two_of_three, f"/{uuid4().hex[:8]}")
