"""A real Redis passes the suite, for a user who has what `holdfast migrate --acl` prints and nothing besides."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import holdfast
import redis as client
from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.redis import Redis

from ..tenants import PASSWORD, on_redis

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with servers.start("redis", "--appendonly", "no") as server:
        yield server


class TestRedis(Suite):
    @pytest.fixture
    def url(self, redis: Redis) -> str:
        return tenant(redis, uuid4().hex[:8])


def tenant(redis: Redis, name: str) -> str:
    """Of this name, with keys of that prefix."""
    return on_redis([redis], f"redis://{name}:{PASSWORD}@127.0.0.1:{redis.port}?prefix={name}")


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
def test_a_tenant_may_touch_nothing_of_a_sibling(redis: Redis, words: tuple[str, ...]) -> None:
    tenant(redis, "t")
    with (
        client.Redis(*redis.address, username="t", password=PASSWORD) as own,
        pytest.raises(client.exceptions.NoPermissionError),
    ):
        own.execute_command(*words)


def test_nor_with_a_script_of_its_own(redis: Redis) -> None:
    """What a script does is held to the same rules, whichever keys it was given."""
    tenant(redis, "t")
    with client.Redis(*redis.address, username="t", password=PASSWORD) as own:
        for body in (
            "return redis.call('GET', 'b:{x}')",
            "return redis.call('FLUSHALL')",
            "return redis.call('PUBLISH', 'b:{x}', '')",
        ):
            script = own.script_load(body)
            with pytest.raises(client.exceptions.ResponseError, match="executing the script can't"):
                own.evalsha(script, 1, "t:{x}")


def test_who_may_not_scan_has_all_but_the_names(redis: Redis) -> None:
    url = tenant(redis, "s")
    redis.execute("ACL", "SETUSER", "s", "-scan")
    with holdfast.connect(url) as locks, locks.lock("x") as lease:
        assert [one.token for one in locks.inspect("x").holders] == [lease.token]
        with pytest.raises(holdfast.Misuse, match="migrate --acl"):
            locks.names()
