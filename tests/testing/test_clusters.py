"""Clusters of real servers: they elect, fail over, and are complete when they have started."""

from __future__ import annotations

import pytest

from holdfast.testing import servers
from holdfast.testing.servers import process, wire
from holdfast.testing.servers.base import ServerError
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server


@pytest.mark.parametrize("kind", ["etcd", "zookeeper", "consul"])
def test_a_quorum_elects_another_leader_takes_the_first_back_and_is_mended_whatever_was_done_to_it(kind: str) -> None:
    with servers.cluster(kind, 3) as cluster:
        first = cluster.leader()
        first.kill()
        second = cluster.leader()
        assert second is not first
        first.restart()  # returns when it answers as a member
        first.kill()
        second.pause()
        cluster.mend()
        assert cluster.whole()
        assert cluster.hosts.count(":") == 3
        assert cluster.url == f"{kind}://{cluster.hosts}"
        families = [pid for member in cluster.members for pid in process.family(member.pid)]
    assert not any(process.running(pid) for pid in families)


def test_a_cluster_that_does_not_come_to_itself_is_restarted_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.cluster("redis", 3) as cluster:
        broken = {member.pid for member in cluster.members}
        monkeypatch.setattr(cluster, "whole", lambda: broken.isdisjoint(member.pid for member in cluster.members))
        with pytest.warns(UserWarning, match="a server was restarted: waited .* for redis at .* to take writes"):
            cluster.mend(patience=0)
        assert all(member.writes() for member in cluster.members)


def test_sentinels_promote_a_replica_that_has_the_data() -> None:
    with servers.cluster("redis-sentinel", 3) as group:
        master = group.leader()
        assert master is group.members[0]
        master.execute("SET", "lock", "held")
        assert master.execute("WAIT", 2, 5000, timeout=10) == 2
        master.kill()
        promoted = group.leader()
        assert promoted is not master
        assert promoted.execute("GET", "lock") == b"held"
        assert all(f":{sentinel.port}" in group.url for sentinel in group.sentinels)
        promoted.kill()  # for less time than Sentinels take to see it: nobody else is promoted
        promoted.restart()
        assert _says_master(promoted), "a master that is restarted knows that it is one, or nobody would be for 20 s"


def test_sentinels_that_name_a_replica_are_not_whole() -> None:
    with servers.cluster("redis-sentinel", 3) as group:
        assert group.whole()
        group.leader().execute("REPLICAOF", *map(str, group.members[1].address))
        assert not group.whole()


def _says_master(member: Redis) -> bool:
    role = member.execute("ROLE")
    assert isinstance(role, list)
    return role[0] == b"master"


def test_every_slot_of_a_redis_cluster_has_its_master() -> None:
    with servers.cluster("redis-cluster", 3) as cluster:
        for key in ("a", "b", "c", "d"):
            replies = sorted(set_or_moved(member, key) for member in cluster.members)
            assert replies == ["MOVED", "MOVED", "OK"]
        cluster.members[0].kill()
        cluster.members[1].pause()
        cluster.mend()
        assert cluster.whole()
        assert cluster.url.startswith("redis+cluster://")


def test_five_nodes_know_nothing_of_each_other() -> None:
    with servers.cluster("redis", 5) as cluster:
        cluster.members[0].execute("SET", "lock", "held")
        assert [member.execute("GET", "lock") for member in cluster.members[1:]] == [None] * 4
        assert len(set(cluster.addresses)) == 5
        with pytest.raises(ServerError, match="no one leader"):
            cluster.leader()


def set_or_moved(member: Redis, key: str) -> str:
    """OK, or the first word of the refusal."""
    try:
        return "OK" if member.execute("SET", key, "held") == b"OK" else "?"
    except wire.Refused as refusal:
        return str(refusal).split()[0]
