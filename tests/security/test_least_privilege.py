"""What `holdfast migrate --acl` grants is enough for everything a lock does, and for nothing of a neighbour's."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Iterator, Sequence

import psycopg
import pymysql
import pytest

import holdfast
from holdfast import events
from holdfast.cli import grants
from holdfast.stores.mysql.definitions import schema as mysql_schema
from holdfast.stores.mysql.url import parse as mysql_url
from holdfast.stores.postgresql import schema as postgresql_schema
from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
PATIENCE = 20.0


def everything(url: str) -> None:
    """Claim, wait, renew, hand over, look, list, watch, put out."""
    with holdfast.connect(url) as a, holdfast.connect(url) as b:
        lease = a.lock("x", ttl=1).acquire(timeout=PATIENCE)
        renewed, got = threading.Event(), list[holdfast.Lease]()
        a.subscribe(lambda _: renewed.set(), [events.RENEWED])
        waiting = threading.Thread(target=lambda: got.append(b.lock("x").acquire(timeout=PATIENCE)))
        waiting.start()
        assert renewed.wait(PATIENCE)
        give_up = time.monotonic() + PATIENCE
        if a.traits.fair:
            while not a.inspect("x").waiters and time.monotonic() < give_up:
                time.sleep(0.02)
        assert a.names() == ["x"]
        lease.release()
        waiting.join(PATIENCE)
        assert [one.token for one in a.inspect("x").holders] == [got[0].token]
        assert a.force_release("x", token=got[0].token)
        assert a.inspect("x").eviction is not None
        with a.rwlock("r", ttl=1).read(), b.rwlock("r", ttl=1).read():
            renewed.clear()
            assert renewed.wait(PATIENCE)
        if a.traits.bell:
            with a.election("e", address="here").lead(timeout=PATIENCE):
                leader = next(iter(b.election("e").watch(timeout=PATIENCE)))
                assert leader is not None
                assert leader.address == "here"


def rules(url: str, which: int = 0) -> list[str]:
    """The words of the ACL that is printed for the URL, with a password."""
    lines = [line for line in (grants.of(url) or "").splitlines() if line.startswith("ACL ")]
    return [word.replace(">PASSWORD", ">pw") for word in shlex.split(lines[which])]


def give(nodes: Sequence[Redis], words: list[str]) -> None:
    for node in nodes:
        assert node.execute(*words) == b"OK"


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with servers.start("redis") as server:
        yield server


def test_on_redis(redis: Redis) -> None:
    url = f"redis://tenant:pw@{redis.url.removeprefix('redis://')}?prefix=t"
    give([redis], rules(url))
    everything(url)


def test_on_another_database_of_redis(redis: Redis) -> None:
    url = f"redis://other:pw@{redis.url.removeprefix('redis://').rstrip('/')}?prefix=t&db=3"
    give([redis], rules(url))
    everything(url)


@pytest.mark.parametrize(
    "words",
    [
        ("GET", "b:{x}"),
        ("GET", "t:b:{x}"),
        ("DEL", "t:b:{x}"),
        ("PUBLISH", "b:bell:1", "x"),
        ("PUBLISH", "t:b:bell:1", "x"),
        ("SUBSCRIBE", "b:{x}"),
        ("CLIENT", "LIST"),
        ("CLIENT", "KILL", "TYPE", "normal"),
        ("CLIENT", "PAUSE", "1", "ALL"),
        ("SCRIPT", "FLUSH"),
        ("FUNCTION", "FLUSH"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("KEYS", "*"),
        ("EVAL", "return 1", "0"),
        ("ACL", "LIST"),
        ("MONITOR",),
        ("SELECT", "1"),
    ],
    ids=" ".join,
)
def test_a_tenant_of_redis_may_touch_nothing_of_a_sibling(redis: Redis, words: tuple[str, ...]) -> None:
    import redis as client

    give([redis], rules(f"redis://tenant@{redis.url.removeprefix('redis://')}?prefix=t"))
    host, port = redis.address
    with (
        client.Redis(host, port, username="tenant", password="pw") as tenant,
        pytest.raises(client.exceptions.NoPermissionError),
    ):
        tenant.execute_command(*words)


def test_under_sentinels() -> None:
    with servers.cluster("redis-sentinel", 3) as group:
        hosts = group.url.partition("://")[2].partition("?")[0]
        url = f"redis+sentinel://tenant:pw@{hosts}?prefix=t&sentinel_username=asks&sentinel_password=pw"
        give(group.members, rules(url))
        give(group.sentinels, rules(url, 1))
        everything(url)


def test_in_a_cluster_of_redis() -> None:
    with servers.cluster("redis-cluster", 3) as group:
        url = f"redis+cluster://tenant:pw@{group.url.partition('://')[2].partition('?')[0]}?prefix=t"
        give(group.members, rules(url))
        everything(url)


def test_with_redlock() -> None:
    with servers.cluster("redis", 3) as group:
        url = (
            f"redlock://tenant:pw@{','.join(f'{node.address[0]}:{node.address[1]}' for node in group.members)}?prefix=t"
        )
        give(group.members, rules(url))
        everything(url)


@pytest.mark.parametrize("mode", ["lease", "session"])
def test_on_postgresql(mode: str) -> None:
    with servers.start("postgresql") as server, psycopg.connect(server.url, autocommit=True) as admin:
        host, port = server.address
        url = f"postgresql://tenant@{host}:{port}/{admin.info.dbname}?mode={mode}&schema=mine&create=no"
        admin.execute("CREATE ROLE tenant LOGIN")
        admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        admin.execute("CREATE SCHEMA sibling")
        admin.execute("CREATE TABLE sibling.locks (name text)")
        admin.execute(postgresql_schema(url))
        admin.execute(grants.of(url) or "")
        if mode == "lease":
            everything(url)
        else:
            with holdfast.connect(url) as locks, locks.lock("x", timeout=PATIENCE) as lease:
                assert [one.token for one in locks.inspect("x").holders] == [lease.token]
        with psycopg.connect(f"postgresql://tenant@{host}:{port}/{admin.info.dbname}", autocommit=True) as tenant:
            for forbidden in ("SELECT * FROM sibling.locks", "DROP TABLE mine.locks", "CREATE TABLE mine.x ()"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    tenant.execute(forbidden)


def test_on_mysql() -> None:
    with servers.start("mariadb") as server:
        host, port = server.address
        root = mysql_url(server.url)
        url = f"mysql://tenant:pw@{host}:{port}/{root.database}"
        with (
            pymysql.connect(
                host=host,
                port=port,
                user=root.user,
                password=root.password.plain,
                database=root.database,
                autocommit=True,
            ) as admin,
            admin.cursor() as cursor,
        ):
            delimiter, statement = ";", ""
            for line in mysql_schema(url).splitlines():
                if line.startswith("DELIMITER "):
                    delimiter = line.split()[1]
                    continue
                statement += line + "\n"
                if statement.rstrip().endswith(delimiter):
                    cursor.execute(statement.rstrip().removesuffix(delimiter))
                    statement = ""
            cursor.execute("CREATE USER 'tenant'@'%' IDENTIFIED BY 'pw'")
            for line in (grants.of(url) or "").splitlines():
                if line.startswith("GRANT"):
                    cursor.execute(line)
        everything(url)
        with pymysql.connect(host=host, port=port, user="tenant", password="pw", database=root.database) as tenant:
            for forbidden in ("SELECT * FROM holdfast_claims", "DELETE FROM holdfast_claims", "CREATE TABLE x (i INT)"):
                with pytest.raises(pymysql.err.MySQLError), tenant.cursor() as cursor:
                    cursor.execute(forbidden)
