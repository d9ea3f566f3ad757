"""Three real Consul servers pass the suite; and two of them, when one is down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.conformance.claims import Claims
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.semaphores import Semaphores
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.conformance.world import World
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
    lines_at_a_time = 7
    ttl_short = 0.6
    slack = 4.0  # Consul takes up to 9/4 of the ttl to end a session
    turns_at_a_time = 17  # an answer takes a quorum, and a loop many turns

    @pytest.fixture
    def url(self, cluster: Cluster[Consul], mended: Callable[[Cluster[Consul]], None]) -> str:
        mended(cluster)
        return f"{cluster.url}/{uuid4().hex[:8]}?min_ttl=0.1"


class TestConsulWithOneServerDown(Exclusion, Order, Tokens, Claims, Semaphores):
    """What is about safety and order, in asyncio. (How threads pass over a server is in tests/stores/consul/test_faults.py.)"""

    @pytest.fixture
    def url(self, crippled: Cluster[Consul]) -> str:
        return f"{crippled.url}/{uuid4().hex[:8]}?min_ttl=0.1"

    @pytest.fixture
    def world(self, url: str) -> Iterator[World]:
        stage = World(url, "asyncio", TestConsul.ttl_short, TestConsul.slack)
        yield stage
        stage.end()
