"""What a Redlock must not lose, forget or give away when nodes, connections and clocks are in trouble."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
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
from holdfast.stores.redis.keys import pack
from holdfast.stores.redis.scripts import Script
from holdfast.stores.redlock import open_store, scripts
from holdfast.stores.redlock.answers import Question
from holdfast.stores.redlock.store import RedlockStore
from holdfast.sync import Locks
from holdfast.testing.conformance.network import Network
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
Scenario = Callable[[list[Redis]], None]


def url_of(nodes: list[Redis], options: str = "") -> str:
    return "redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes) + options


def until(condition: Callable[[], bool], within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def store_of(locks: Locks) -> RedlockStore:
    store = locks._engine.store
    assert isinstance(store, RedlockStore)
    return store


@contextmanager
def paused(nodes: list[Redis]) -> Iterator[None]:
    for node in nodes:
        node.pause()
    try:
        yield
    finally:
        for node in nodes:
            node.resume()


def hang_up(nodes: list[Redis]) -> None:
    """What `timeout 60`, a balancer or a rolling restart do to connections."""
    for node in nodes:
        node.execute("CLIENT", "KILL", "TYPE", "normal")


# ---- tokens and clocks

HOURS = 2 * 3600 * 1_000_000


class Ahead:
    """A driver whose wall clock is hours off."""

    def __init__(self, driver: object, by: int) -> None:
        self._driver = driver
        self._by = by

    def wall_us(self) -> int:
        return int(self._driver.wall_us()) + self._by  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._driver, name)


def set_clock(locks: Locks, by: int) -> None:
    store = store_of(locks)
    store._driver = Ahead(store._driver, by)  # type: ignore[assignment]


def a_token_of_a_clock_that_was_ahead_is_not_forgotten(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes, "?retention=0.2")) as ahead, holdfast.connect(url_of(nodes)) as right:
        set_clock(ahead, HOURS)
        lease = ahead.lock("x", ttl=0.5).acquire()
        assert lease.release()
        time.sleep(1)
        assert right.lock("x").acquire(timeout=5).token > lease.token


def nor_when_it_was_renewed(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes, "?retention=0.2")) as ahead, holdfast.connect(url_of(nodes)) as right:
        set_clock(ahead, HOURS)
        store = store_of(ahead)
        grant = finish(store.claim(Claim("x", new_holder(), "somebody", 0.5)))
        assert isinstance(grant, Grant)
        assert list(finish(store.renew([grant], 0.4))) == [grant]
        time.sleep(1)
        assert right.lock("x").acquire(timeout=5).token > grant.token


def a_client_whose_clock_lags_gets_no_token_below_one_that_was_forgotten(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes, "?retention=0.2")) as right:
        lease = right.lock("x", ttl=0.5).acquire()
        assert lease.release()
        until(lambda: all(node.execute("EXISTS", "hf:redlock:{x}") == 0 for node in nodes))
        with holdfast.connect(url_of(nodes, "?retention=0.2")) as lagging:
            set_clock(lagging, -HOURS)
            assert lagging.lock("x").acquire(timeout=5).token > lease.token


KEPT = "math.max(last, mark, now) - now"
MUTANTS: list[tuple[str, Scenario, Script, str, str]] = [
    ("marks expire", a_token_of_a_clock_that_was_ahead_is_not_forgotten, scripts.RELEASE, KEPT, "last - now"),
    ("marks expire when renewed", nor_when_it_was_renewed, scripts.RENEW, KEPT, "last - now"),
    (
        "what was forgotten is nothing",
        a_client_whose_clock_lags_gets_no_token_below_one_that_was_forgotten,
        scripts.CLAIM,
        "return math.max(0, now - retention), {}",
        "return 0, {}",
    ),
]


@pytest.mark.parametrize("scenario", dict.fromkeys(one[1] for one in MUTANTS))
def test_tokens_rise_whatever_the_clocks_say(three: list[Redis], scenario: Scenario) -> None:
    scenario(three)


@pytest.mark.parametrize(
    ("scenario", "script", "old", "new"), [pytest.param(*rest, id=name) for name, *rest in MUTANTS]
)
def test_a_mistake_is_found(
    three: list[Redis], monkeypatch: pytest.MonkeyPatch, scenario: Scenario, script: Script, old: str, new: str
) -> None:
    assert old.encode() in script.text, f"the script has changed: {old!r} is no longer in it"
    text = script.text.replace(old.encode(), new.encode(), 1)
    monkeypatch.setattr(script, "text", text)
    monkeypatch.setattr(script, "sha", hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
    monkeypatch.setattr(script, "head", script.with_arguments(script.arguments))
    monkeypatch.setattr(script, "load", pack("SCRIPT", "LOAD", text))
    with pytest.raises(AssertionError):
        scenario(three)


# ---- a lock that is held is not given away


def a_downgrade_without_a_majority_gives_nothing_away(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes)) as locks, holdfast.connect(url_of(nodes)) as others:
        others.lock("warm").acquire().release()
        writer = locks.rwlock("x", ttl=30).write().acquire()
        with paused(nodes[1:]), pytest.raises(Unavailable):
            writer.downgrade()
        until(lambda: len(locks.inspect("x").holders) == 1)
        assert writer.held
        assert others.rwlock("x", ttl=30).write().try_acquire() is None, "two writers"
        writer.downgrade()
        reader = others.rwlock("x").read().acquire(timeout=5)
        assert reader.token > writer.token
        assert writer.release()


def nor_does_a_claim_that_is_repeated_for_another_time(nodes: list[Redis]) -> None:
    """As once(at_least=) does."""
    with holdfast.connect(url_of(nodes)) as locks, holdfast.connect(url_of(nodes)) as others:
        store = store_of(locks)
        claim = Claim("x", new_holder(), "somebody", 30.0)
        grant = finish(store.claim(claim))
        assert isinstance(grant, Grant)
        with paused(nodes[1:]), pytest.raises(Unavailable):
            finish(store.claim(claim._replace(ttl=20.0, queue=False)))
        until(lambda: len(locks.inspect("x").holders) == 1)
        assert others.lock("x").try_acquire() is None, "two holders"
        again = finish(store.claim(claim._replace(ttl=20.0, queue=False)))
        assert isinstance(again, Grant)
        assert again.token == grant.token


HELD: list[Scenario] = [
    a_downgrade_without_a_majority_gives_nothing_away,
    nor_does_a_claim_that_is_repeated_for_another_time,
]


@pytest.mark.parametrize("scenario", HELD)
def test_what_is_held_is_not_given_away(three: list[Redis], scenario: Scenario) -> None:
    scenario(three)


@pytest.mark.parametrize("scenario", HELD)
def test_giving_it_away_is_found(three: list[Redis], monkeypatch: pytest.MonkeyPatch, scenario: Scenario) -> None:
    async def given_away(
        self: RedlockStore, claim: Claim, attempt: object, sent: float, deadline: float
    ) -> Grant | holdfast.claim.Place:
        answers = await self._ask(
            self._claim_request(claim, attempt),  # type: ignore[arg-type]
            lambda _: True,
            self._decided,
            *self._shares(claim.ttl, deadline),
            claim.name,
        )
        if sum(type(answer) is int for answer in answers) >= self._majority:
            return Grant(claim, attempt.token, claim.ttl)  # type: ignore[attr-defined]
        return await self._refused(claim, attempt, answers, deadline)  # type: ignore[arg-type]

    monkeypatch.setattr(RedlockStore, "_repeated", given_away)
    with pytest.raises((AssertionError, holdfast.LeaseLost)):
        scenario(three)


def test_a_granted_claim_that_is_gone_is_no_grant_when_repeated(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks, holdfast.connect(url_of(three)) as others:
        store = store_of(locks)
        claim = Claim("x", new_holder(), "somebody", 0.3)
        assert isinstance(finish(store.claim(claim)), Grant)
        newer = others.lock("x").acquire(timeout=5)
        assert not isinstance(finish(store.claim(claim._replace(queue=False))), Grant)
        assert newer.release()
        assert isinstance(finish(store.claim(claim)), Grant)


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
        for node in three:
            node.execute("DEL", "hf:redlock:{b}")
            node.execute("LPUSH", "hf:redlock:{b}", "something else")
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
