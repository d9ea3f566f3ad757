"""The proxy before a real server: what the proxy does to bytes is what a client of that server suffers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers import wire
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server

SECONDS = 10.0


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with servers.start("redis") as redis:
        yield redis


@pytest.fixture
def proxy(redis: Redis) -> Iterator[Proxy]:
    redis.execute("FLUSHALL")
    with Proxy(redis.address) as proxy:
        yield proxy


def test_a_command_takes_effect_although_its_reply_is_lost(redis: Redis, proxy: Proxy) -> None:
    proxy.to_client.drop(chunks=1)
    with pytest.raises(TimeoutError):
        wire.redis(proxy.address, "INCR", "token", timeout=0.2)
    proxy.to_client.wait_for_caught(1)
    assert wire.redis(proxy.address, "INCR", "token", timeout=SECONDS) == 2


def test_a_command_has_no_effect_when_it_is_lost(redis: Redis, proxy: Proxy) -> None:
    proxy.to_server.drop(when=lambda data: b"INCR" in data)
    with pytest.raises(TimeoutError):
        wire.redis(proxy.address, "INCR", "token", timeout=0.2)
    assert wire.redis(proxy.address, "GET", "token", timeout=SECONDS) is None


def test_a_command_may_take_effect_after_its_client_has_given_up(redis: Redis, proxy: Proxy) -> None:
    proxy.to_server.hold(chunks=1)
    with pytest.raises(TimeoutError):
        wire.redis(proxy.address, "INCR", "token", timeout=0.2)
    proxy.to_server.wait_for_caught(1)
    assert redis.execute("GET", "token") is None
    proxy.to_server.flow()
    proxy.wait_until(lambda: proxy.connections == 0)
    assert redis.execute("GET", "token") == b"1"


def test_a_duplicated_command_takes_effect_twice(redis: Redis, proxy: Proxy) -> None:
    proxy.to_server.duplicate(chunks=1)
    assert wire.redis(proxy.address, "INCR", "token", timeout=SECONDS) == 1
    proxy.wait_until(lambda: proxy.connections == 0)
    assert redis.execute("GET", "token") == b"2"


def test_a_client_is_cut_off_while_its_reply_is_held(redis: Redis, proxy: Proxy) -> None:
    proxy.to_client.hold()
    errors: list[OSError] = []

    def client() -> None:
        try:
            wire.redis(proxy.address, "INCR", "token", timeout=SECONDS)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=client)
    thread.start()
    proxy.to_client.wait_for_caught(1)
    proxy.cut()
    thread.join(SECONDS)
    assert isinstance(errors[0], ConnectionError)
    assert redis.execute("GET", "token") == b"1"
