"""MySQL, which is not MariaDB: another grammar, other locks. What differs is asked here; `make server-versions` asks more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

import holdfast
from holdfast.testing import servers
from holdfast.testing.conformance import World
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.conformance.world import settled
from holdfast.testing.servers.base import Server

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def mysql() -> Iterator[Server]:
    with servers.start("mysql") as server:
        yield server


class TestMySqlItself(Exclusion, Tokens):
    @pytest.fixture(params=["threads", "asyncio"])
    def world(self, request: pytest.FixtureRequest, mysql: Server) -> Iterator[World]:
        stage = World(mysql.url, request.param, 1.0, 2.0)
        yield stage
        stage.end()

    @pytest.mark.parametrize("mode", ["lease", "session"])
    def test_a_lease_is_renewed_looked_at_and_given_back(self, world: World, mysql: Server, mode: str) -> None:
        async def live(locks: Any) -> tuple[int, int, list[str]]:
            lease = await settled(locks.lock(f"{mode} x").acquire(timeout=10))
            for _ in range(3):  # a statement in a procedure is prepared the first time only
                await settled(lease.renew())
            inside = (await settled(locks.inspect(f"{mode} x"))).holders
            await settled(lease.release())
            return lease.token, inside[0].token, await settled(locks.names())

        token, shown, names = world.actor("a", url=f"{mysql.url}?mode={mode}").do(live)
        assert token == shown
        assert f"{mode} x" not in names


@pytest.mark.parametrize("bell", ["x'ff'", "REPEAT(x'c3a9', 16)", "x'00'", "NULL", "''", "'no bell'"])
def test_nobody_is_kept_inside_by_a_bell_that_is_none(mysql: Server, bell: str) -> None:
    """In the line by hand: MySQL refuses to look for a lock whose name is not text, and with that the release failed."""
    with holdfast.connect(mysql.url) as locks, pymysql.connect(host=mysql.host, port=mysql.port, user="root") as line:
        lease = locks.lock(f"bell {bell}", ttl=60).acquire(timeout=10)
        with line.cursor() as cursor, contextlib.suppress(pymysql.err.MySQLError):
            asked = f"%s, 'evil', 'o', 1000000, 1, 1, 1, 1, '', {bell}, 1"
            cursor.execute(f"CALL holdfast.holdfast_claim_1({asked})", [lease.name])
        assert lease.release()
        locks.lock(lease.name).acquire(timeout=10).release()
