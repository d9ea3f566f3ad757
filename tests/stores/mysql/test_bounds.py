"""Every call is over when it was told to be, and what wakes or closes does so at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.claim import Grant, Place
from holdfast.errors import Unavailable
from holdfast.testing.alarms import alarms
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.mariadb import MariaDB

from .admin import Admin, until
from .worlds import MODES, WORLDS, beside, claim, run

pytestmark = [pytest.mark.server, pytest.mark.parametrize("world", WORLDS)]


@pytest.fixture(params=MODES)
def place(request: pytest.FixtureRequest, url: str) -> str:
    return f"{url}?timeout=30&mode={request.param}"


@pytest.fixture(name="alarms")
def ringing() -> Iterator[None]:
    with alarms(0.1):
        yield


async def takes(seconds: float, call: Any) -> None:
    started = time.monotonic()
    with pytest.raises(Unavailable):
        await call
    assert time.monotonic() - started < seconds + 5


def test_a_silent_server_is_unavailable_in_time_though_signals_interrupt(
    world: str, place: str, mariadb: MariaDB, alarms: None
) -> None:
    async def scenario(store: Any) -> None:
        held = claim("held")
        grant = await store.claim(held)
        assert isinstance(grant, Grant)
        mariadb.pause()
        try:
            await takes(0.5, store.claim(claim(), 0.5))  # on a connection that is there
            await takes(0.5, store.claim(claim(), 0.5))  # and on a new one
            await takes(0.5, store.inspect("x", 0.5))
            started = time.monotonic()
            try:
                verdicts = await store.renew([grant], 0.5)
                assert isinstance(verdicts[0], Unavailable)
            except Unavailable:
                pass
            assert time.monotonic() - started < 5
            await takes(0.5, store.release(held, 0.5))
            started = time.monotonic()
            await store.close()
            assert time.monotonic() - started < 5
        finally:
            mariadb.resume()

    run(world, place, scenario)


def test_a_wait_ends_when_it_was_told_to(world: str, place: str, mariadb: MariaDB, alarms: None) -> None:
    async def scenario(store: Any) -> None:
        first, second = claim(), claim()
        assert isinstance(await store.claim(first), Grant)
        line = await store.claim(second)
        assert isinstance(line, Place)
        started = time.monotonic()
        await store.wait(line, 0.5)
        assert 0.2 < time.monotonic() - started < 5
        mariadb.pause()
        try:
            started = time.monotonic()
            with contextlib.suppress(Unavailable):
                await store.wait(line, 0.5)
            assert time.monotonic() - started < 5
        finally:
            mariadb.resume()

    run(world, place, scenario)


def test_waiters_and_watchers_are_woken(world: str, place: str, admin: Admin) -> None:
    async def scenario(store: Any) -> None:
        first, second = claim(), claim()
        grant = await store.claim(first)
        line = await store.claim(second)
        waits = await beside(world, lambda: store.wait(line, 30.0))
        watches = await beside(world, lambda: store.watch("x", grant.token, 30.0))
        await store._driver.sleep(0.5)
        store.wake_waiters()
        await waits(3.0)
        await watches(3.0)
        await store.release(second)  # as the engine does: its place is given up
        assert await store.release(first)
        assert isinstance(await store.claim(claim()), Grant)

    run(world, place, scenario)


def test_a_release_whose_connection_broke_is_repeated_at_once(world: str, place: str, mariadb: MariaDB) -> None:
    with Proxy(mariadb.address) as proxy:

        async def scenario(store: Any) -> None:
            for reset in (True, False):
                mine = claim()
                assert isinstance(await store.claim(mine), Grant)
                proxy.cut(reset=reset)
                await store.release(mine, 3.0)
                assert isinstance(await store.claim(other := claim(), 3.0), Grant)
                assert await store.release(other)

        run(world, place.replace(str(mariadb.port), str(proxy.port)), scenario)


def test_an_answer_to_a_release_that_was_lost_is_asked_for_again(world: str, url: str, mariadb: MariaDB) -> None:
    with Proxy(mariadb.address) as proxy:

        async def scenario(store: Any) -> None:
            mine = claim()
            assert isinstance(await store.claim(mine), Grant)
            proxy.to_client.hold()
            released = await beside(world, lambda: store.release(mine, 10.0))
            while not proxy.to_client.caught.chunks:
                await store._driver.sleep(0.01)
            proxy.cut(reset=True)  # the answer is lost; what a new connection is told waits until it may flow
            proxy.flow()
            await released(10.0)  # False: it found nothing any more
            assert isinstance(await store.claim(claim(), 3.0), Grant)

        run(world, f"{url}?timeout=30".replace(str(mariadb.port), str(proxy.port)), scenario)


def test_what_was_left_in_the_middle_is_ended_before_anything_else_is_said(world: str, url: str, admin: Admin) -> None:
    """A claim that hangs on a locked row, and whose sender has gone, would enter when the row is free: a ghost."""

    async def scenario(store: Any) -> None:
        mine = claim()
        assert isinstance(await store.claim(mine), Grant)
        assert await store.release(mine)
        admin.run("BEGIN")
        admin.run("SELECT 1 FROM holdfast_claims WHERE name = 'x' FOR UPDATE")
        with pytest.raises(Unavailable):
            await store.claim(mine, 0.3)
        await store.inspect("other")  # anything at all
        admin.run("ROLLBACK")
        running = "SELECT 1 FROM information_schema.PROCESSLIST WHERE COMMAND = 'Query' AND ID <> CONNECTION_ID()"
        until(lambda: not admin.run(running))
        assert (await store.inspect("x")).holders == ()

    run(world, f"{url}?timeout=30", scenario)
