"""Clocks jump, the server's and the client's. A preloaded shim shifts them, live; it is built with the C compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.redis import open_store
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.servers import clock
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
Connect = Callable[[str], Locks]


@pytest.fixture
def shim() -> Iterator[Path]:
    with clock.shim() as built:
        yield built


@pytest.fixture
def jumping(shim: Path) -> Iterator[tuple[Redis, Callable[[int], None]]]:
    wall = clock.WallClock(shim)
    with servers.start("redis", "--appendonly", "no", environ=wall.environ) as server:

        def jump(seconds: int) -> None:
            wall.jump(seconds)
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


def test_6_a_clock_set_back_delays_by_a_ttl_at_most_also_beside_somebody_who_renews(
    jumping: tuple[Redis, Callable[[int], None]],
) -> None:
    server, jump = jumping
    store = open_store(server.url, Threads())
    living, dead, waiting = (Claim("x", new_holder(), "somebody", 1.0, 1, 2) for _ in range(3))
    grant = finish(store.claim(living))
    assert isinstance(grant, Grant)
    assert isinstance(finish(store.claim(dead)), Grant)
    jump(-3600)
    assert list(finish(store.renew([grant], 1.0))) == [grant]
    deadline = time.monotonic() + 10
    while not isinstance(finish(store.claim(waiting)), Grant):
        assert time.monotonic() < deadline, "the dead have its unit for an hour"
        assert list(finish(store.renew([grant], 1.0))) == [grant]
    finish(store.close())


def test_6_a_redlock_whose_nodes_were_set_back_delays_by_a_ttl_at_most(shim: Path, connect: Connect) -> None:
    walls = [clock.WallClock(shim) for _ in range(3)]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(servers.start("redis", "--appendonly", "no", environ=one.environ)) for one in walls
        ]
        locks = connect("redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes))
        dead = locks.lock("x", ttl=1, renew=False).acquire()
        for wall in walls:
            wall.jump(-3600)
        lease = locks.lock("x", ttl=5).acquire(timeout=10)
        assert lease.token > dead.token


@pytest.mark.parametrize("crowded", [False, True])
def test_a_token_minted_by_a_clock_that_was_ahead_is_not_forgotten_before_the_clock_has_passed_it(
    jumping: tuple[Redis, Callable[[int], None]], connect: Connect, crowded: bool
) -> None:
    server, jump = jumping
    locks = connect(f"{server.url}?retention=0.5")
    capacity = 2 if crowded else 1

    def use() -> int:
        leases = [locks.semaphore("x", capacity, ttl=1).acquire() for _ in range(capacity)]
        assert all(lease.release() for lease in leases)
        return leases[-1].token

    jump(7200)
    ahead = use()
    jump(0)
    after = use()
    assert after > ahead
    time.sleep(2)  # longer than the ttl and the retention time
    assert use() > after


@pytest.fixture
def apart(shim: Path) -> Iterator[tuple[Redis, Redis]]:
    """Two servers; the clock of the first is two hours ahead."""
    ahead, right = clock.WallClock(shim, "ahead"), clock.WallClock(shim, "right")
    ahead.jump(TWO_HOURS)
    with (
        servers.start("redis", "--appendonly", "no", environ=ahead.environ) as first,
        servers.start("redis", "--appendonly", "no", environ=right.environ) as second,
    ):
        yield first, second


TWO_HOURS = 7200


def _move(source: Redis, target: Redis) -> int:
    """As the slots of a cluster move: the keys, by MIGRATE. Answers the milliseconds that are left of the state's time."""
    keys = [f"hf:{{x}}{part}" for part in ("", ":entries", ":ends", ":line")]
    moved = source.execute("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)
    assert moved == b"OK"
    return _left(target)


def _left(server: Redis) -> int:
    left = server.execute("PTTL", "hf:{x}")
    assert isinstance(left, int)
    return left


@pytest.mark.parametrize("used", ["released", "renewed", "claimed", "asked for", "asked for by many"])
def test_a_token_that_moved_to_a_server_whose_clock_is_behind_is_kept_from_its_next_use_on(
    apart: tuple[Redis, Redis], used: str
) -> None:
    first, second = apart
    one, two = (open_store(f"{server.url}?retention=0.5", Threads()) for server in apart)
    mine, other = (Claim("x", new_holder(), "somebody", 30.0) for _ in range(2))
    grant = finish(one.claim(mine))
    assert isinstance(grant, Grant)
    assert 0 < _move(first, second) <= 31_000
    if used == "released":
        assert finish(two.release(mine))
    elif used == "renewed":
        assert list(finish(two.renew([grant], 1.0))) == [grant]
    elif used == "claimed":
        assert finish(two.claim(mine)) == grant
    else:
        assert not isinstance(finish(two.claim(other._replace(queue=used.endswith("many")))), Grant)
    assert _left(second) > (TWO_HOURS - 60) * 1000
    finish(two.release(mine))
    later = finish(two.claim(other))
    assert isinstance(later, Grant)
    assert later.token > grant.token
    for store in (one, two):
        finish(store.close())


def test_a_token_that_moved_to_a_server_whose_clock_is_behind_and_is_not_used_is_forgotten_as_is_said(
    apart: tuple[Redis, Redis],
) -> None:
    """What docs/redis.md does not promise: MIGRATE takes along what is left of a key's time, and not its end."""
    first, second = apart
    one, two = (open_store(f"{server.url}?retention=0.5", Threads()) for server in apart)
    mine = Claim("x", new_holder(), "somebody", 1.0)
    grant = finish(one.claim(mine))
    assert isinstance(grant, Grant)
    assert finish(one.release(mine))
    assert 0 < _move(first, second) <= 2_000
    deadline = time.monotonic() + 10
    while second.execute("EXISTS", "hf:{x}"):
        assert time.monotonic() < deadline
    later = finish(two.claim(mine._replace(holder=new_holder())))
    assert isinstance(later, Grant)
    assert later.token < grant.token  # storage that has seen the other refuses it
    for store in (one, two):
        finish(store.close())


_HOLDER = """
import sys, holdfast
lease = holdfast.connect(sys.argv[1]).lock("x", ttl=30).acquire()
for _ in sys.stdin:
    print("held" if lease.held else "lost", f"{lease.remaining():.0f}", flush=True)
"""


def test_7_the_clients_wall_clock_means_nothing_and_a_suspended_machine_has_lost_its_lease(
    redis: Redis, tmp_path: Path, shim: Path, connect: Connect
) -> None:
    wall, suspended = tmp_path / "wall", tmp_path / "suspended"
    wall.write_text("0")
    suspended.write_text("0")
    environ = {"LD_PRELOAD": str(shim), "CLOCK_OFFSET": str(wall), "CLOCK_SUSPENDED": str(suspended)}
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, redis.url],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert holder.stdin
    assert holder.stdout

    def ask() -> tuple[str, int]:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write("?\n")
        state, left = holder.stdout.readline().split()
        return state, int(left)

    try:
        for jump in ("0", "86400", "-86400"):
            wall.write_text(jump)
            state, left = ask()
            assert state == "held"
            assert 15 < left <= 30, f"after the wall clock was set to {jump} s"
        suspended.write_text("31")
        assert ask() == ("lost", 0)
    finally:
        holder.kill()
        holder.communicate(timeout=10)
