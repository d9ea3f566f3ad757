"""Real servers for tests, on loopback ports and in temporary folders of their own.

    with servers.start("redis") as redis:
        ...redis.url...; redis.pause(); redis.resume(); redis.kill(); redis.restart()
    with servers.cluster("etcd", 3) as cluster:
        ...cluster.url...; cluster.leader().kill(); cluster.members[0].pause()

`python -m holdfast.testing.servers install redis etcd` brings what they need. Importing this package is cheap: a kind's
own module is imported when it is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from holdfast.testing.servers.needs import KINDS, missing, needs

if TYPE_CHECKING:
    from holdfast.testing.servers.base import Server
    from holdfast.testing.servers.clusters import Cluster
    from holdfast.testing.servers.consul import Consul
    from holdfast.testing.servers.etcd import Etcd
    from holdfast.testing.servers.mariadb import MariaDB
    from holdfast.testing.servers.postgresql import PgBouncer, PostgreSQL
    from holdfast.testing.servers.prometheus import Prometheus
    from holdfast.testing.servers.redis import Redis, RedisCluster, SentinelGroup
    from holdfast.testing.servers.seaweedfs import SeaweedFS
    from holdfast.testing.servers.zookeeper import ZooKeeper

__all__ = ["start", "cluster", "needs", "missing", "KINDS"]

ATTEMPTS = 3
SINGLE = {
    "redis": "redis.Redis",
    "redis8": "redis.Redis",
    "valkey": "redis.Redis",
    "etcd": "etcd.Etcd",
    "zookeeper": "zookeeper.ZooKeeper",
    "consul": "consul.Consul",
    "postgresql": "postgresql.PostgreSQL",
    "pgbouncer": "postgresql.PgBouncer",
    "mariadb": "mariadb.MariaDB",
    # The newest that can be had.
    "etcd-new": "etcd.Etcd",
    "zookeeper-new": "zookeeper.ZooKeeper",
    "postgresql-new": "postgresql.UnpackedPostgreSQL",
    "mysql": "mysql.MySQL",
}
# Started and stopped only: for fenced storage and for metrics, not for locks. SeaweedFS takes 15 s to end in good order.
STORAGE = {"seaweedfs": "seaweedfs.SeaweedFS", "prometheus": "prometheus.Prometheus"}
GROUPS = {"redis-sentinel": "redis.SentinelGroup", "redis-cluster": "redis.RedisCluster"}

RedisKind = Literal["redis", "redis8", "valkey"]
Environ = Mapping[str, str] | None


class Startable(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


Started = TypeVar("Started", bound=Startable)


@overload
def start(kind: RedisKind, *extra: str, environ: Environ = None) -> Redis: ...
@overload
def start(kind: Literal["etcd"], *extra: str, environ: Environ = None) -> Etcd: ...
@overload
def start(kind: Literal["zookeeper"], *extra: str, environ: Environ = None) -> ZooKeeper: ...
@overload
def start(kind: Literal["consul"], *extra: str, environ: Environ = None) -> Consul: ...
@overload
def start(kind: Literal["postgresql"], *extra: str, environ: Environ = None) -> PostgreSQL: ...
@overload
def start(kind: Literal["pgbouncer"], *extra: str, environ: Environ = None) -> PgBouncer: ...
@overload
def start(kind: Literal["mariadb"], *extra: str, environ: Environ = None) -> MariaDB: ...
@overload
def start(kind: Literal["seaweedfs"], *extra: str, environ: Environ = None) -> SeaweedFS: ...
@overload
def start(kind: Literal["prometheus"], *extra: str, environ: Environ = None) -> Prometheus: ...
@overload
def start(kind: str, *extra: str, environ: Environ = None) -> Server: ...


def start(kind: str, *extra: str, environ: Environ = None) -> Any:
    """A running server of this kind. Stop it with stop(), or by leaving a `with`.

    `extra` are further command-line arguments of the server itself (ZooKeeper, PgBouncer: lines of its configuration);
    `environ`, variables such as LD_PRELOAD.
    """
    needs(kind)
    if kind in GROUPS:
        raise ValueError(f"{kind} is never a single server: start it with cluster({kind!r}, 3)")
    kinds = {**SINGLE, **STORAGE}
    if kind not in kinds:
        raise ValueError(f"{kind} is no server, and is not started here")
    build = _load(kinds[kind])
    return first_that_starts(lambda: build(kind, extra, environ))


@overload
def cluster(kind: RedisKind, size: int = 3, *extra: str) -> Cluster[Redis]: ...
@overload
def cluster(kind: Literal["redis-sentinel"], size: int = 3, *extra: str) -> SentinelGroup: ...
@overload
def cluster(kind: Literal["redis-cluster"], size: int = 3, *extra: str) -> RedisCluster: ...
@overload
def cluster(kind: Literal["etcd"], size: int = 3, *extra: str) -> Cluster[Etcd]: ...
@overload
def cluster(kind: Literal["zookeeper"], size: int = 3, *extra: str) -> Cluster[ZooKeeper]: ...
@overload
def cluster(kind: Literal["consul"], size: int = 3, *extra: str) -> Cluster[Consul]: ...
@overload
def cluster(kind: str, size: int = 3, *extra: str) -> Cluster[Any]: ...


def cluster(kind: str, size: int = 3, *extra: str) -> Cluster[Any]:
    """A running cluster. Of redis, redis8, valkey and the SQL kinds: independent nodes, as Redlock wants them."""
    needs(kind)
    if kind in GROUPS:
        build = _load(GROUPS[kind])
        return first_that_starts(lambda: build(size, extra))
    return first_that_starts(lambda: _peers(kind, size, extra))


def _peers(kind: str, size: int, extra: tuple[str, ...]) -> Cluster[Any]:
    build = _load(SINGLE[kind])
    members = [build(kind, extra) for _ in range(size)]
    for member in members:
        member.peers = members
    group: Cluster[Any] = _load("clusters.Cluster")(kind, members)
    return group


def _load(name: str) -> Any:
    module, _, symbol = name.partition(".")
    return getattr(import_module(f"{__name__}.{module}"), symbol)


def first_that_starts(build: Callable[[], Started]) -> Started:
    """Build and start; build anew, on other ports, if somebody took a port in spite of its reservation."""
    address_in_use = _load("base.AddressInUse")
    attempt = 1
    while True:
        candidate = build()
        try:
            candidate.start()
            return candidate
        except BaseException as error:
            candidate.stop()
            if not isinstance(error, address_in_use) or attempt == ATTEMPTS:
                raise
            attempt += 1
