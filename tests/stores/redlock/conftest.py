"""Real nodes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis


@pytest.fixture
def three() -> Iterator[list[Redis]]:
    started = [servers.start("redis", "--appendonly", "no") for _ in range(3)]
    yield started
    for node in started:
        node.stop()
