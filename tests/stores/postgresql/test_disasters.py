"""Clocks that jump, standbys that know too little, backups that are put back: done to real servers."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import LeaseLost, Unavailable
from holdfast.testing import servers
from holdfast.testing.servers import clock
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import SOON, Connect, in_background, until

pytestmark = pytest.mark.server

# ---- its clock

Jumping = tuple[PostgreSQL, Callable[[int], None]]


@pytest.fixture(scope="module")
def jumping_server() -> Iterator[Jumping]:
    with clock.shim() as built:
        wall = clock.WallClock(built)
        with servers.start("postgresql", "-c", "fsync=off", environ=wall.environ) as server:

            def jump(seconds: int) -> None:
                wall.jump(seconds)
                ((now,),) = server.query("SELECT extract(epoch FROM clock_timestamp())")
                assert abs(float(now) - time.time() - seconds) < 30, "the shim does not reach this server"

            yield server, jump


@pytest.fixture
def jumping(jumping_server: Jumping) -> Iterator[Jumping]:
    jumping_server[1](0)
    yield jumping_server
    jumping_server[1](0)


def test_5_a_clock_set_forward_ends_leases_early_and_tokens_rise(jumping: Jumping, connect: Connect) -> None:
    server, jump = jumping
    early = connect(server.url).lock("forward", ttl=30).acquire()
    jump(600)
    late = connect(server.url).lock("forward", timeout=SOON).acquire()
    assert late.token > early.token
    assert early.release() is False
    assert late.release()


@pytest.mark.parametrize("capacity", [1, 2])
def test_6_a_clock_set_back_delays_by_a_ttl_at_most_and_tokens_rise(
    jumping: Jumping, connect: Connect, capacity: int
) -> None:
    server, jump = jumping
    locks, name = connect(server.url), f"back{capacity}"
    dead = [locks.semaphore(name, capacity, ttl=1, renew=False).acquire() for _ in range(capacity)]
    jump(-3600)
    started = time.monotonic()
    lease = locks.semaphore(name, capacity, ttl=1).acquire(timeout=20)
    assert time.monotonic() - started < 10, "waited for the hour to come round again"
    assert lease.token > max(one.token for one in dead)
    assert locks.semaphore("another", 1).acquire().release()


def test_6_session_locks_trust_no_clock_and_their_tokens_rise(jumping: Jumping, connect: Connect) -> None:
    server, jump = jumping
    locks, others = connect(server.url, "?mode=session"), connect(server.url, "?mode=session")
    first = locks.lock("session", ttl=30).acquire()
    for seconds in (600, -3600):
        jump(seconds)
        with pytest.raises(TimeoutError):
            others.lock("session", timeout=0).acquire()
    assert first.release()
    assert others.lock("session", timeout=SOON).acquire().token > first.token


# ---- its standby


class Standby(PostgreSQL):
    """Begins as a copy of its primary, and follows it."""

    def __init__(self, primary: PostgreSQL) -> None:
        super().__init__("postgresql", ("-c", "fsync=off"))
        self._primary = primary

    def prepare(self) -> None:
        host, port = self._primary.address
        copy = str(Path(self.program).with_name("pg_basebackup"))
        self.run_tool([copy, "-D", str(self.data), "-h", host, "-p", str(port), "-U", "postgres", "-R", "-c", "fast"])

    def cut_off(self) -> None:
        """It hears no more of its primary."""
        self.query("ALTER SYSTEM SET primary_conninfo = ''")
        self.query("SELECT pg_reload_conf()")
        until(lambda: self.query("SELECT count(*) FROM pg_stat_wal_receiver") == [("0",)])

    def follows(self) -> bool:
        ((sent,),) = self._primary.query("SELECT pg_current_wal_lsn()")
        return self.query(f"SELECT coalesce(pg_last_wal_replay_lsn() >= '{sent}', false)") == [("t",)]


@pytest.fixture
def standby(own_postgresql: PostgreSQL) -> Iterator[Standby]:
    with servers.first_that_starts(lambda: Standby(own_postgresql)) as server:
        yield server


def test_9_after_a_failover_to_a_stale_replica_tokens_still_rise_and_the_forgotten_holder_is_told(
    own_postgresql: PostgreSQL, standby: Standby, connect: Connect
) -> None:
    both = f"{own_postgresql.address[0]}:{own_postgresql.port},{standby.address[0]}:{standby.port}"
    url = f"postgresql://postgres@{both}/postgres?target_session_attrs=read-write"
    locks, others = connect(url), connect(url)
    locks.lock("x").acquire().release()
    until(standby.follows)

    with pytest.raises(Unavailable, match="target_session_attrs=read-write"):  # of a real standby, not a setting
        connect(standby.url).lock("x", timeout=0).acquire()

    standby.cut_off()
    forgotten = locks.lock("x", ttl=2).acquire()
    for _ in range(5):
        others.lock("y").acquire().release()
    last = others.lock("y").acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(others.lock("x", ttl=2, timeout=60).acquire().token))
    until(lambda: bool(locks.inspect("x").waiters))
    own_postgresql.kill()
    assert standby.query("SELECT pg_promote()") == [("t",)]

    thread.join(60)
    assert got, "the line did not move to the new primary"
    assert got[0] > forgotten.token
    assert forgotten.lost.wait(SOON)
    with pytest.raises(LeaseLost):
        forgotten.check()
    assert connect(url).lock("y", timeout=30).acquire().token > last.token


# ---- its backup


@pytest.mark.parametrize("options", ["", "?mode=session"])
def test_38_after_a_backup_was_put_back_tokens_still_rise(
    own_postgresql: PostgreSQL, connect: Connect, options: str
) -> None:
    locks = connect(own_postgresql.url, options)
    lock = locks.lock("x", ttl=2, timeout=SOON)  # a crash may forget a release, which then delays by the ttl
    lock.acquire().release()
    own_postgresql.kill()  # so that the copy is of one moment
    backup = own_postgresql.folder / "backup"
    subprocess.run(["cp", "-a", str(own_postgresql.data), str(backup)], check=True, timeout=60)
    own_postgresql.restart()
    tokens = []
    for _ in range(5):
        with lock.acquire() as lease:
            tokens.append(lease.token)
    held = lock.acquire()
    own_postgresql.kill()
    shutil.rmtree(own_postgresql.data)
    subprocess.run(["cp", "-a", str(backup), str(own_postgresql.data)], check=True, timeout=60)
    own_postgresql.restart()
    after = connect(own_postgresql.url, options).lock("x", ttl=2, timeout=SOON).acquire()
    assert after.token > held.token > max(tokens)
    assert held.lost.wait(SOON), "nobody told the one whom the backup does not know"
    assert after.release()
