"""The server's clock jumps. A preloaded shim shifts it, live; it is built with the C compiler, where there is one."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
Connect = Callable[[str], Locks]


@pytest.fixture
def jumping(tmp_path: Path) -> Iterator[tuple[Redis, Callable[[int], None]]]:
    shim, offset = tmp_path / "clock.so", tmp_path / "offset"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    offset.write_text("0")
    environ = {"LD_PRELOAD": str(shim), "CLOCK_OFFSET": str(offset)}
    with servers.start("redis", "--appendonly", "no", environ=environ) as server:

        def jump(seconds: int) -> None:
            offset.write_text(str(seconds))
            deadline = time.monotonic() + 5
            while abs(_now(server) - time.time() - seconds) > 5:
                assert time.monotonic() < deadline

        yield server, jump


def _now(server: Redis) -> int:
    reply = server.execute("TIME")
    assert isinstance(reply, list)
    assert isinstance(reply[0], bytes)
    return int(reply[0])


def test_5_a_clock_set_forward_ends_leases_early_and_tokens_rise(
    jumping: tuple[Redis, Callable[[int], None]], connect: Connect
) -> None:
    server, jump = jumping
    one, two = connect(server.url), connect(server.url)
    early = one.lock("x", ttl=30).acquire()
    jump(60)
    late = two.lock("x", timeout=5).acquire()
    assert late.token > early.token
    assert early.release() is False
    assert late.release()


@pytest.mark.parametrize("crowded", [False, True])
def test_6_a_clock_set_back_delays_by_a_ttl_at_most_and_tokens_rise(
    jumping: tuple[Redis, Callable[[int], None]], connect: Connect, crowded: bool
) -> None:
    server, jump = jumping
    locks = connect(server.url)
    capacity = 2 if crowded else 1
    dead = [locks.semaphore("x", capacity, ttl=1, renew=False).acquire() for _ in range(capacity)]
    jump(-3600)
    started = time.monotonic()
    lease = locks.semaphore("x", capacity, ttl=1).acquire(timeout=10)
    assert time.monotonic() - started < 4
    assert lease.token > max(one.token for one in dead)
    again = locks.semaphore("y", 1).acquire()
    assert again.release()
