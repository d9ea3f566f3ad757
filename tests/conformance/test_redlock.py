"""A Redlock of three real nodes passes the suite."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Redis]]:
    started = [servers.start("redis", "--appendonly", "no") for _ in range(3)]
    yield started
    for server in started:
        server.stop()


class TestRedlock(Suite):
    turns_at_a_time = 3  # every conversation is three, and so is every look at what is left
    lines_at_a_time = 3
    ttl_short = 1.0  # a third of it is left for a renewal on a busy machine, after the node timeout

    @pytest.fixture
    def url(self, nodes: list[Redis]) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        return f"redlock://{hosts}?prefix={uuid4().hex[:8]}"
