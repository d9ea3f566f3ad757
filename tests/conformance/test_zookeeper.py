"""A real ZooKeeper ensemble of three passes the suite."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite, World
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.zookeeper import ZooKeeper

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Cluster[ZooKeeper]]:
    # Sessions as long as the suite's longest ttl; and no waiting for the disk, which is not what is tested here.
    with servers.cluster("zookeeper", 3, "maxSessionTimeout=1000000", "forceSync=no") as cluster:
        yield cluster


class TestZooKeeper(Suite):
    ttl_short = 0.75
    turns_at_a_time = 17  # an answer takes a quorum, and a loop many turns

    @pytest.fixture
    def url(self, ensemble: Cluster[ZooKeeper]) -> str:
        return f"{ensemble.url}/test-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def two_of_three() -> Iterator[Cluster[ZooKeeper]]:
    with servers.cluster("zookeeper", 3, "maxSessionTimeout=1000000", "forceSync=no") as cluster:
        leader = cluster.leader()
        leader.kill()
        cluster.leader()
        yield cluster


class TestWithOneMemberDown(Exclusion, Order, Tokens):
    @pytest.fixture
    def url(self, two_of_three: Cluster[ZooKeeper]) -> str:
        return f"{two_of_three.url}/test-{uuid4().hex[:8]}"

    @pytest.fixture(params=["threads", "asyncio"])
    def world(self, request: pytest.FixtureRequest, url: str) -> Iterator[World]:
        stage = World(url, request.param, TestZooKeeper.ttl_short, Suite.slack)
        yield stage
        stage.end()
