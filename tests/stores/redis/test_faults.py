"""What Redis, the network and people do to a lock, done to it. The numbers are those of the table of faults in the guide."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast import LeaseLost, Misuse, NotAcquired, Unavailable
from holdfast.claim import MAX_TOKEN, Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.redis.scripts import ALL
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server

SOON = 10.0
Connect = Callable[..., Locks]


def until(condition: Callable[[], bool], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within:g} s"
        time.sleep(0.005)


def claim_of(name: str, ttl: float = 30.0) -> Claim:
    return Claim(name, new_holder(), "somebody", ttl)


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


# ---- the server


def test_scripts_forgotten_by_the_server_are_loaded_again(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    with locks.lock("x"):
        redis.execute("SCRIPT", "FLUSH")
    redis.execute("SCRIPT", "FLUSH")
    with locks.lock("x"):
        assert locks.inspect("x").holders


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


def test_names_used_once_leave_nothing_after_the_retention_time(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url, "?retention=1")
    for number in range(3000):
        locks.lock(f"once:{number}", ttl=1).acquire().release()
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


def test_logins_that_are_refused_say_so_and_never_show_the_password(own_redis: Redis, connect: Connect) -> None:
    own_redis.execute("CONFIG", "SET", "requirepass", "hush")
    host = own_redis.url.removeprefix("redis://")
    for login in ("", ":wr0ng@", "nobody:wr0ng@"):
        with pytest.raises(Misuse, match="user:password") as refused:
            connect(f"redis://{login}{host}").lock("x", timeout=0).acquire()
        assert "wr0ng" not in str(refused.value)
    with connect(f"redis://:hush@{host}").lock("x"):
        pass


def test_the_documented_rights_are_enough_and_less_is_explained(own_redis: Redis, connect: Connect) -> None:
    from holdfast.stores.redis.replies import GRANTS

    rights = GRANTS.format(prefix="hf").split()
    own_redis.execute("ACL", "SETUSER", "locker", "on", ">pw", *rights)
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


# ---- the network


def test_15_a_grant_whose_reply_was_lost_is_found_again(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=0.5")
    locks.lock("warm").acquire().release()
    proxy.to_client.drop(chunks=1)
    lease = locks.lock("x").acquire(timeout=0)
    snapshot = connect(redis.url).inspect("x")
    assert [holding.token for holding in snapshot.holders] == [lease.token]
    assert lease.release()


def test_12_a_reply_that_comes_after_the_ttl_is_no_grant(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=3")
    locks.lock("warm").acquire().release()
    proxy.to_client.delay(0.5)
    with pytest.raises((NotAcquired, Unavailable)):
        locks.lock("x", ttl=0.3, timeout=0.4).acquire()
    proxy.to_client.flow()
    until(lambda: connect(redis.url).names() == [])


def test_13_a_release_that_comes_late_leaves_the_successor_alone(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    locks, direct = connect(proxy.address, "?timeout=0.2"), connect(redis.url)
    lease = locks.lock("x", ttl=0.6, renew=False).acquire()
    proxy.to_server.hold()
    with pytest.raises(Unavailable):
        lease.release()
    successor = direct.lock("x", timeout=SOON).acquire()
    proxy.to_server.flow()
    proxy.wait_until(lambda: proxy.connections == 0)
    assert [one.token for one in direct.inspect("x").holders] == [successor.token]
    assert successor.release()


def test_14_a_claim_that_lands_after_we_gave_up_is_gone_or_expires(
    redis: Redis, proxy: Proxy, connect: Connect
) -> None:
    locks, direct = connect(proxy.address, "?timeout=0.2"), connect(redis.url)
    locks.lock("warm").acquire().release()
    proxy.to_server.hold()
    with pytest.raises(Unavailable):
        locks.lock("x", ttl=1).acquire(timeout=0)
    proxy.to_server.flow()
    until(lambda: direct.lock("x").try_acquire() is not None, within=5)


def test_20_a_release_that_fails_may_be_repeated(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=0.3")
    lease = locks.lock("x").acquire()
    proxy.to_server.drop()
    with pytest.raises(Unavailable):
        lease.release()
    proxy.flow()
    assert lease.release() is True
    assert connect(redis.url).names() == []


def test_22_renewal_does_not_wait_for_user_work(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=5")
    lease = locks.lock("held", ttl=1.0).acquire()
    until(lambda: lease.remaining() > 0.9)
    proxy.to_server.hold(chunks=1, when=lambda data: b"{busy}" in data)
    thread = in_background(lambda: locks.lock("busy", timeout=0).acquire())
    time.sleep(1.6)
    assert lease.held
    proxy.flow()
    thread.join(SOON)
    lease.release()


def test_a_cut_connection_is_told_in_danger_and_the_renewal_recovers(
    redis: Redis, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.address)
    kinds: list[str] = []
    locks.subscribe(lambda event: kinds.append(event.kind))
    lease = locks.lock("x", ttl=1.5).acquire()
    proxy.refuse()
    proxy.cut(reset=True)
    until(lambda: "in danger" in kinds)
    proxy.accept()
    until(lambda: "renewed" in kinds)
    assert lease.held
    assert lease.release()


def test_17_a_partition_loses_the_lease_at_its_deadline_not_later(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=0.2")
    lease = locks.lock("x", ttl=0.9).acquire()
    proxy.to_server.hold()
    started = time.monotonic()
    assert lease.lost.wait(SOON)
    assert time.monotonic() - started < 1.5
    assert not lease.held


def test_nobody_home_is_an_error_that_names_the_address(connect: Connect) -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        connect("redis://127.0.0.1:1").lock("x", timeout=0).acquire()


# ---- people


def test_18_a_forked_child_owns_nothing_and_says_nothing(redis: Redis, connect: Connect) -> None:
    locks = connect(redis.url)
    lease = locks.lock("x").acquire()
    child = os.fork()
    if child == 0:
        try:
            fresh = locks.lock("y").acquire(timeout=2)
            os._exit(0 if not lease.held and fresh.release() else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert lease.held
    assert lease.release()


def test_23_two_clients_with_one_label_are_told_apart(redis: Redis, connect: Connect) -> None:
    one, two = connect(redis.url, label="same"), connect(redis.url, label="same")
    lease = one.lock("x").acquire()
    assert two.lock("x").try_acquire() is None
    assert lease.release()


def test_33_a_killed_holder_is_followed_within_its_ttl(redis: Redis, connect: Connect) -> None:
    code = (
        f"import holdfast, time; lease = holdfast.connect({redis.url!r}).lock('x', ttl=1).acquire();"
        "print(lease.token, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    token = int(holder.stdout.readline())
    os.kill(holder.pid, signal.SIGKILL)
    killed = time.monotonic()
    holder.wait()
    holder.stdout.close()
    lease = connect(redis.url).lock("x", timeout=SOON).acquire()
    assert time.monotonic() - killed < 3
    assert lease.token > token


@pytest.fixture
def valkey() -> Iterator[Redis]:
    if servers.missing(("valkey",)):
        pytest.skip("no Valkey on this machine")
    with servers.start("valkey") as server:
        yield server


def test_valkey_takes_the_same_scripts(valkey: Redis, connect: Connect) -> None:
    locks = connect(valkey.url.replace("valkey://", "redis://"))
    one, two = (locks.semaphore("x", 2).acquire() for _ in range(2))
    assert two.token > one.token
    assert one.release()
    assert two.release()


def test_a_script_of_ours_is_a_constant(redis: Redis, connect: Connect) -> None:
    """Names and values reach it only as KEYS and ARGV: whatever they are, the server knows no more than these scripts."""
    redis.execute("SCRIPT", "FLUSH")
    locks = connect(redis.url)
    for name in ("a", "'); redis.call('FLUSHALL') --", "{b}", "c\nd", "é" * 200):
        with locks.lock(name):
            assert locks.names() == [name]
    exists = redis.execute("SCRIPT", "EXISTS", *(script.sha.decode() for script in ALL))
    assert exists == [1] * len(ALL)
    info = redis.execute("INFO", "memory")
    assert isinstance(info, bytes)
    assert b"number_of_cached_scripts:%d" % len(ALL) in info


def test_repeating_a_claim_on_another_connection_gives_the_same_token(redis: Redis, connect: Connect) -> None:
    one, two = connect(redis.url), connect(redis.url)
    claim = claim_of("x")
    answers = [finish(locks._engine.store.claim(claim)) for locks in (one, two, one)]
    assert all(isinstance(answer, Grant) for answer in answers)
    assert len({answer.token for answer in answers if isinstance(answer, Grant)}) == 1
