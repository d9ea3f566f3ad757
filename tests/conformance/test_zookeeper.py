"""A real ZooKeeper ensemble of three passes the suite, for a user who owns one node, as `holdfast migrate --acl` says.

Nobody may create anything beside it. (With a certificate: tests/security/test_least_privilege.py.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.zookeeper import ZooKeeper

from ..tenants import PASSWORD, on_zookeeper, zookeeper_client

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Cluster[ZooKeeper]]:
    # Sessions as long as the suite's longest ttl; no waiting for the disk, nor elections because a busy machine was slow:
    # neither is what is tested here.
    with servers.cluster("zookeeper", 3, "maxSessionTimeout=1000000", "forceSync=no", "syncLimit=50") as cluster:
        on_zookeeper(cluster.hosts, tenant(cluster))
        yield cluster


def tenant(cluster: Cluster[ZooKeeper], below: str = "") -> str:
    return f"zookeeper://tenant:{PASSWORD}@{cluster.hosts}/tenants/one{below}"


class TestZooKeeper(Suite):
    doubts = False  # one session, one connection
    tells_ttl = False
    lines_at_a_time = 7
    ttl_short = 0.75
    turns_at_a_time = 29  # an answer takes a quorum, and a loop many turns; all of them were tried once, in two minutes

    @pytest.fixture
    def url(self, ensemble: Cluster[ZooKeeper], mended: Callable[[Cluster[ZooKeeper]], None]) -> str:
        mended(ensemble)
        return tenant(ensemble, f"/test-{uuid4().hex[:8]}")


def test_a_tenant_may_touch_nothing_of_a_sibling(ensemble: Cluster[ZooKeeper]) -> None:
    """Nor take the place of one who has not come yet."""
    on_zookeeper(ensemble.hosts, f"zookeeper://sibling:{PASSWORD}@{ensemble.hosts}/tenants/two")
    with (
        zookeeper_client(ensemble.hosts, f"tenant:{PASSWORD}") as own,
        zookeeper_client(ensemble.hosts, f"sibling:{PASSWORD}") as sibling,
    ):
        sibling.create("/tenants/two/x", b"", CREATOR_ALL_ACL)
        attempts: list[Callable[[], object]] = [
            lambda: own.get("/tenants/two"),
            lambda: own.get_children("/tenants/two"),
            lambda: own.set("/tenants/two", b""),
            lambda: own.create("/tenants/two/y"),
            lambda: own.delete("/tenants/two/x"),
            lambda: own.delete("/tenants/two", recursive=True),
            lambda: own.set_acls("/tenants/two", OPEN_ACL_UNSAFE),
            lambda: own.create("/tenants/three"),
            lambda: own.create("/three"),
        ]
        for attempt in attempts:
            with pytest.raises(NoAuthError):
                attempt()
        assert own.exists("/tenants/two")  # that it is there, and the names beside one's own, can be seen


@pytest.fixture(scope="module")
def two_of_three(ensemble: Cluster[ZooKeeper]) -> Iterator[Cluster[ZooKeeper]]:
    dead = ensemble.leader()
    dead.kill()
    ensemble.leader()
    yield ensemble
    dead.restart()


class TestWithOneMemberDown(Exclusion, Tokens):
    """What a dead member could break; its address stands in the URL all the same."""

    ttl_short = TestZooKeeper.ttl_short
    slack = Suite.slack
    world = Suite.world

    @pytest.fixture
    def url(self, two_of_three: Cluster[ZooKeeper]) -> str:
        return tenant(two_of_three, f"/test-{uuid4().hex[:8]}")
