"""Three real Consul servers pass the suite, for a token that may do what `holdfast migrate --acl` prints and nothing besides.

And two of them, when one is down.
"""

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

from ..tenants import GUARDED_CONSUL, ROOT, ask_consul, on_consul

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster[Consul]]:
    with servers.cluster("consul", 3, "-hcl", f'session_ttl_min = "100ms" {GUARDED_CONSUL}') as group:
        yield group


@pytest.fixture(scope="module")
def tenant(cluster: Cluster[Consul]) -> str:
    return on_consul(cluster.members[0], f"{cluster.url}/tenant?node=tenant&min_ttl=0.1")


def below(tenant: str) -> str:
    return tenant.replace("/tenant?", f"/tenant/{uuid4().hex[:8]}?")


@pytest.fixture(scope="module")
def crippled(cluster: Cluster[Consul]) -> Cluster[Consul]:
    """Without its leader, for good."""
    leader = cluster.leader()
    leader.kill()
    assert cluster.leader() is not leader
    return cluster


class TestConsul(Suite):
    tells_ttl = False
    lines_at_a_time = 7
    ttl_short = 0.6
    slack = 4.0  # Consul takes up to 9/4 of the ttl to end a session
    turns_at_a_time = 17  # an answer takes a quorum, and a loop many turns

    @pytest.fixture
    def url(self, cluster: Cluster[Consul], tenant: str, mended: Callable[[Cluster[Consul]], None]) -> str:
        mended(cluster)
        return below(tenant)


def test_a_tenant_may_touch_nothing_of_a_sibling(cluster: Cluster[Consul], tenant: str) -> None:
    """As one who knows the name of everything."""
    member = cluster.members[0]
    token = tenant.partition("://:")[2].partition("@")[0]
    ask_consul(member, ROOT, "/v1/kv/sibling/locks/x", "theirs")
    ask_consul(member, ROOT, "/v1/catalog/register", {"Node": "tenant-2", "Address": "127.0.0.1"})
    for node in (member.folder.name, "tenant-2"):
        session = ask_consul(member, ROOT, "/v1/session/create", {"Node": node, "NodeChecks": []})["ID"]
        assert ask_consul(member, token, f"/v1/session/destroy/{session}") == 403
        assert ask_consul(member, token, "/v1/session/create", {"Node": node, "NodeChecks": []}) == 403
        assert ask_consul(member, token, f"/v1/kv/sibling/locks/x?acquire={session}", "mine") == 403
    for path, method in (
        ("/v1/kv/sibling/locks/x", "GET"),
        ("/v1/kv/sibling/locks/x", "PUT"),
        ("/v1/kv/sibling/locks/x", "DELETE"),
        ("/v1/kv/tenant2/x", "PUT"),
        ("/v1/acl/tokens", "GET"),
        ("/v1/agent/leave", "PUT"),
    ):
        assert ask_consul(member, token, path, method=method) in (403, 404), (path, method)


class TestConsulWithOneServerDown(Exclusion, Order, Tokens, Claims, Semaphores):
    """What is about safety and order, in asyncio. (How threads pass over a server is in tests/stores/consul/test_faults.py.)"""

    @pytest.fixture
    def url(self, tenant: str, crippled: Cluster[Consul]) -> str:
        return below(tenant)

    @pytest.fixture
    def world(self, url: str) -> Iterator[World]:
        stage = World(url, "asyncio", TestConsul.ttl_short, TestConsul.slack)
        yield stage
        stage.end()
