"""A real ZooKeeper ensemble of three passes the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.zookeeper import ZooKeeper

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Cluster[ZooKeeper]]:
    # Sessions as long as the suite's longest ttl; no waiting for the disk, nor elections because a busy machine was slow:
    # neither is what is tested here.
    with servers.cluster("zookeeper", 3, "maxSessionTimeout=1000000", "forceSync=no", "syncLimit=50") as cluster:
        yield cluster


class TestZooKeeper(Suite):
    lines_at_a_time = 7
    ttl_short = 0.75
    turns_at_a_time = 29  # an answer takes a quorum, and a loop many turns; all of them were tried once, in two minutes

    @pytest.fixture
    def url(self, ensemble: Cluster[ZooKeeper], mended: Callable[[Cluster[ZooKeeper]], None]) -> str:
        mended(ensemble)
        return f"{ensemble.url}/test-{uuid4().hex[:8]}"


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
        return f"{two_of_three.url}/test-{uuid4().hex[:8]}"
