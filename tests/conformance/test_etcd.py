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
from holdfast.testing.servers import wire
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

from ..doctor.looking import levels, one, said
from ..tenants import PASSWORD, ask_etcd, guard_etcd, on_etcd, text64

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


def test_a_tenant_may_touch_nothing_of_a_sibling(etcd: Cluster[Etcd]) -> None:
    member = etcd.members[0]
    login = ask_etcd(member, "/v3/auth/authenticate", name="tenant", password=PASSWORD)["token"]
    root = ask_etcd(member, "/v3/auth/authenticate", name="root", password=PASSWORD)["token"]
    ask_etcd(member, "/v3/kv/put", root, key=text64(b"sibling/x"), value="")
    for path, body in (
        ("/v3/kv/range", {"key": text64(b"sibling/x")}),
        ("/v3/kv/range", {"key": text64(b"\0"), "range_end": text64(b"\0")}),
        ("/v3/kv/put", {"key": text64(b"sibling/y"), "value": ""}),
        ("/v3/kv/put", {"key": text64(b"tenant2/x"), "value": ""}),
        ("/v3/kv/deleterange", {"key": text64(b"sibling/x")}),
        ("/v3/auth/user/add", {"name": "mine", "password": "mine"}),
        ("/v3/auth/role/grant", {"name": "holdfast-tenant", "perm": {"key": text64(b"sibling/x")}}),
        ("/v3/auth/disable", {}),
        ("/v3/maintenance/snapshot", {}),
    ):
        with pytest.raises(wire.Refused, match="permission denied"):
            ask_etcd(member, path, login, **body)
    with pytest.raises(wire.Refused, match="user name is empty"):
        ask_etcd(member, "/v3/kv/range", key=text64(b"sibling/x"))
    assert etcd.whole()  # what mends it between tests needs no login


def test_the_doctor_tells_root_from_a_tenant(etcd: Cluster[Etcd]) -> None:
    root = tenant(etcd).replace("//tenant:", "//root:")
    assert "root may do everything" in said(one(root, "tls and login"), "warning")
    assert levels(one(tenant(etcd), "tls and login")) == ["ok", "ok"]


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
