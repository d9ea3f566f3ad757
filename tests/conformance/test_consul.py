"""Three real Consul servers pass the suite; and two of them, when one is down."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.conformance.claims import Claims
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.semaphores import Semaphores
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.consul import Consul

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster[Consul]]:
    with servers.cluster("consul", 3, "-hcl", 'session_ttl_min = "100ms"') as group:
        yield group


@pytest.fixture(scope="module")
def crippled(cluster: Cluster[Consul]) -> Cluster[Consul]:
    """Without its leader, for good."""
    leader = cluster.leader()
    leader.kill()
    assert cluster.leader() is not leader
    return cluster


class TestConsul(Suite):
    ttl_short = 0.8
    slack = 4.0  # Consul takes up to 9/4 of the ttl to end a session

    @pytest.fixture
    def url(self, cluster: Cluster[Consul]) -> str:
        return f"{cluster.url}/{uuid4().hex[:8]}?min_ttl=0.1"


class TestConsulWithOneServerDown(Exclusion, Order, Tokens, Claims, Semaphores):
    """What is about safety and order. (The whole suite passes so too; it takes a minute that is not always there.)"""

    ttl_short = TestConsul.ttl_short
    slack = TestConsul.slack
    world = Suite.world

    @pytest.fixture
    def url(self, crippled: Cluster[Consul]) -> str:
        return f"{crippled.url}/{uuid4().hex[:8]}?min_ttl=0.1"
