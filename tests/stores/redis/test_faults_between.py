"""Faults of the network, and what people do: fork, kill, and give two programs one name."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import redis as client
from holdfast import NotAcquired, StaleToken, Unavailable, aio, fenced
from holdfast.claim import Grant
from holdfast.drivers.base import finish
from holdfast.stores.redis.scripts import ALL
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

from ..hands import SOON, Connect, claim_of, in_background, until

pytestmark = pytest.mark.server


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
    lease.release()  # True, or False if the background was quicker: it goes on by itself
    assert not lease.held
    assert connect(redis.url).names() == []


def test_3_a_guarded_write_that_was_delayed_past_the_ttl_is_refused(
    redis: Redis, proxy: Proxy, connect: Connect
) -> None:
    late = connect(redis.url).lock("x", ttl=0.5, renew=False).acquire()
    proxy.to_server.hold()
    refused: list[Exception] = []

    def write() -> None:
        with client.Redis(*proxy.address) as slow:
            try:
                fenced.Redis(slow, late).set("balance", "late")
            except StaleToken as error:
                refused.append(error)

    thread = in_background(write)
    proxy.to_server.wait_for_caught(1)
    successor = connect(redis.url).lock("x", timeout=SOON).acquire()
    with client.Redis(*redis.address) as quick:
        fenced.Redis(quick, successor).set("balance", "new")
    proxy.flow()
    thread.join(SOON)
    assert len(refused) == 1
    assert redis.execute("GET", "balance") == b"new"


@pytest.mark.parametrize("failing", [b"{a}", b"{b}", b"{c}"])
@pytest.mark.parametrize("lost", ["request", "reply"])
def test_35_all_of_that_fails_at_one_lock_keeps_none(
    redis: Redis, proxy: Proxy, connect: Connect, failing: bytes, lost: str
) -> None:
    locks, direct = connect(proxy.address, "?timeout=0.2"), connect(redis.url)
    locks.all_of("a", "b", "c").acquire().release()
    if lost == "request":
        proxy.to_server.drop(when=lambda data: failing in data)
    else:  # the claim arrives; from then on nothing comes back

        def deafen(data: bytes) -> bool:
            if failing in data:
                proxy.to_client.drop()
            return False

        proxy.to_server.drop(when=deafen)
    with pytest.raises(Unavailable):
        locks.all_of("a", "b", "c", timeout=0).acquire()
    proxy.flow()
    until(lambda: direct.names() == [])


def test_22_renewal_does_not_wait_for_user_work(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=20")
    renewed: list[str] = []
    locks.subscribe(lambda event: renewed.append(event.name), ["renewed"])
    lease = locks.lock("held", ttl=1.0).acquire()
    proxy.to_server.hold(when=lambda data: b"{busy}" in data)  # on whatever connection it is asked
    asked = claim_of("busy")
    thread = in_background(lambda: finish(locks._engine.store.claim(asked, 20.0)))
    until(lambda: proxy.to_server.caught.chunks >= 1)
    seen = len(renewed)
    until(lambda: len(renewed) >= seen + 3)
    assert lease.held
    assert thread.is_alive()
    proxy.flow()
    thread.join(SOON)
    lease.release()


def test_a_release_whose_answer_was_cut_is_repeated_and_no_loss(redis: Redis, proxy: Proxy, connect: Connect) -> None:
    """It finds nothing the second time, since the first one arrived."""
    locks, direct = connect(proxy.address), connect(redis.url)

    def cut() -> None:
        until(lambda: direct.names() == [])
        proxy.cut(reset=True)
        proxy.flow()

    def leave() -> threading.Thread:
        """What follows is answered by nobody, and then the connection breaks."""
        proxy.to_client.hold()
        return in_background(cut)

    for pause in (0.0, 0.2):  # a connection that lay for longer is looked at before it is used
        with locks.lock("x"):
            time.sleep(pause)
            thread = leave()  # LeaseLost, if the release says that it was not there
        thread.join(SOON)

    async def main() -> None:
        host, port = proxy.address
        async with aio.connect(f"redis://{host}:{port}") as locks, locks.lock("x"):
            leave()

    asyncio.run(main())


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
    for name in ("a", "'); redis.call('FLUSHALL') --", "{1}", "c\nd", "é" * 200):
        with locks.lock(name):
            assert locks.names() == [name]
    exists = redis.execute("SCRIPT", "EXISTS", *(script.sha.decode() for script in ALL))
    assert exists == [1] * len(ALL)
    info = redis.execute("INFO", "memory")
    assert isinstance(info, bytes)
    assert b"number_of_cached_scripts:%d" % len(ALL) in info


def test_a_release_that_arrived_twice_while_scripts_were_loaded_is_no_loss(
    redis: Redis, proxy: Proxy, connect: Connect
) -> None:
    lease = connect(proxy.address).lock("x").acquire()
    redis.execute("SCRIPT", "FLUSH")
    answers = iter((False, True))  # that the script is missing; then, of the loading and the release itself
    proxy.to_client.hold(when=lambda _: next(answers, True))
    told: list[bool] = []
    leaving = in_background(lambda: told.append(lease.release()))
    proxy.to_client.wait_for_caught(1)
    until(lambda: not connect(redis.url).inspect("x").holders)
    proxy.cut(reset=True)
    proxy.flow()
    leaving.join(SOON)
    assert told == [True]


def test_repeating_a_claim_on_another_connection_gives_the_same_token(redis: Redis, connect: Connect) -> None:
    one, two = connect(redis.url), connect(redis.url)
    claim = claim_of("x")
    answers = [finish(locks._engine.store.claim(claim)) for locks in (one, two, one)]
    assert all(isinstance(answer, Grant) for answer in answers)
    assert len({answer.token for answer in answers if isinstance(answer, Grant)}) == 1
