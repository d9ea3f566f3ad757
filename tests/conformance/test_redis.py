"""A real Redis passes the suite."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with servers.start("redis", "--appendonly", "no") as server:
        yield server


class TestRedis(Suite):
    @pytest.fixture
    def url(self, redis: Redis) -> str:
        return f"{redis.url}?prefix={uuid4().hex[:8]}"
