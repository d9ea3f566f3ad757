"""etcd, ZooKeeper and Consul, set up well and badly."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator

import pytest

from holdfast.doctor import etcd as etcd_ward
from holdfast.testing import servers
from holdfast.testing.servers import wire
from holdfast.testing.servers.consul import Consul
from holdfast.testing.servers.etcd import Etcd
from holdfast.testing.servers.zookeeper import ZooKeeper

from .looking import all_looked_at, levels, one, said, whole

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    with servers.start("etcd") as server:
        yield server


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with servers.start("zookeeper", "maxSessionTimeout=4000") as server:
        yield server


@pytest.fixture(scope="module")
def consul() -> Iterator[Consul]:
    with servers.start("consul") as server:
        yield server


def test_one_etcd_is_well_but_alone(etcd: Etcd) -> None:
    told = whole(etcd.url)
    all_looked_at(told)
    assert "one member only" in said(told.pop("quorum"), "warning")
    assert {level for found in told.values() for level in levels(found)} == {"ok"}
    assert "etcd 3" in told["version"][0].text


def test_locks_in_etcd_that_no_lease_ends_are_a_problem(etcd: Etcd) -> None:
    key = base64.b64encode(b"holdfast/@in/stuck\0w" + b"0" * 32).decode()
    wire.http_json(etcd.address, "POST", "/v3/kv/put", {"key": key, "value": base64.b64encode(b"{}").decode()})
    assert "1 locks under holdfast/ hang on no lease" in said(one(etcd.url, "keys"), "problem")
    wire.http_json(etcd.address, "POST", "/v3/kv/deleterange", {"key": key})
    assert levels(one(etcd.url, "keys")) == ["ok"]


def test_an_etcd_that_is_full_is_a_problem(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_ward, "_FULL", 0.0)
    assert "when it is full, nothing is granted" in said(one(etcd.url, "persistence"), "warning")
    member = wire.http_json(etcd.address, "POST", "/v3/maintenance/status", {})["header"]["member_id"]
    alarm = {"memberID": member, "alarm": "NOSPACE"}
    wire.http_json(etcd.address, "POST", "/v3/maintenance/alarm", {"action": "ACTIVATE", **alarm})
    try:
        assert "NOSPACE" in said(one(etcd.url, "persistence"), "problem")
    finally:
        wire.http_json(etcd.address, "POST", "/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})


def test_an_etcd_without_logins_is_a_problem_where_others_reach_it(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(one(etcd.url, "tls and login")) == ["ok"]
    monkeypatch.setattr(etcd_ward, "is_local", lambda _: False)
    assert "asks nobody for a login" in said(one(etcd.url, "tls and login"), "problem")


def test_a_cluster_of_etcd_that_misses_a_member_or_is_named_in_part_is_told(etcd: Etcd) -> None:
    with servers.cluster("etcd", 3) as cluster:
        assert levels(one(cluster.url, "quorum")) == ["ok"]
        assert "the URL names 1" in said(one(cluster.members[0].url, "quorum"), "warning")
        mixed = f"etcd://127.0.0.1:{cluster.members[0].port},127.0.0.1:{etcd.port},127.0.0.1:{cluster.members[1].port}"
        assert "different clusters" in said(one(mixed, "quorum"), "problem")
        cluster.members[2].kill()
        assert "does not answer" in said(one(cluster.url, "quorum"), "warning")


def test_one_zookeeper_is_well_but_alone_and_cuts_leases_short(zookeeper: ZooKeeper) -> None:
    told = whole(zookeeper.url)
    all_looked_at(told)
    assert "one member only" in said(told["quorum"], "warning")
    assert "cut down to that" in said(told["session ttl"], "warning")
    assert levels(told["clock"]) == ["ok"]
    assert "everybody who reaches it may write /holdfast" in said(told["tls and login"], "ok")


def test_a_zookeeper_that_stands_alone_is_no_member(zookeeper: ZooKeeper) -> None:
    url = f"zookeeper://127.0.0.1:{zookeeper.port},localhost:{zookeeper.port},127.0.0.1:1"
    found = one(url, "quorum")
    assert "stands alone" in said(found, "problem")
    assert "127.0.0.1:1 does not answer" in said(found, "warning")


def test_nodes_of_a_user_are_for_that_user(zookeeper: ZooKeeper) -> None:
    url = f"zookeeper://me:secret@127.0.0.1:{zookeeper.port}/mine"
    assert "is for digest users only" in said(whole(url)["tls and login"], "ok")


def test_one_consul_is_well_but_alone(consul: Consul) -> None:
    told = whole(consul.url)
    all_looked_at(told)
    assert "one server only" in said(told.pop("quorum"), "warning")
    assert {level for found in told.values() for level in levels(found)} == {"ok"}
    assert "Consul 1" in told["version"][0].text
    assert "sessions of processes that use holdfast" in told["sessions"][0].text


def test_a_ttl_that_the_agents_refuse_is_a_problem(consul: Consul) -> None:
    assert "write ?min_ttl=10" in said(one(f"{consul.url}?min_ttl=1", "session ttl"), "problem")


ROOT = "11111111-2222-3333-4444-555555555555"
ACL = f'acl {{ enabled = true, default_policy = "deny", tokens {{ master = "{ROOT}", agent = "{ROOT}" }} }}'


class Guarded(Consul):
    """Whoever has no token may not look; nor may the probe of the tests."""

    def answers(self) -> bool:
        command = ["curl", "-sf", "-H", f"X-Consul-Token: {ROOT}", f"http://127.0.0.1:{self.port}/v1/agent/self"]
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0


def test_a_consul_that_lets_nobody_look_is_told() -> None:
    with Guarded("consul", ("-hcl", ACL)) as server:
        server.start()
        assert "ACLs are on" in said(one(f"consul://:{ROOT}@127.0.0.1:{server.port}", "tls and login"), "ok")
        assert "could not look: GET /v1/agent/self: 403" in said(one(server.url, "version"), "warning")
