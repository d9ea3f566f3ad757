"""A few connections for many tasks; the tables are made once, and in silence."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from holdfast import aio
from holdfast.stores.mysql import connection_aio, definitions
from holdfast.testing.servers.mariadb import MariaDB

from ..hops import check_the_way
from .admin import Admin

pytestmark = pytest.mark.server


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


def test_a_dial_goes_on_for_whoever_comes_next_though_its_caller_has_gone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it broke: impatient callers threw away one dial after the other, until the server took no more connections."""
    connected = connection_aio.connected

    async def main() -> None:
        dials = 0
        dialled, answered = asyncio.Event(), asyncio.Event()

        async def slow(connection: Any) -> Any:
            nonlocal dials
            dials += 1
            dialled.set()
            await answered.wait()
            return await connected(connection)

        monkeypatch.setattr(connection_aio, "connected", slow)
        async with asyncio.timeout(30), aio.connect(f"{url}?pool=1&timeout=20") as locks:
            impatient = [asyncio.create_task(locks.lock(f"n{number}").acquire()) for number in range(8)]
            await dialled.wait()
            for one in impatient:
                one.cancel()
            patient = asyncio.create_task(locks.lock("x").acquire())
            for _ in range(50):
                await asyncio.sleep(0)
            assert dials == 1
            answered.set()
            assert await (await patient).release()
            assert dials == 1
            await asyncio.wait(impatient)
            assert all(one.cancelled() for one in impatient)

    asyncio.run(main())


def test_one_claim_takes_no_more_files_and_hops_than_the_page_says(url: str) -> None:
    check_the_way("MySQL", url)


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
