"""Redlock on real nodes: some killed, paused, restarted, silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import LeaseLost, Misuse, NotAcquired, Unavailable
from holdfast.sync import Lease, Locks
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

from ..hands import until
from ..hops import check_the_way
from .hands import url_of

pytestmark = pytest.mark.server


@pytest.fixture
def nodes() -> Iterator[list[Redis]]:
    started = [servers.start("redis") for _ in range(5)]
    yield started
    for node in started:
        node.stop()


@pytest.fixture
def locks(nodes: list[Redis]) -> Iterator[Locks]:
    with holdfast.connect(url_of(nodes)) as connected:
        yield connected


def more(tokens: list[int]) -> None:
    """Wait until work has gone on for a while."""
    seen = len(tokens)
    until(lambda: len(tokens) > seen + 20)


def state(node: Redis, name: str = "x") -> object:
    return node.execute("STRLEN", f"hf:redlock:{{{name}}}")


IDLE = 15  # a node's state of a name that nobody holds: its mark only


def test_tokens_rise_while_two_of_five_are_killed_and_restarted(nodes: list[Redis]) -> None:
    tokens: list[int] = []
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with holdfast.connect(url_of(nodes)) as mine:
                while not stop.is_set():
                    try:
                        with mine.lock("x", ttl=5, timeout=20) as lease:
                            tokens.append(lease.token)  # inside: so in the order of the grants
                    except (Unavailable, LeaseLost):  # with two nodes gone, what the rest says of it need not be a yes
                        continue
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for first, second in ((0, 1), (2, 4)):
        more(tokens)
        nodes[first].kill()
        nodes[second].kill()
        more(tokens)
        nodes[first].restart()
        nodes[second].restart()
        more(tokens)
    stop.set()
    for worker in workers:
        worker.join(30)
    assert not failures
    assert tokens == sorted(set(tokens))


def test_11_without_a_majority_nothing_is_acquired_and_every_node_is_released(nodes: list[Redis], locks: Locks) -> None:
    with locks.lock("x"):
        pass
    for node in nodes[:3]:
        node.pause()
    with pytest.raises(Unavailable, match=r"only 2 of 5"):
        locks.lock("x", ttl=3).acquire(timeout=0)
    for node in nodes[:3]:
        node.resume()
    until(lambda: all(state(node) in (0, IDLE) for node in nodes))
    with locks.lock("x", timeout=5):
        pass


def test_a_paused_node_costs_next_to_nothing(nodes: list[Redis], locks: Locks) -> None:
    with locks.lock("x"):
        pass
    nodes[0].pause()
    started = time.monotonic()
    for _ in range(20):
        with locks.lock("x"):
            pass
    assert time.monotonic() - started < 20 * 0.25
    nodes[0].resume()


def test_a_node_whose_replies_are_lost_is_released_too(nodes: list[Redis]) -> None:
    with Proxy(nodes[0].address) as between:
        hosts = ",".join([f"127.0.0.1:{between.port}", *(f"127.0.0.1:{node.port}" for node in nodes[1:])])
        with holdfast.connect(f"redlock://{hosts}") as locks, holdfast.connect(url_of(nodes)) as others:
            with locks.lock("x"):
                pass
            # A majority is enough to leave, and to enter: the others come later.
            until(lambda: state(nodes[0]) in (0, IDLE))
            held = others.lock("x").acquire()
            until(lambda: state(nodes[0]) not in (0, IDLE))
            nodes[0].execute("DEL", "hf:redlock:{x}")  # so that this node alone lets us in
            between.to_client.drop()
            assert locks.lock("x").try_acquire() is None
            until(lambda: state(nodes[0]) in (0, IDLE))
            between.flow()
            assert held.release()


def test_12_answers_that_come_after_the_ttl_are_no_grant(nodes: list[Redis]) -> None:
    proxies = [Proxy(node.address) for node in nodes]
    try:
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
        with holdfast.connect(f"redlock://{hosts}?timeout=2") as locks:
            with locks.lock("x"):
                pass
            for proxy in proxies:
                proxy.to_client.delay(0.4)
            with pytest.raises((NotAcquired, Unavailable)):
                locks.lock("x", ttl=0.3).acquire(timeout=0)
            for proxy in proxies:
                proxy.flow()
    finally:
        for proxy in proxies:
            proxy.close()


def test_renewal_needs_a_majority(nodes: list[Redis], locks: Locks) -> None:
    lease = locks.lock("x", ttl=1.5).acquire()
    for node in nodes[:2]:
        node.kill()
    time.sleep(2.0)
    assert lease.held
    nodes[2].execute("DEL", "hf:redlock:{x}")
    assert lease.lost.wait(5)


def test_a_semaphore_never_lets_in_more_than_its_capacity(nodes: list[Redis], locks: Locks) -> None:
    """Counted by majority, five nodes of two units would let in three."""
    leases = [locks.semaphore("x", 2).acquire(timeout=10) for _ in range(2)]
    with holdfast.connect(url_of(nodes)) as others:
        for _ in range(20):
            assert others.semaphore("x", 2).try_acquire() is None
        assert leases[0].release()
        assert others.semaphore("x", 2).acquire(timeout=10).token > leases[1].token


def test_a_proposal_below_what_a_node_knows_is_raised(nodes: list[Redis], locks: Locks) -> None:
    ahead = int(time.time() * 1_000_000) + 3_600_000_000
    script = "return redis.call('SET', KEYS[1], 'hf:node' .. struct.pack('>d', ARGV[1]), 'PX', 60000)"
    nodes[3].execute("EVAL", script, 1, "hf:redlock:{x}", ahead)
    for node in nodes[:2]:
        node.kill()  # so that node 3 is needed
    assert ahead < locks.lock("x", timeout=5).acquire().token <= ahead + 1000


def test_one_claim_takes_no_more_files_and_hops_than_the_page_says(nodes: list[Redis]) -> None:
    check_the_way("Redlock of three", url_of(nodes[:3]))
    check_the_way("Redlock of five", url_of(nodes))


def test_two_or_four_nodes_are_refused() -> None:
    for hosts in ("a", "a,b", "a,b,c,d"):
        with pytest.raises(Misuse, match="3, 5 or 7"):
            holdfast.connect(f"redlock://{hosts}")


def test_of_several_who_try_once_at_the_same_moment_one_gets_it(nodes: list[Redis]) -> None:
    """With no agreement between them, each may get some nodes and nobody a majority: then they try again, apart."""
    crowd = [holdfast.connect(url_of(nodes)) for _ in range(4)]
    for number in range(20):
        start = threading.Barrier(len(crowd))
        got: list[Lease] = []

        def once(locks: Locks, name: str, start: threading.Barrier = start, got: list[Lease] = got) -> None:
            start.wait(10)
            if lease := locks.lock(name).try_acquire():
                got.append(lease)

        threads = [threading.Thread(target=once, args=(locks, f"x{number}")) for locks in crowd]
        for one in threads:
            one.start()
        for one in threads:
            one.join(30)
        assert len(got) == 1
        assert got[0].release()
    for locks in crowd:
        locks.close()
