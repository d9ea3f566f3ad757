"""No call takes longer than it was given, whatever the server does; and whoever waits can be woken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.errors import Unavailable
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.zookeeper import ZooKeeper

from ..hands import SOON, Background, Connect, until
from .hands import session_of

pytestmark = pytest.mark.server

WITHIN = 0.4
PATIENT = "?timeout=30"  # which is how long it takes without the bound
AT_MOST = WITHIN + 5.0  # a machine may be busy


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with servers.start("zookeeper", "forceSync=no") as started:
        assert isinstance(started, ZooKeeper)
        yield started


@pytest.fixture
def silent(server: ZooKeeper) -> Iterator[Callable[[], None]]:
    """To be called when it shall stop to answer."""
    yield server.pause
    server.resume()


def claim(name: str = "x", ttl: float = 9.0) -> Claim:
    return Claim(name, new_holder(), "somebody", ttl)


async def took(call: Coroutine[Any, Any, Any]) -> float:
    began = time.monotonic()
    with pytest.raises(Unavailable):
        await call
    return time.monotonic() - began


async def every_call_is_bounded(store: Any, mine: Claim) -> None:
    assert await took(store.claim(claim("y"), WITHIN)) < AT_MOST
    assert await took(store.claim(mine, WITHIN)) < AT_MOST
    assert await took(store.inspect("x", WITHIN)) < AT_MOST
    assert await took(store.release(mine, WITHIN)) < AT_MOST


async def it_closes_soon(store: Any) -> None:
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 5


def test_a_silent_server_holds_up_no_call_in_threads(
    server: ZooKeeper, silent: Callable[[], None], connect: Connect, root: str
) -> None:
    known, fresh = (
        connect(server.url + root + PATIENT)._engine.store,
        connect(server.url + root + PATIENT)._engine.store,
    )
    mine = claim()
    finish(known.claim(mine))
    silent()
    finish(every_call_is_bounded(known, mine))
    assert finish(took(fresh.claim(claim("z"), WITHIN))) < AT_MOST
    began = time.monotonic()
    finish(known.watch("x", 1, WITHIN))  # nothing to be heard is no trouble: it was asked to wait so long
    assert time.monotonic() - began < AT_MOST
    finish(it_closes_soon(known))
    finish(it_closes_soon(fresh))


def test_a_silent_server_holds_up_no_call_in_asyncio(server: ZooKeeper, silent: Callable[[], None], root: str) -> None:
    async def main() -> None:
        known, fresh = (aio.connect(server.url + root + PATIENT)._engine.store for _ in range(2))
        mine = claim()
        await known.claim(mine)
        silent()
        await every_call_is_bounded(known, mine)
        assert await took(fresh.claim(claim("z"), WITHIN)) < AT_MOST
        await it_closes_soon(known)
        await it_closes_soon(fresh)

    asyncio.run(main())


def test_a_silent_session_makes_its_own_leases_unknown_and_no_others(
    server: ZooKeeper, connect: Connect, root: str
) -> None:
    locks = connect(server.url + root + PATIENT)
    store: Any = locks._engine.store
    claims = [claim(f"x{number}", ttl) for number, ttl in enumerate((9, 20, 9, 20))]
    grants = [finish(store.claim(one)) for one in claims]
    finish(store.release(claims[3]))
    quiet = store._sessions._open[12.0]
    call = quiet.client.call
    quiet.client.call = lambda request, reply: None  # what it is asked is never answered
    began = time.monotonic()
    verdicts = finish(store.renew(grants, 2.0))  # enough for the others to answer
    assert time.monotonic() - began < AT_MOST + 2.0
    quiet.client.call = call
    assert isinstance(verdicts[0], Unavailable)
    assert isinstance(verdicts[2], Unavailable)
    assert verdicts[1] == grants[1]
    assert verdicts[3] is None
    until(
        lambda: finish(store.renew(grants[:1], SOON)) == [grants[0]]
    )  # over another connection, if it was silent for long


def test_of_a_session_that_has_ended_the_leases_are_lost(server: ZooKeeper, connect: Connect, root: str) -> None:
    locks = connect(server.url + root)
    store: Any = locks._engine.store
    short, long = finish(store.claim(claim("x", 9))), finish(store.claim(claim("y", 20)))
    store._sessions._open[12.0].end()
    assert finish(store.renew([short, long], SOON)) == [None, long]


@pytest.mark.parametrize("reset", [False, True])
def test_a_release_whose_connection_breaks_is_repeated_at_once(
    server: ZooKeeper, connect: Connect, root: str, reset: bool
) -> None:
    with Proxy(server.address) as proxy:
        ours, theirs = connect(f"zookeeper://127.0.0.1:{proxy.port}{root}{PATIENT}"), connect(server.url + root)
        held = ours.lock("x", ttl=20).acquire()
        waiting = Background(lambda: theirs.lock("x", ttl=20).acquire(timeout=30))
        until(lambda: theirs.inspect("x").waiters)
        proxy.to_server.drop(chunks=1)  # the deletion itself is lost
        releasing = Background(held.release)
        proxy.to_server.wait_for_caught(1)
        cut = time.monotonic()
        proxy.cut(reset=reset)
        assert waiting.result().token > held.token
        assert waiting.ended_at - cut < 10.0  # and not 30 seconds, for which an unanswered request is waited for
        assert releasing.result() is True


def test_who_waits_and_who_watches_is_woken_from_another_thread(server: ZooKeeper, connect: Connect, root: str) -> None:
    locks = connect(server.url + root)
    store: Any = locks._engine.store
    grant = finish(store.claim(claim()))
    place = finish(store.claim(claim()))
    assert isinstance(grant, Grant)
    assert isinstance(place, Place)
    doing = [
        Background(lambda: finish(store.wait(place, 30.0))),
        Background(lambda: finish(store.watch("x", grant.token, 30.0))),
    ]
    until(lambda: store._looking._bells)
    time.sleep(0.1)
    assert all(one.is_alive() for one in doing)
    store.wake_waiters()
    for one in doing:
        one.result(5.0)


def test_closing_wakes_who_waits_in_asyncio(server: ZooKeeper, root: str) -> None:
    async def main() -> None:
        async with aio.connect(server.url + root) as locks:
            store: Any = locks._engine.store
            grant = await store.claim(claim())
            place = await store.claim(claim())
            waits = [
                asyncio.ensure_future(store.wait(place, 30.0)),
                asyncio.ensure_future(store.watch("x", grant.token, 30.0)),
            ]
            await asyncio.sleep(0.2)
            assert not any(one.done() for one in waits)
            store.wake_waiters()
            async with asyncio.timeout(5):
                await asyncio.gather(*waits)

    asyncio.run(main())


def test_a_short_timeout_does_not_break_the_connection_of_others(
    server: ZooKeeper, connect: Connect, root: str
) -> None:
    """An answer that one caller has no time for is not the silence of a server."""
    with Proxy(server.address) as proxy:
        locks = connect(f"zookeeper://127.0.0.1:{proxy.port}{root}")
        locks.lock("x", ttl=9).acquire().release()
        connections = proxy.accepted
        proxy.to_client.hold()
        with pytest.raises(Unavailable):
            finish(locks._engine.store.claim(claim(), 0.05))
        proxy.flow()
        assert locks.lock("y", ttl=9).acquire(timeout=5).release()
        assert proxy.accepted == connections
        assert session_of(locks).suspended is None
        with pytest.raises(holdfast.NotAcquired):  # it arrived, and is taken away as soon as its time is over
            locks.lock("x", ttl=9).acquire(timeout=0)
