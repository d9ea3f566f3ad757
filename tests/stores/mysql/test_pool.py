"""Connections are lent out in the order in which they were asked for."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import aio
from holdfast.drivers.aio import Asyncio
from holdfast.errors import Unavailable
from holdfast.stores.mysql import definitions
from holdfast.stores.mysql.pool import Pool, Rows, Turn
from holdfast.testing.servers.mariadb import MariaDB

from .admin import Admin


class Plain:
    """A connection that nobody talks on."""

    server = "11.4.2-MariaDB"
    name = "0" * 32

    def __init__(self) -> None:
        self.good = True

    async def ask(self, statement: str, within: float) -> list[Rows]:
        raise AssertionError

    def alive(self) -> bool:
        return self.good

    def watch(self, on_end: Callable[[], None]) -> None:
        raise AssertionError

    def bear(self, seconds: float) -> None:
        raise AssertionError

    def close(self) -> None:
        self.good = False

    def disown(self) -> None:
        raise AssertionError


async def dial(within: float) -> Plain:
    return Plain()


def pool_of(size: int) -> Pool:
    return Pool(dial, Asyncio(), size, "here")


async def waiting(pool: Pool, within: float = 20.0) -> tuple[Turn, asyncio.Task[Any]]:
    turn = Turn()
    task = asyncio.create_task(pool.take(turn, within))
    await asyncio.sleep(0.01)
    return turn, task


def test_a_connection_is_handed_to_who_waits_and_no_newcomer_is_faster() -> None:
    async def main() -> None:
        pool = pool_of(1)
        first = Turn()
        line = await pool.take(first, 1)
        _, second = await waiting(pool)
        pool.give_back(first)
        with pytest.raises(Unavailable, match="busy"):  # in the same turn of the loop, before the second has heard
            await pool.take(Turn(), 0)
        assert await second is line

    asyncio.run(main())


def test_who_gives_up_or_is_cancelled_just_then_passes_it_on() -> None:
    async def main() -> None:
        pool = pool_of(1)
        first = Turn()
        line = await pool.take(first, 1)
        second, waits = await waiting(pool)
        _, third = await waiting(pool)
        pool.give_back(first)  # to the second, which is cancelled before it hears of that
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        pool.give_back(second)
        assert await third is line

    asyncio.run(main())


def test_a_broken_connection_is_replaced_for_who_waits() -> None:
    async def main() -> None:
        pool = pool_of(1)
        first = Turn()
        line = await pool.take(first, 1)
        _, second = await waiting(pool)
        line.close()
        pool.give_back(first)
        assert (await second).alive()

    asyncio.run(main())


def test_a_turn_that_an_interruption_lost_sight_of_is_not_counted() -> None:
    async def main() -> None:
        pool = pool_of(1)
        await pool.take(Turn(), 1)
        gc.collect()
        assert (await pool.take(Turn(), 0.1)).alive()

    asyncio.run(main())


def test_waiting_for_a_connection_counts_against_the_callers_time() -> None:
    async def main() -> None:
        pool = pool_of(1)
        held = Turn()
        await pool.take(held, 1)
        started = time.monotonic()
        with pytest.raises(Unavailable):
            await pool.take(Turn(), 0.1)
        assert 0.05 < time.monotonic() - started < 5

    asyncio.run(main())


@pytest.mark.server
def test_thirty_two_tasks_share_two_connections(url: str) -> None:
    async def main() -> None:
        async with aio.connect(f"{url}?pool=2") as locks:
            end = time.monotonic() + 4

            async def work(number: int) -> int:
                count = 0
                while time.monotonic() < end:
                    async with locks.lock(f"n{number}"):
                        count += 1
                return count

            counts = await asyncio.gather(*(work(number) for number in range(32)))
            assert min(counts) * 2 >= max(counts), counts  # nobody starves

    asyncio.run(main())


@pytest.mark.server
def test_creating_the_tables_prints_nothing(
    mariadb: MariaDB, admin: Admin, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    admin.run("CREATE OR REPLACE DATABASE small")

    async def main() -> None:
        async with aio.connect(f"mysql://root@127.0.0.1:{mariadb.port}/small") as locks:
            async with locks.lock("x"):
                pass
            admin.run("DROP PROCEDURE small.holdfast_claim_1")
            async with locks.lock("x"):
                pass

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())
    admin.run("DROP DATABASE small")
    assert not [record for record in caplog.records if record.name.startswith("asyncmy")]
    assert capfd.readouterr().err == ""


@pytest.mark.server
def test_many_who_find_no_tables_together_create_them_once(mariadb: MariaDB, admin: Admin) -> None:
    admin.run("CREATE OR REPLACE DATABASE small")
    made = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_CREATE_PROCEDURE'"
    ((before,),) = admin.run(made)

    async def main() -> None:
        async with aio.connect(f"mysql://root@127.0.0.1:{mariadb.port}/small") as locks:
            leases = await asyncio.gather(*(locks.lock(f"n{number}").acquire() for number in range(8)))
            for lease in leases:
                assert await lease.release()

    asyncio.run(main())
    ((after,),) = admin.run(made)
    admin.run("DROP DATABASE small")
    assert int(after) - int(before) == len(list(definitions.procedures()))
