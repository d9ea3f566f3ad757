"""A Redlock of three real nodes passes the suite, for a user who has what `holdfast migrate --acl` prints and nothing besides."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import redis as client
from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.redis import Redis

from ..tenants import PASSWORD, on_redis

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Redis]]:
    started = [servers.start("redis", "--appendonly", "no") for _ in range(3)]
    yield started
    for server in started:
        server.stop()


class TestRedlock(Suite):
    doubts = False  # one connection to each node: one that is silent is one node of several, and others are enough
    majority = True
    turns_at_a_time = 3  # every conversation is three, and so is every look at what is left
    lines_at_a_time = 3
    ttl_short = 1.0  # a third of it is left for a renewal on a busy machine, after the node timeout

    @pytest.fixture
    def url(self, nodes: list[Redis]) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        name = uuid4().hex[:8]
        return on_redis(nodes, f"redlock://{name}:{PASSWORD}@{hosts}?prefix={name}")


@pytest.mark.parametrize(
    "words",
    [
        ("GET", "b:redlock:{x}"),
        ("SET", "b:redlock:{x}", "1"),
        ("GET", "t:{x}"),
        ("SCRIPT", "FLUSH"),
        ("CLIENT", "KILL", "TYPE", "normal"),
        ("PUBLISH", "t:{x}", "x"),
    ],
    ids=" ".join,
)
def test_a_tenant_may_touch_nothing_of_a_sibling(nodes: list[Redis], words: tuple[str, ...]) -> None:
    on_redis(nodes[:1], f"redlock://t@127.0.0.1:{nodes[0].port}?prefix=t")
    with (
        client.Redis(*nodes[0].address, username="t", password=PASSWORD) as own,
        pytest.raises(client.exceptions.NoPermissionError),
    ):
        own.execute_command(*words)
