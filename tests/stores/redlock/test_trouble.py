"""What a Redlock must not lose when nodes and connections are in trouble."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import uvloop

import holdfast
from holdfast import Unavailable, aio
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.redlock import open_store
from holdfast.stores.redlock.fan import Question
from holdfast.stores.redlock.store import RedlockStore
from holdfast.testing.network import Network
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

from ..hands import until
from .hands import hang_up, paused, store_of, url_of

pytestmark = pytest.mark.server


# ---- nodes and connections


@pytest.mark.parametrize("which", [0, 2])
def test_a_node_that_hangs_from_the_start_costs_nobody_its_lease(three: list[Redis], which: int) -> None:
    with paused(three[which : which + 1]), holdfast.connect(url_of(three)) as locks:
        lost: list[object] = []
        locks.subscribe(lost.append, ["lost", "in danger"])
        lease = locks.lock("x", ttl=1.5).acquire(timeout=5)
        time.sleep(2.5)
        assert lease.held
        assert not lost
        assert lease.release()


def test_connections_that_the_nodes_closed_are_replaced_unnoticed(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks, holdfast.connect(url_of(three)) as others:
        locks.lock("x").acquire().release()
        hang_up(three)
        lease = locks.lock("x", ttl=30).acquire(timeout=0)
        hang_up(three)
        assert lease.release()
        assert others.lock("x").acquire(timeout=0).release()


def test_a_renewal_survives_connections_that_the_nodes_close(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks:
        lease = locks.lock("x", ttl=1.2).acquire()
        started = time.monotonic()
        while time.monotonic() < started + 3:
            time.sleep(0.3)
            hang_up(three)
        assert lease.held


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop])
def test_the_same_in_asyncio_and_on_uvloop(
    three: list[Redis], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    async def main() -> None:
        async with aio.connect(url_of(three)) as locks, aio.connect(url_of(three)) as others:
            await (await locks.lock("x").acquire()).release()
            hang_up(three)
            lease = await locks.lock("x", ttl=1.2).acquire(timeout=0)
            for _ in range(8):
                await asyncio.sleep(0.3)
                hang_up(three)
            assert lease.held
            assert await lease.release()
            hang_up(three)
            assert await (await others.lock("x").acquire(timeout=0)).release()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_a_release_whose_answers_were_cut_is_repeated_and_no_loss(three: list[Redis], flavour: str) -> None:
    """It finds nothing the second time, since the first one arrived."""
    with Network(url_of(three)) as network, holdfast.connect(url_of(three)) as direct:

        def cut() -> None:
            until(lambda: direct.names() == [])
            network.cut()
            network.heal()

        thread = threading.Thread(target=cut)

        async def main() -> None:
            async with aio.connect(network.url) as locks, locks.lock("x"):
                network.hold_answers(0)
                thread.start()

        if flavour == "asyncio":
            asyncio.run(main())
        else:
            with holdfast.connect(network.url) as locks, locks.lock("x"):
                network.hold_answers(0)
                thread.start()
        thread.join(10)


@pytest.mark.parametrize(("absent", "left"), [(1, True), (2, False)])
def test_a_release_is_a_loss_only_if_a_majority_says_so(three: list[Redis], absent: int, left: bool) -> None:
    with holdfast.connect(url_of(three)) as locks:
        lease = locks.lock("x").acquire()
        # A majority is enough to enter: what the last is still to be asked must not come after this.
        until(lambda: all(node.execute("EXISTS", "hf:redlock:{x}") for node in three))
        for node in three[:absent]:
            node.execute("DEL", "hf:redlock:{x}")
        with paused(three[2:]):
            assert lease.release() is left


def test_a_node_that_has_to_learn_the_scripts_first_makes_no_release_a_loss(three: list[Redis]) -> None:
    """As one that was restarted: the others have let us go by the time it is asked again."""
    with holdfast.connect(url_of(three, "?timeout=3")) as locks:
        lease = locks.lock("x").acquire()
        three[0].execute("SCRIPT", "FLUSH")
        three[1].execute("DEL", "hf:redlock:{x}")  # so that all three are asked for their opinion
        assert lease.release()


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_nodes_that_are_silent_for_a_moment_are_waited_for_as_long_as_was_asked(
    three: list[Redis], flavour: str
) -> None:
    """Longer than a node is given when the others are enough without it."""

    def resume() -> None:
        for node in three[1:]:
            node.resume()

    def pause() -> threading.Timer:
        for node in three[1:]:
            node.pause()
        timer = threading.Timer(0.8, resume)
        timer.start()
        return timer

    async def main() -> None:
        async with aio.connect(url_of(three)) as locks:
            await (await locks.lock("warm").acquire()).release()
            timer = pause()
            lease = await locks.lock("x").acquire(timeout=20)
            await asyncio.to_thread(timer.join)
            timer = pause()
            assert await lease.release()
            await asyncio.to_thread(timer.join)

    if flavour == "asyncio":
        asyncio.run(main())
        return
    with holdfast.connect(url_of(three)) as locks:
        locks.lock("warm").acquire().release()
        timer = pause()
        lease = locks.lock("x").acquire(timeout=20)
        timer.join()
        timer = pause()
        assert lease.release()
        timer.join()


@pytest.mark.parametrize("kind", ["threads", "asyncio", "uvloop"])
def test_a_release_that_one_node_did_not_hear_is_told_to_it_again(three: list[Redis], kind: str) -> None:
    """Else two of them, on two nodes, keep everybody out for the rest of their ttl."""
    claim = Claim("x", new_holder(), "somebody", 60.0)

    async def leave(store: RedlockStore, proxy: Proxy) -> None:
        deadline = time.monotonic() + 20
        assert isinstance(await store.claim(claim), Grant)
        while three[0].execute("STRLEN", "hf:redlock:{x}") in (0, 15):  # a majority was enough: it may be late
            assert time.monotonic() < deadline
            await store._driver.sleep(0.01)
        proxy.to_server.hold()
        assert await store.release(claim)
        proxy.cut(reset=True)
        proxy.flow()
        while three[0].execute("STRLEN", "hf:redlock:{x}") != 15:  # nothing but the last token
            assert time.monotonic() < deadline, "a ghost is left on one node"
            await store._driver.sleep(0.01)
        await store.close()

    async def in_a_loop(url: str, proxy: Proxy) -> None:
        await leave(open_store(url, Asyncio()), proxy)

    with Proxy(three[0].address) as proxy:
        url = f"redlock://127.0.0.1:{proxy.port}," + ",".join(f"127.0.0.1:{node.port}" for node in three[1:])
        if kind == "threads":
            finish(leave(open_store(url, Threads()), proxy))
        else:
            factory = uvloop.new_event_loop if kind == "uvloop" else None
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(in_a_loop(url, proxy))


def test_a_proposal_that_is_given_back_late_takes_no_later_grant_along(three: list[Redis]) -> None:
    store = open_store(url_of(three), Threads())
    claim = Claim("x", new_holder(), "somebody", 60.0)
    first = finish(store.claim(claim))
    assert isinstance(first, Grant)
    assert finish(store.release(claim))
    second = finish(store.claim(claim))
    assert isinstance(second, Grant)
    assert second.token > first.token
    finish(store._leave_again(claim, first.token))
    assert list(finish(store.renew([second], 1.0))) == [second]
    assert None not in finish(store._leave_again(claim, second.token))
    assert list(finish(store.renew([second], 1.0))) == [None]
    finish(store.close())


NONSENSE = {
    "a status": b"+OK\r\n",
    "nothing": b"$-1\r\n",
    "an empty list": b"*0\r\n",
    "a number that nobody proposed": b":99999999999999999\r\n",
    "what would be a foreign value": b"*1\r\n:3\r\n",
    "a list of texts": b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n",
    "lists in a list": b"*2\r\n*1\r\n:1\r\n*0\r\n",
    "no text at all": b"-\xff\xfe\r\n",
}


@contextmanager
def rogue(answer: bytes) -> Iterator[int]:
    """The port of a node that lets us in, and gives this answer to whatever else it is asked."""
    listening = socket.create_server(("127.0.0.1", 0))

    def converse(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while told := connection.recv(65536):
                connection.sendall(b"+PONG\r\n" * (b"PING" in told) + answer * (b"EVALSHA" in told or b"SCAN" in told))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=converse, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_a_node_that_speaks_nonsense_is_in_trouble_by_itself(three: list[Redis]) -> None:
    """The other two are a majority: nobody notices, in threads and in asyncio."""

    async def converse(store: RedlockStore) -> None:
        one, two = (Claim(name, new_holder(), "somebody", 30.0, 1, capacity) for name, capacity in (("x", 1), ("y", 2)))
        for claim in (one, two):
            grant = await store.claim(claim)
            assert isinstance(grant, Grant)
            assert list(await store.renew([grant], 1.0)) == [grant]
            assert [holding.token for holding in (await store.inspect(claim.name)).holders] == [grant.token]
            assert await store.names(claim.name) == [claim.name]
            assert await store.release(claim)
        # Another one: the rogue has not let the first go, as far as we know, so that is told to leave again and again.
        grant = await store.claim(one._replace(holder=new_holder()))
        assert isinstance(grant, Grant)
        assert await store.evict("x", grant.token, "somebody")

    for answer in NONSENSE.values():
        with rogue(answer) as port:
            url = f"redlock://127.0.0.1:{port}," + ",".join(f"127.0.0.1:{node.port}" for node in three[:2])
            store = open_store(url, Threads())
            finish(converse(store))
            finish(store.close())

            async def in_a_loop(url: str = url) -> None:
                store = open_store(url, Asyncio())
                await converse(store)
                await store.close()

            asyncio.run(in_a_loop())


def test_a_foreign_value_is_a_misuse_only_on_a_majority_of_nodes(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks:
        for node in three[:1]:
            node.execute("LPUSH", "hf:redlock:{x}", "something else")
        lease = locks.lock("x").acquire()
        assert lease.release()
        for node in three:
            node.execute("SET", "hf:redlock:{x}", "hf:nodes are many")
        with pytest.raises(holdfast.Misuse, match=r"hf:redlock:\{x\}.*not written by holdfast"):
            locks.lock("x").acquire()
        assert locks.names() == []


def test_a_key_that_was_overwritten_costs_no_other_lease_its_renewal(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks:
        leases = [locks.lock(name).acquire() for name in "abc"]
        overwrite = "redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'something else')"
        for node in three:
            node.execute("EVAL", overwrite, "1", "hf:redlock:{b}")  # at once: the last node's claim may come just now
        grants = [lease._grant for lease in leases]
        assert list(finish(store_of(locks).renew(grants, 1.0))) == [grants[0], None, grants[2]]


def test_a_claim_in_line_that_comes_after_its_release_is_not_listed_for_long(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks, holdfast.connect(url_of(three)) as others:
        held = others.lock("x").acquire()
        store = store_of(locks)
        claim = Claim("x", new_holder(), "somebody", 30.0)
        finish(store.claim(claim))
        request = store._claim_request(claim, store._attempts[claim.holder])
        assert finish(store.release(claim))
        late = Question(request, lambda _: True, lambda answers: None not in answers)
        finish(store._fan.ask(late, 3.0, 3.0))
        assert len(others.inspect("x").waiters) == 1
        finish(store.release(claim))
        assert others.inspect("x").waiters == ()
        held.release()


def test_nodes_that_rest_are_asked_when_the_others_are_too_few(three: list[Redis]) -> None:
    """Two are killed and come back at once: nobody waits for a second before looking at them again."""
    with holdfast.connect(url_of(three, "?timeout=2")) as locks:
        locks.lock("x").acquire().release()
        for node in three[:2]:
            node.kill()
        with pytest.raises(Unavailable):
            locks.lock("x").acquire(timeout=0)
        for node in three[:2]:
            node.restart()
        assert locks.lock("x").acquire(timeout=0).release()


def test_a_silent_majority_is_told_within_the_time_that_was_asked(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three, "?timeout=30")) as locks:
        store = store_of(locks)
        claim = Claim("x", new_holder(), "somebody", 30.0)
        grant = finish(store.claim(claim))
        assert isinstance(grant, Grant)
        with paused(three[1:]):
            for conversation in (
                lambda: store.claim(Claim("y", new_holder(), "somebody", 30.0), 0.5),
                lambda: store.release(claim, 0.5),
                lambda: store.inspect("x", 0.5),
                lambda: store.renew([grant], 0.5),
            ):
                started = time.monotonic()
                with pytest.raises(Unavailable):
                    finish(conversation())
                assert time.monotonic() - started < 5.0
            started = time.monotonic()
            finish(store.close())
            assert time.monotonic() - started < 5.0


def test_a_lease_that_too_few_nodes_answer_for_is_unknown_and_the_others_are_not(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks:
        store = store_of(locks)
        grants = []
        for name in ("x", "y", "z"):
            grant = finish(store.claim(Claim(name, new_holder(), "somebody", 30.0)))
            assert isinstance(grant, Grant)
            grants.append(grant)
        three[0].execute("DEL", "hf:redlock:{y}")  # on one node: of the other two, both are needed
        for node in three[:2]:
            node.execute("DEL", "hf:redlock:{z}")
        with paused(three[2:]):
            kept, unknown, lost = finish(store.renew(grants, 0.5))
        assert kept == grants[0]
        assert isinstance(unknown, Unavailable)
        assert lost is None


def test_5000_readers_of_one_name_come_and_go(three: list[Redis]) -> None:
    """More than cmsgpack packs or unpacks at once."""
    fill = """
        local time = redis.call('TIME')
        local now = time[1] * 1000000 + time[2]
        local parts = {redis.call('GETRANGE', KEYS[1], 0, 14)}
        for i = 1, 5000 do
            parts[i + 1] = cmsgpack.pack({'h' .. i, i, now + 60000000, 60000000, now, 1, 2147483647, '', 'o', ''})
        end
        return redis.call('SET', KEYS[1], table.concat(parts), 'PX', 600000)"""
    with holdfast.connect(url_of(three, "?timeout=2")) as locks:
        assert locks.rwlock("x", ttl=60).read().acquire().release()
        for node in three:
            node.execute("EVAL", fill, 1, "hf:redlock:{x}")
        reader = locks.rwlock("x", ttl=60).read().acquire(timeout=0)
        assert len(locks.inspect("x").holders) == 5001
        assert list(finish(store_of(locks).renew([reader._grant], 2.0))) == [reader._grant]
        assert reader.release()


def test_nodes_that_are_out_of_memory_let_leave_and_renew(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks:
        leaving, staying = locks.lock("x").acquire(), locks.lock("y", ttl=1.5).acquire()
        for node in three:
            node.execute("CONFIG", "SET", "maxmemory", 1)
        assert leaving.release()
        time.sleep(2)
        assert staying.held
        with pytest.raises(Unavailable, match="out of memory"):
            locks.lock("z").acquire(timeout=0)
