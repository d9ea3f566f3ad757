"""What Redis, the network and people do to a lock, done to it. The numbers are those of the table of faults in the guide."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast import LeaseLost, Misuse, Unavailable, aio
from holdfast.claim import MAX_TOKEN
from holdfast.testing.servers.redis import Redis

from ..hands import SOON, Connect, in_background, until

pytestmark = pytest.mark.server


# ---- the server


def test_scripts_forgotten_by_the_server_are_loaded_again(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    with locks.lock("x"):
        redis.execute("SCRIPT", "FLUSH")
    redis.execute("SCRIPT", "FLUSH")
    with locks.lock("x"):
        assert locks.inspect("x").holders


def test_a_key_whose_name_no_lock_can_have_hides_none_that_is_one(redis: Redis, connect: Connect) -> None:
    """Whoever may write to the server may put it there: then nobody could see any lock, by `ls`, `why` or the dashboard."""
    locks = connect(redis.url)
    with locks.lock("x"):
        for name in ("y" * 513, "with%00NUL"):
            redis.execute("COPY", "hf:{x}", f"hf:{{{name}}}")
        assert locks.names() == ["x"]
        assert [one.name for one in locks.wait_graph().snapshots] == ["x"]


def test_8_a_server_that_restarts_empty_forgets_locks_but_tokens_rise(own_redis: Redis, connect: Connect) -> None:
    locks = connect(own_redis.url)
    before = locks.lock("x").acquire()
    own_redis.kill()
    own_redis.restart(empty=True)
    after = locks.lock("x", timeout=5).acquire()
    assert after.token > before.token
    assert before.release() is False
    assert after.held
    assert after.release()


def test_8_a_waiter_rejoins_when_the_server_restarts(own_redis: Redis, connect: Connect) -> None:
    locks, others = connect(own_redis.url), connect(own_redis.url)
    held = others.lock("x", ttl=2).acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(locks.lock("x", timeout=30).acquire().token))
    until(lambda: bool(others.inspect("x").waiters))
    own_redis.kill()
    own_redis.restart(empty=True)
    thread.join(SOON)
    assert got
    assert got[0] > held.token


def test_10_tokens_rise_when_all_is_flushed(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    tokens = []
    for _ in range(5):
        tokens.append(locks.lock("x").acquire().token)
        redis.execute("FLUSHALL")
    assert tokens == sorted(set(tokens))


def test_38_tokens_rise_after_a_backup_is_restored(own_redis: Redis, connect: Connect) -> None:
    locks = connect(own_redis.url)
    old = locks.lock("x").acquire()
    old.release()
    backup = {path: path.read_bytes() for path in own_redis.data.rglob("*") if path.is_file()}
    newer = locks.lock("x").acquire()
    newer.release()
    own_redis.kill()
    for path, content in backup.items():
        path.write_bytes(content)
    own_redis.restart()
    assert locks.lock("x", timeout=5).acquire().token > newer.token


def test_34_tokens_at_their_limit_are_refused_and_never_wrap(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    locks.lock("x").acquire().release()
    script = "return redis.call('SET', KEYS[1], 'hf:idle' .. struct.pack('>d', ARGV[1]), 'PX', 60000)"
    redis.execute("EVAL", script, 1, "hf:{x}", MAX_TOKEN)
    with pytest.raises(Unavailable, match="used up"):
        locks.lock("x", timeout=0).acquire()


def test_37_a_deleted_lock_is_reported_as_lost_by_the_next_renewal(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    lease = locks.lock("x", ttl=1.5).acquire()
    redis.execute("DEL", "hf:{x}")
    assert lease.lost.wait(SOON)
    with pytest.raises(LeaseLost, match="no longer has it"):
        lease.check()


def test_an_evicted_part_of_a_crowd_does_not_block_the_name(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    for gone in ("entries", "ends"):
        one, two = (locks.semaphore("x", 2).acquire() for _ in range(2))
        redis.execute("DEL", f"hf:{{x}}:{gone}")
        again = locks.semaphore("x", 2).acquire(timeout=2)
        assert again.token > two.token > one.token
        redis.execute("FLUSHALL")


@pytest.mark.timeout(400)  # much work for a busy machine
def test_100_000_names_used_once_leave_nothing_after_the_retention_time(redis: Redis, connect: Connect) -> None:
    async def use(url: str) -> None:
        async with aio.connect(url) as locks:

            async def some(start: int) -> None:
                for number in range(start, 100_000, 250):
                    await (await locks.lock(f"once:{number}", ttl=1).acquire()).release()

            await asyncio.gather(*map(some, range(250)))

    asyncio.run(use(f"{redis.url}?retention=1"))
    assert redis.execute("DBSIZE") != 0  # a name's last token is kept for a while
    locks = connect(redis.url, "?retention=1")
    lease = locks.semaphore("crowd", 2, ttl=1).acquire()
    locks.semaphore("crowd", 2, ttl=1).acquire().release()
    lease.release()
    until(lambda: redis.execute("DBSIZE") == 0)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("SET", "hf:{x}", "mine"), "hf:{x}"),
        (("SET", "hf:{x}", ""), "hf:{x}"),
        (("RPUSH", "hf:{x}", "a"), "hf:{x}"),
        (("HSET", "hf:{x}", "a", "b"), "hf:{x}"),
    ],
)
def test_a_foreign_value_in_our_place_is_named_and_left_alone(
    redis: Redis, connect: Connect, command: tuple[str, ...], says: str
) -> None:
    locks = connect(redis.url)
    redis.execute(*command)
    kept = redis.execute("DUMP", "hf:{x}")
    for action in (
        lambda: locks.lock("x", timeout=0).acquire(),
        lambda: locks.inspect("x"),
        lambda: locks.force_release("x", token=5),
    ):
        with pytest.raises(Misuse, match=says):
            action()
    assert locks.names() == []
    assert redis.execute("DUMP", "hf:{x}") == kept


def test_a_paused_server_is_an_error_within_the_timeout_and_recovers(own_redis: Redis, connect: Connect) -> None:
    locks = connect(own_redis.url, "?timeout=0.3")
    with locks.lock("x"):
        pass
    own_redis.pause()
    started = time.monotonic()
    with pytest.raises(Unavailable, match="did not answer within"):
        locks.lock("x", timeout=0).acquire()
    assert time.monotonic() - started < 5
    own_redis.resume()
    with locks.lock("x", timeout=SOON):
        pass


def test_client_pause_is_ridden_out(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url, "?timeout=0.3")
    locks.lock("x").acquire().release()
    redis.execute("CLIENT", "PAUSE", 800, "WRITE")
    with pytest.raises(Unavailable):
        locks.lock("x", timeout=0).acquire()
    redis.execute("CLIENT", "UNPAUSE")
    until(lambda: locks.lock("x").try_acquire() is not None)


def test_a_server_out_of_memory_says_so(own_redis: Redis, connect: Connect) -> None:
    locks = connect(own_redis.url)
    with locks.lock("x"):
        own_redis.execute("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(Unavailable, match="out of memory"):
            locks.lock("y", timeout=0).acquire()
        own_redis.execute("CONFIG", "SET", "maxmemory", 0)


@pytest.mark.parametrize("capacity", [1, 2])
def test_a_server_out_of_memory_lets_leave_and_renew(own_redis: Redis, connect: Connect, capacity: int) -> None:
    locks = connect(own_redis.url)
    leaving = [locks.semaphore("x", capacity).acquire() for _ in range(capacity)]
    staying = [locks.semaphore("y", capacity, ttl=1.5).acquire() for _ in range(capacity)]
    renewed = [lease.remaining() for lease in staying]
    own_redis.execute("CONFIG", "SET", "maxmemory", 1)
    assert all(lease.release() for lease in leaving)
    time.sleep(2)
    assert all(lease.held for lease in staying), renewed
    own_redis.execute("CONFIG", "SET", "maxmemory", 0)


def test_a_busy_script_says_so_and_what_to_do(own_redis: Redis, connect: Connect) -> None:
    own_redis.execute("CONFIG", "SET", "busy-reply-threshold", 50)
    locks = connect(own_redis.url, "?timeout=1")
    locks.lock("x").acquire().release()

    def keep_busy() -> None:
        with pytest.raises(OSError, match="killed"):
            own_redis.execute("EVAL", "while true do end", 0, timeout=20)

    hog = in_background(keep_busy)
    time.sleep(0.3)
    with pytest.raises(Unavailable, match="SCRIPT KILL"):
        locks.lock("x", timeout=0).acquire()
    own_redis.execute("SCRIPT", "KILL")
    hog.join(SOON)
    with locks.lock("x", timeout=SOON):
        pass


def test_a_replica_says_that_it_is_one(own_redis: Redis, connect: Connect) -> None:
    locks = connect(own_redis.url)
    locks.lock("x").acquire().release()
    own_redis.execute("CONFIG", "SET", "replica-serve-stale-data", "yes")
    own_redis.execute("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(Unavailable, match="failover"):
        locks.lock("x", timeout=0).acquire()
    own_redis.execute("REPLICAOF", "NO", "ONE")
    with locks.lock("x", timeout=SOON):
        pass


def test_idle_connections_that_were_closed_are_replaced_unnoticed(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    lease = locks.lock("x").acquire()
    redis.execute("CLIENT", "KILL", "TYPE", "normal")
    time.sleep(0.15)
    assert lease.release()
    redis.execute("CLIENT", "KILL", "TYPE", "normal")
    assert locks.lock("x").acquire(timeout=0).release()


def test_a_waiter_whose_ear_was_cut_is_let_in_all_the_same(redis: Redis, connect: Connect) -> None:
    locks, others = connect(redis.url), connect(redis.url)
    held = others.lock("x").acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(locks.lock("x", timeout=30).acquire().token))
    until(lambda: bool(others.inspect("x").waiters))
    redis.execute("CLIENT", "KILL", "TYPE", "pubsub")
    held.release()
    thread.join(5)
    assert got, "the bell was lost with the connection"


def test_36_a_waiter_that_was_killed_holds_up_nobody(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    held = locks.lock("x").acquire()
    waiter = subprocess.Popen(
        [sys.executable, "-c", f"import holdfast; holdfast.connect({redis.url!r}).lock('x').acquire()"]
    )
    until(lambda: len(locks.inspect("x").waiters) == 1)
    os.kill(waiter.pid, signal.SIGKILL)
    waiter.wait()
    got: list[float] = []
    second = connect(redis.url)
    thread = in_background(lambda: got.append(second.lock("x", timeout=25).acquire().token))
    until(lambda: len(locks.inspect("x").waiters) == 2)
    started = time.monotonic()
    held.release()
    thread.join(20)
    assert got
    assert time.monotonic() - started < 5, "waited for the dead one's ttl"


def test_logins_that_are_refused_say_so_and_never_show_the_password(
    own_redis: Redis, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.execute("CONFIG", "SET", "requirepass", "hush")
    host = own_redis.url.removeprefix("redis://")
    for login in ("", ":wr0ng@", "nobody:wr0ng@"):
        locks = connect(f"redis://{login}{host}")
        with pytest.raises(Misuse, match="user:password") as refused:
            locks.lock("x", timeout=0).acquire()
        assert "wr0ng" not in str(refused.value)
        assert refused.value.__context__ is None, "or a traceback begins with something else"
        locks.close()
    assert caplog.text == "", "nothing was taken, so no release has failed"
    with connect(f"redis://:hush@{host}").lock("x"):
        pass


def test_the_documented_rights_are_enough_and_less_is_explained(own_redis: Redis, connect: Connect) -> None:
    from holdfast.stores.redis.replies import rights
    from holdfast.stores.redis.url import Target

    granted = rights(Target("redis", ())).split()
    own_redis.execute("ACL", "SETUSER", "locker", "on", ">pw", *granted)
    own_redis.execute("ACL", "SETUSER", "reader", "on", ">pw", "~hf:*", "+get")
    host = own_redis.url.removeprefix("redis://")
    locks, others = connect(f"redis://locker:pw@{host}"), connect(f"redis://locker:pw@{host}")
    lease = locks.lock("x").acquire()
    thread = in_background(lambda: others.lock("x", timeout=SOON).acquire().release())
    until(lambda: bool(locks.inspect("x").waiters))
    assert locks.names() == ["x"]
    lease.release()
    thread.join(SOON)
    lease = locks.lock("x").acquire()
    assert locks.force_release("x", token=lease.token)
    with pytest.raises(Misuse, match="Grant the user"):
        connect(f"redis://reader:pw@{host}").lock("x", timeout=0).acquire()
