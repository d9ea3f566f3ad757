"""A real Redis for the frameworks, emptied for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    with servers.start("redis", "--appendonly", "no") as server:
        yield server


@pytest.fixture
def redis(shared_redis: Redis) -> Redis:
    shared_redis.execute("FLUSHALL")
    return shared_redis
