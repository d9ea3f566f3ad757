"""How long a real Consul keeps a session. The simulated one stands on it: `ConsulCluster.memory_counts`."""

from __future__ import annotations

import time

import pytest

from holdfast.testing.servers import wire
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.consul import Consul

pytestmark = pytest.mark.server

TTL = 0.4  # seconds: two of them are over before members that have lost their leader elect another
PATIENCE = 60.0


def opened(member: Consul) -> str:
    wish = {"TTL": f"{TTL}s", "LockDelay": "0s", "Behavior": "delete", "Checks": [], "NodeChecks": []}
    return str(wire.http_json(member.address, "PUT", "/v1/session/create", wish)["ID"])


def is_there(member: Consul, session: str) -> bool:
    return bool(wire.http_json(member.address, "GET", f"/v1/session/info/{session}?stale"))


def leader_of(member: Consul) -> str:
    return str(wire.http_json(member.address, "GET", "/v1/status/leader"))


def test_a_session_that_nobody_renews_lives_for_two_of_its_ttls(cluster: Cluster[Consul]) -> None:
    leader = cluster.leader()
    asked = time.monotonic()
    session = opened(leader)
    while is_there(leader, session):
        assert time.monotonic() < asked + PATIENCE
    assert time.monotonic() - asked >= 2 * TTL


def test_a_new_leader_gives_every_session_two_ttls_from_its_own_beginning(cluster: Cluster[Consul]) -> None:
    """So a deposed one, who renews in its memory only, cannot promise more than the new one keeps."""
    for _ in range(5):
        seen = _outlives_its_leader(cluster)
        if seen is not None:
            without, gone = seen
            assert gone - without >= 2 * TTL
            return
        cluster.mend()
    pytest.fail("each time it was over too early, or nobody was seen without a leader: nothing is known")


def _outlives_its_leader(cluster: Cluster[Consul]) -> tuple[float, float] | None:
    """When nobody had begun to lead yet, though the time that the old leader gave it was over; and when it was gone."""
    old = cluster.leader()
    others = [member for member in cluster.members if member is not old]
    over = time.monotonic() + 2 * TTL
    session = opened(old)
    while not all(is_there(member, session) for member in others):  # what is committed is told to them a moment later
        if time.monotonic() >= over:
            return None
    old.kill()
    killed = without = time.monotonic()
    while all(is_there(member, session) for member in others):
        asked = time.monotonic()
        assert asked < killed + PATIENCE
        if not any(leader_of(member) for member in others):
            without = asked  # nobody led yet when the first of them was asked
    return (without, time.monotonic()) if killed < over < without else None
