"""A real Redis for the tests of this folder, fresh keys for each, and both surfaces through one pair of hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

Connect = Callable[..., Locks]


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    with servers.start("redis", "--appendonly", "no") as server:
        yield server


@pytest.fixture
def redis(shared_redis: Redis) -> Redis:
    shared_redis.execute("FLUSHALL")
    return shared_redis


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """For tests that kill it, or set it up in another way."""
    with servers.start("redis") as server:
        yield server


@pytest.fixture
def proxy(redis: Redis) -> Iterator[Proxy]:
    with Proxy(redis.address) as between:
        yield between


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`holdfast.connect`, closed at the end of the test."""
    opened: list[Locks] = []

    def open_locks(where: str | tuple[str, int], options: str = "", label: str = "") -> Locks:
        url = where if isinstance(where, str) else f"redis://{where[0]}:{where[1]}"
        opened.append(holdfast.connect(url + options, label=label))
        return opened[-1]

    yield open_locks
    for locks in opened:
        locks.close()
