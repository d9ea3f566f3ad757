"""Three verdicts, a lease at a time: one row or connection in trouble costs nobody else anything."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from holdfast.claim import Grant
from holdfast.errors import Unavailable
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.mariadb import MariaDB

from .admin import Admin
from .worlds import WORLDS, beside, claim, run

pytestmark = [pytest.mark.server, pytest.mark.parametrize("world", WORLDS)]


async def granted(store: Any, *names: str, ttl: float = 30.0) -> list[Grant]:
    grants = [await store.claim(claim(name, ttl)) for name in names]
    assert all(isinstance(grant, Grant) for grant in grants)
    return grants


def test_a_row_that_somebody_does_not_let_go_of_is_unknown_and_the_others_are_kept(
    world: str, url: str, admin: Admin
) -> None:
    async def scenario(store: Any) -> None:
        grants = await granted(store, "a", "b", "c", "gone")
        await store.release(grants[3].claim)
        admin.run("BEGIN")
        admin.run("SELECT 1 FROM holdfast_claims WHERE name = 'b' FOR UPDATE")
        try:
            started = time.monotonic()
            a, b, c, gone = await store.renew(grants, 1.0)
            assert time.monotonic() - started < 3
        finally:
            admin.run("ROLLBACK")
        assert (a, c, gone) == (grants[0], grants[2], None)
        assert isinstance(b, Unavailable)
        assert await store.renew(grants, 3.0) == [*grants[:3], None]

    run(world, url, scenario)


def test_a_row_that_is_busy_for_a_moment_is_waited_for(world: str, url: str, admin: Admin) -> None:
    async def scenario(store: Any) -> None:
        grants = await granted(store, "a", "b")
        admin.run("BEGIN")
        admin.run("SELECT 1 FROM holdfast_claims WHERE name = 'b' FOR UPDATE")
        renewed = await beside(world, lambda: store.renew(grants, 10.0))
        await store._driver.sleep(0.3)
        admin.run("ROLLBACK")
        assert list(await renewed(10.0)) == grants

    run(world, f"{url}?timeout=10", scenario)


def test_a_session_whose_connection_is_stuck_is_unknown_then_kept_and_the_others_are_kept(
    world: str, url: str, mariadb: MariaDB
) -> None:
    with Proxy(mariadb.address) as proxy:

        async def scenario(store: Any) -> None:
            grants = await granted(store, "a", "b", "c")
            caught: list[bytes] = []

            def first_ping(data: bytes) -> bool:
                if b"DO 1" in data and not caught:
                    caught.append(data)
                    return True
                return False

            proxy.to_server.hold(when=first_ping)
            answered: set[int] = set()
            rounds = 0
            while len(answered) < 2 or rounds < 2:  # late is not lost, however often it is asked
                verdicts = await store.renew(grants, 0.5)
                assert None not in verdicts
                answered |= {at for at in range(3) if verdicts[at] == grants[at]}
                rounds += 1
                assert rounds < 20
            assert len(answered) == 2
            proxy.flow()
            assert list(await store.renew(grants, 5.0)) == grants
            assert [await store.release(grant.claim) for grant in grants] == [True] * 3

        run(world, f"{url}?mode=session".replace(str(mariadb.port), str(proxy.port)), scenario)


def test_a_session_is_released_though_the_connection_of_another_is_stuck(
    world: str, url: str, mariadb: MariaDB
) -> None:
    with Proxy(mariadb.address) as proxy:

        async def scenario(store: Any) -> None:
            grants = await granted(store, "a", "b")
            proxy.to_server.hold(chunks=1, when=lambda data: b"DO 1" in data)
            renewing = await beside(world, lambda: store.renew(grants, 20.0))
            while not proxy.to_server.caught.chunks:
                await store._driver.sleep(0.01)
            await store._driver.sleep(0.2)  # so that the other has answered
            started = time.monotonic()
            done = [await beside(world, partial(store.release, grant.claim, 10.0)) for grant in grants]
            while () not in [(await store.inspect(name)).holders for name in "ab"]:
                assert time.monotonic() - started < 8  # and not when the renewal is over
            proxy.flow()
            await renewing(30.0)
            for one in done:
                await one(30.0)

        run(world, f"{url}?mode=session&timeout=20".replace(str(mariadb.port), str(proxy.port)), scenario)


def test_a_session_whose_connection_has_ended_is_lost_and_the_others_are_kept(
    world: str, url: str, admin: Admin
) -> None:
    async def scenario(store: Any) -> None:
        grants = await granted(store, "a", "b")
        ((number,),) = admin.run("SELECT IS_USED_LOCK(lock_key) FROM holdfast_sessions WHERE name = 'a'")
        admin.run(f"KILL {number}")
        assert list(await store.renew(grants, 3.0)) == [None, grants[1]]

    run(world, f"{url}?mode=session", scenario)
