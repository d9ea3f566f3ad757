"""A majority is enough to leave; what the last nodes say to it is neither waited for nor lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import holdfast
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.redlock import fan, open_store, polled, strays
from holdfast.stores.redlock import store as stores
from holdfast.stores.redlock.store import RedlockStore
from holdfast.testing.conformance.world import settled
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
IDLE = 15  # bytes: nothing but the last token
LONG = 60.0
Scenario = Callable[[RedlockStore], Coroutine[Any, Any, None]]


@contextmanager
def one_behind_a_proxy(nodes: list[Redis]) -> Iterator[tuple[str, Proxy]]:
    with Proxy(nodes[0].address) as proxy:
        ports = [proxy.port, *(node.port for node in nodes[1:])]
        yield "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "?timeout=10", proxy


def run(flavour: str, url: str, scenario: Scenario) -> None:
    async def in_a_loop() -> None:
        await scenario(open_store(url, Asyncio()))

    if flavour == "asyncio":
        asyncio.run(in_a_loop())
    else:
        finish(scenario(open_store(url, Threads())))


async def until(store: RedlockStore, condition: Callable[[], bool]) -> None:
    await true_by(store._driver, condition)


async def true_by(driver: Any, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await driver.sleep(0.01)


def somebody() -> Claim:
    return Claim("x", new_holder(), "somebody", LONG)


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_the_last_node_is_not_waited_for_and_its_late_answer_is_heard(
    three: list[Redis], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "LAST", LONG)
    monkeypatch.setattr(strays, "_FIRST_PAUSE", LONG)  # it is not told again meanwhile
    monkeypatch.setattr(polled, "_FRESH", LONG)  # nor looked at before it is asked again

    async def leave(store: RedlockStore) -> None:
        claim = somebody()
        assert isinstance(await store.claim(claim), Grant)
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") not in (0, IDLE))
        proxy.to_client.hold()
        started = time.monotonic()
        assert await store.release(claim)
        assert time.monotonic() - started < LONG / 2
        (stray,) = store._strays._owed.values()
        assert not stray.is_heard
        proxy.flow()
        assert [type(answer) for answer in await store._inspect("x", LONG)] == [list] * 3
        assert stray.is_heard  # what the first said late was read before what it said to this
        await store.close()

    with one_behind_a_proxy(three) as (url, proxy):
        run(flavour, url, leave)


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_a_node_that_is_slow_to_connect_is_asked_all_the_same(three: list[Redis], flavour: str) -> None:
    """A majority is enough to enter, but what fewer nodes know of survives the loss of fewer."""

    async def enter(store: RedlockStore) -> None:
        proxy.to_client.hold()
        claim = somebody()
        assert isinstance(await store.claim(claim), Grant)
        proxy.flow()
        if flavour == "threads":  # whoever asks next reads what has come
            await until(store, lambda: None not in finish(store._inspect("y", 1.0)))
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") not in (0, IDLE))
        assert await store.release(claim)
        await store.close()

    with one_behind_a_proxy(three) as (url, proxy):
        run(flavour, url, enter)


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_closing_waits_a_moment_for_releases_that_are_still_under_way(
    three: list[Redis], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is closed with answers unread is reset, and what was sent on it last may be lost."""
    monkeypatch.setattr(fan, "LAST", LONG)
    monkeypatch.setattr(strays, "_FIRST_PAUSE", LONG)

    async def leave(store: RedlockStore) -> None:
        claim = somebody()
        assert isinstance(await store.claim(claim), Grant)
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") not in (0, IDLE))
        proxy.to_server.hold()
        assert await store.release(claim)
        flow = threading.Timer(0.2, proxy.flow)
        flow.start()
        await store.close(0.0)  # and nobody is told once more
        assert three[0].execute("STRLEN", "hf:redlock:{x}") == IDLE, "a ghost is left on one node"
        flow.join()

    with one_behind_a_proxy(three) as (url, proxy):
        run(flavour, url, leave)


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_closing_tells_a_node_once_more_that_did_not_hear_of_a_release(
    three: list[Redis], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its ghost stays for the rest of its ttl; and with another node down, nobody gets in until then."""
    monkeypatch.setattr(strays, "_FIRST_PAUSE", LONG)  # it is not told in the background before that

    async def leave(store: RedlockStore) -> None:
        claim = somebody()
        assert isinstance(await store.claim(claim), Grant)
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") not in (0, IDLE))
        proxy.to_server.hold()
        assert await store.release(claim)
        proxy.cut(reset=True)
        proxy.flow()
        await store.close(LONG)
        assert three[0].execute("STRLEN", "hf:redlock:{x}") == IDLE, "a ghost is left on one node"

    with one_behind_a_proxy(three) as (url, proxy):
        run(flavour, url, leave)


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_who_tries_again_and_again_makes_nobody_forget_what_others_have_to_take_back(
    three: list[Redis], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty who waited pushed out, within the half second that a node was silent, what was left there of those who had left."""
    monkeypatch.setattr(strays, "_FIRST_PAUSE", LONG)
    monkeypatch.setattr(strays, "_MOST", 4)

    async def leave(store: RedlockStore) -> None:
        claim, holder, waiter = somebody(), somebody()._replace(name="y"), somebody()._replace(name="y")
        assert isinstance(await store.claim(claim), Grant)
        assert isinstance(await store.claim(holder), Grant)
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") not in (0, IDLE))
        proxy.to_server.hold()
        assert await store.release(claim)
        for _ in range(10):
            assert isinstance(await store.claim(waiter), Place)
        proxy.cut(reset=True)
        proxy.flow()
        await store.close(LONG)
        assert three[0].execute("STRLEN", "hf:redlock:{x}") == IDLE, "a ghost is left on one node"

    with one_behind_a_proxy(three) as (url, proxy):
        run(flavour, url, leave)


def test_who_tells_the_last_nodes_again_ends_with_the_store(
    three: list[Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strays, "_LINGERS", LONG)
    before = threading.enumerate()

    def at_work() -> bool:
        return any(one.name == "holdfast-strays" and one not in before for one in threading.enumerate())

    with one_behind_a_proxy(three) as (url, proxy):
        with holdfast.connect(url) as locks:
            lease = locks.lock("x").acquire()
            proxy.to_client.hold()
            assert lease.release()
            assert at_work()
            proxy.flow()
        deadline = time.monotonic() + 20
        while at_work():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_a_claim_that_arrives_at_a_node_when_all_is_over_does_not_stay(three: list[Redis], flavour: str) -> None:
    """The others were enough, and it hung up. What is left of two such claims on two of three nodes would keep everybody out."""
    with one_behind_a_proxy(three) as (url, proxy):

        async def in_and_out(locks: Any) -> None:
            await settled((await settled(locks.lock("x").acquire(timeout=5))).release())
            proxy.to_server.hold(chunks=1)
            lease = await settled(locks.lock("x", ttl=LONG).acquire(timeout=5))
            proxy.to_server.wait_for_caught(1)
            proxy.hang_up()
            await settled(lease.release())
            driver, store = locks._engine.driver, locks._engine.store
            await true_by(driver, lambda: not store._strays._owed)  # every node has heard of the release
            proxy.deliver()
            proxy.flow()
            proxy.wait_until(lambda: proxy.late_answers > 0)
            await true_by(driver, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") == IDLE)

        async def in_a_loop() -> None:
            async with holdfast.aio.connect(url) as locks:
                await in_and_out(locks)

        if flavour == "asyncio":
            asyncio.run(in_a_loop())
        else:
            with holdfast.connect(url) as locks:
                finish(in_and_out(locks))


_ABOVE = """
local state = redis.call('GET', KEYS[1]) or 'hf:node' .. struct.pack('>d', 0)
redis.call('SET', KEYS[1], string.sub(state, 1, 7) .. struct.pack('>d', ARGV[1]) .. string.sub(state, 16))
"""


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_a_node_that_refuses_a_higher_proposal_lets_go_of_a_lower_one_that_it_has_accepted(
    three: list[Redis], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a semaphore: others went in above it, there and everywhere, each time before the next proposal came."""

    async def lose(store: RedlockStore) -> None:
        mint, proposed = store._mint, []

        def outrun(name: str) -> int:
            token = mint(name)
            proposed.append(token)
            for node in three[1:] if len(proposed) == 1 else three:
                node.execute("EVAL", _ABOVE, 1, "hf:redlock:{x}", token + 1)
            return token

        monkeypatch.setattr(store, "_mint", outrun)
        inside: list[Any] = []
        tell = store._tell

        def told(name: str, highest: int) -> None:
            inside.append(three[0].execute("STRLEN", "hf:redlock:{x}"))
            tell(name, highest)

        monkeypatch.setattr(store, "_tell", told)
        answer = await store.claim(Claim("x", new_holder(), "somebody", LONG, 1, 3))
        assert isinstance(answer, Place)
        assert max(inside) > IDLE, "the first was accepted there"
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") == IDLE)
        await store.close()

    run(flavour, "redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in three), lose)


def calls(node: Redis) -> int:
    return int(str(node.execute("INFO", "commandstats")).partition("cmdstat_evalsha:calls=")[2].partition(",")[0])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_no_release_overtakes_a_claim_that_a_node_has_not_answered(
    three: list[Redis], elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads have several connections to a node. `elsewhere`: another thread uses just now the one that the claim went by."""
    if not elsewhere:
        monkeypatch.setattr(strays, "_FIRST_PAUSE", LONG)  # it is not told again

    async def leave(store: RedlockStore) -> None:
        fan = store._fan
        assert isinstance(fan, polled.PolledFan)
        before = Claim("before", new_holder(), "somebody", LONG)
        assert isinstance(await store.claim(before), Grant)
        assert await store.release(before)
        fan._idle[0].settle(LONG)
        proxy.stick([(True, True)])
        claim = somebody()
        assert isinstance(await store.claim(claim), Grant)
        assert proxy.stuck == 1
        (group,) = fan._idle
        if elsewhere:
            fan._idle.clear()
            fan._busy[id(group)] = group
        else:
            fan._idle.append(fan._open())
        scripts = calls(three[0])
        assert await store.release(claim)
        if elsewhere:
            await until(store, lambda: calls(three[0]) > scripts)  # it was there first
        proxy.unstick()
        if elsewhere:
            fan._idle.append(group)
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") == IDLE)
        await store.close()

    with one_behind_a_proxy(three) as (url, proxy):
        run("threads", url, leave)


@pytest.mark.parametrize("flavour", ["threads", "asyncio"])
def test_a_node_whose_connection_is_lost_is_reached_again_though_the_others_are_enough(
    three: list[Redis], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is as if that node were down, for as long as the system goes on trying; and the next one is one too many."""
    monkeypatch.setattr(polled, "ROUND", 0.0)
    monkeypatch.setattr(polled, "_MOST_OWED", 1_000_000)
    monkeypatch.setattr(strays, "_FIRST_PAUSE", LONG)  # who tells it again in the background does find out

    async def go_on(store: RedlockStore) -> None:
        claim = somebody()
        await store.claim(claim)
        await until(store, lambda: three[0].execute("STRLEN", "hf:redlock:{x}") not in (0, IDLE))
        await store.release(claim)
        proxy.forget()

        async def in_and_out() -> bool:
            claim = somebody()._replace(name="y")
            await store.claim(claim)
            entered = three[0].execute("STRLEN", "hf:redlock:{y}") not in (0, IDLE)
            await store.release(claim)
            return entered

        deadline = time.monotonic() + 20
        while not await in_and_out():
            assert time.monotonic() < deadline, "it is never asked again"
            await store._driver.sleep(0.02)
        await store.close()

    with one_behind_a_proxy(three) as (url, proxy):
        run(flavour, url.replace("timeout=10", "timeout=0.5"), go_on)
