"""Valkey and Redis 8 pass what their scripts, their tokens and their bells could make a difference to."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite, World
from holdfast.testing.conformance.claims import Claims
from holdfast.testing.conformance.eviction import Evictions
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.looking import Looking
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.semaphores import Semaphores
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.servers import RedisKind
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server

KINDS: tuple[RedisKind, ...] = ("valkey", "redis8")


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Redis]:
    kind: RedisKind = request.param
    with servers.start(kind, "--appendonly", "no") as started:  # raises, and says what to install, if it is missing
        yield started


class TestKin(Exclusion, Order, Tokens, Claims, Semaphores, Evictions, Looking):
    @pytest.fixture
    def url(self, server: Redis) -> str:
        return f"{server.url}?prefix={uuid4().hex[:8]}"

    @pytest.fixture(params=["threads", "asyncio"])
    def world(self, request: pytest.FixtureRequest, url: str) -> Iterator[World]:
        stage = World(url, request.param, Suite.ttl_short, Suite.slack)
        yield stage
        stage.end()


def test_it_is_what_it_says(server: Redis) -> None:
    """So that a test of Valkey does not run on a Redis that happens to be called so."""
    info = server.execute("INFO", "server")
    assert isinstance(info, bytes)
    assert b"valkey_version:" in info or b"redis_version:8." in info
