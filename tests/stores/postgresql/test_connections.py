"""What becomes of a connection that is in mid-conversation: given up, inherited, or of an event loop that has ended."""

from __future__ import annotations

import asyncio
import os
import stat
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import Unavailable
from holdfast.claim import Grant
from holdfast.drivers.aio import Asyncio
from holdfast.stores.postgresql import open_store
from holdfast.stores.postgresql.connection import LibpqConnection
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import claim_of
from .stores import LONG, OpenStore, Stored

pytestmark = pytest.mark.server


def claims(name: str, store: Any) -> Any:
    return store.claim(claim_of(name), LONG)


def whole(store: Stored) -> bool:
    """All of its connections, and leaves to open one, are back."""
    return len(store.store._wire._pool._lying) == 1


@pytest.mark.parametrize("what", ["claim", "renew"])
def test_a_connection_whose_answer_did_not_come_in_time_is_closed(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, what: str
) -> None:
    store = opened(proxy.address, "?pool=1&timeout=60")
    claim = claim_of("x")
    grant = store.grant(claim)
    proxy.to_client.hold()
    with pytest.raises(Unavailable, match="did not answer"):
        if what == "claim":
            store.claim(claim_of("y"), 0.3)
        else:
            store.renew([grant], 0.3)
    assert not _open_connections(store)
    proxy.flow()
    assert store.renew([grant], LONG) == [grant]
    assert whole(store)


def test_who_is_cancelled_leaves_its_answer_to_nobody(postgresql: PostgreSQL, proxy: Proxy) -> None:
    store = Stored(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?pool=1", asynchronous=True)
    try:
        store.release(store.grant(claim_of("x")).claim)
        connected = proxy.accepted
        proxy.to_client.hold()
        given_up = store.begin(lambda store: store.claim(claim_of("a"), LONG))
        proxy.to_client.wait_for_caught(1)
        given_up.cancel()
        store.do(lambda store: asyncio.sleep(0))  # by now it is
        names = ["b", "c", "d"]
        begun = [store.begin(partial(claims, name)) for name in names]
        store.do(lambda store: asyncio.sleep(0))
        proxy.flow()
        for name, one in zip(names, begun, strict=True):
            answer = one.result(LONG)
            assert isinstance(answer, Grant)
            assert answer.claim.name == name
            assert store.holders(name) == [answer.token]
        assert proxy.accepted == connected, "it was asked something before it had answered"
    finally:
        store.close()


def test_a_forked_child_lets_go_of_every_connection_also_of_those_that_are_in_use(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore
) -> None:
    store = opened(proxy.address, "?pool=2&timeout=60")
    grant = store.grant(claim_of("x"))
    store.renew([grant], LONG)
    store.release(store.grant(claim_of("z")).claim)
    proxy.to_client.hold()
    begun = [
        store.begin(lambda store: store.claim(claim_of("y"), LONG)),
        store.begin(lambda store: store.renew([grant], LONG)),
    ]
    proxy.to_client.wait_for_caught(2)
    numbers = [one.fileno() for one in _open_connections(store)]
    assert len(numbers) == 2

    def child() -> None:
        store.store.forked()
        assert not [number for number in numbers if stat.S_ISSOCK(os.fstat(number).st_mode)]

    assert in_child(child) == 0
    proxy.flow()
    assert isinstance(begun[0].result(LONG), Grant)
    assert begun[1].result(LONG) == [grant]


def _open_connections(store: Stored) -> list[LibpqConnection]:
    return [one for one in store.store._wire._everything if one.pgconn.status == 0]


def in_child(work: Callable[[], None]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other threads there are
        pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_in_a_new_event_loop_no_connection_of_the_old_one_is_asked(postgresql: PostgreSQL) -> None:
    store: Any = open_store(postgresql.url + "?pool=1", Asyncio())

    async def first() -> Grant:
        grant = await store.claim(claim_of("x"))
        await store.renew([grant], LONG)
        await store._wire.ask_aside(store._sql.inspect, (b"x",), LONG)
        assert isinstance(grant, Grant)
        return grant

    async def second(grant: Grant) -> None:
        try:
            assert list(await store.renew([grant], LONG)) == [grant]
            await store._wire.ask_aside(store._sql.inspect, (b"x",), LONG)
            assert await store.release(grant.claim)
        finally:
            await store.close()

    asyncio.run(second(asyncio.run(first())))  # at once: what was used just now is not looked at by threads


def test_two_who_waited_for_a_row_may_leave_together(postgresql: PostgreSQL, opened: OpenStore) -> None:
    class Raced(dict[bytes, Any]):
        def get(self, name: bytes, default: Any = None) -> Any:
            found = super().get(name, default)
            self.clear()  # by the other, in that moment
            return found

    store = opened(postgresql.url)
    store.grant(claim_of("x"))
    store.store._wire._rows = Raced()
    store.do(lambda store: store._wire.ask_aside(store._sql.inspect, (b"x",), LONG))


def test_what_was_released_is_said_again_by_one_connection_at_a_time(postgresql: PostgreSQL, proxy: Proxy) -> None:
    """All at once they stood in each other's way, for longer than connections lived that were cut all the time."""

    async def scenario() -> None:
        store: Any = open_store(postgresql.url.replace(str(postgresql.port), str(proxy.port)), Asyncio())
        wire = store._wire
        claim = claim_of("x")
        assert isinstance(await store.claim(claim), Grant)
        assert await store.release(claim)
        wire.released.doubtful = True
        proxy.to_server.hold(when=lambda data: claim.holder.encode() in data)
        opening = asyncio.ensure_future(wire.open(wire._kind, wire._now() + 20))
        await asyncio.to_thread(proxy.to_server.wait_for_caught, 1)
        other = await wire.open(wire._kind, wire._now() + 5)  # which would be caught, too
        proxy.cut()
        with pytest.raises(Unavailable) as failed:
            await opening
        proxy.flow()
        assert wire.released.doubtful
        connection = await wire.open(wire._kind, wire._now() + 5)
        assert not wire.released.doubtful, f"after {failed.value!r}, nobody has said it"
        other.close()
        connection.close()
        await store.close()

    asyncio.run(scenario())
