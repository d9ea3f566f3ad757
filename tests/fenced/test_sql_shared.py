"""One connection, shared by tasks or threads that enter at the same moment: one is let in, and nobody commits for another."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import fenced
from holdfast.databases import sharing
from holdfast.databases.connections import ASYNCIO, wire_for
from holdfast.databases.sharing import Stay
from holdfast.databases.wire import settle
from holdfast.drivers.aio import Asyncio
from holdfast.errors import Misuse, StaleToken
from holdfast.fenced import aio
from holdfast.lockfree.idempotency.sql import SqlLedger

from .sql_drivers import Driver
from .test_sql_autocommit import connected, params
from .test_sql_commit_inside import ALL, found, insert, table

ASYNC = {name: driver for name, driver in ALL.items() if driver.world == ASYNCIO}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("driver", params(ASYNC))
def test_of_two_tasks_that_enter_at_once_one_is_let_in(driver: Driver, request: pytest.FixtureRequest) -> None:
    async def work(module: Any, connection: Any) -> None:
        wire, name = wire_for(connection, ASYNCIO), f"shared {time.time_ns()}"
        await table(connection, wire)
        standalone = wire.standalone()
        inside, refused = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with aio.transaction(connection, (f"{name} first", 1)):
                await wire.run(insert(name, "first"))
                inside.set()
                await refused.wait()

        async def second() -> None:
            try:
                async with aio.transaction(connection, (f"{name} second", 1)):
                    await inside.wait()
                    await wire.run(insert(name, "second"))
            finally:
                refused.set()

        async with asyncio.timeout(30):
            told = await asyncio.gather(first(), second(), return_exceptions=True)
        assert told[0] is None
        assert isinstance(told[1], Misuse)
        assert "open already" in str(told[1])
        assert await found(wire, connection, name) == ["first"]
        async with aio.transaction(connection, (f"{name} second", 1)):  # as good as ever, and as it was
            await wire.run(insert(name, "second"))
        assert await found(wire, connection, name) == ["first", "second"]
        assert wire_for(connection, ASYNCIO).standalone() == standalone

    connected(driver, request.getfixturevalue(driver.server), work)


def test_the_same_for_work_that_is_done_once(tmp_path: Path) -> None:
    """The second would roll back what the first has begun."""
    import aiosqlite

    async def main() -> None:
        async with aiosqlite.connect(tmp_path / "shared.db", isolation_level=None) as connection:
            await connection.execute("CREATE TABLE effects (step TEXT)")
            first, second = (SqlLedger(Asyncio(), ASYNCIO, connection) for _ in range(2))
            told = await asyncio.gather(first.begin(), second.begin(), return_exceptions=True)
            assert [type(one) for one in told] == [type(None), Misuse]
            await connection.execute("INSERT INTO effects VALUES ('first')")
            await second.end(told[1])
            await first.end(None)
            assert list(await connection.execute_fetchall("SELECT step FROM effects")) == [("first",)]
            assert connection.isolation_level is None
            await second.begin()
            await second.end(None)

    asyncio.run(main())


def test_threads_enter_one_at_a_time() -> None:
    class Connection:
        pass

    connection, stays = Connection(), []
    for _ in range(50):
        barrier = threading.Barrier(4)
        entered: list[Stay] = []

        def enter(barrier: threading.Barrier = barrier, entered: list[Stay] = entered) -> None:
            barrier.wait(30)
            try:
                entered.append(Stay(connection))
            except Misuse:
                return

        threads = [threading.Thread(target=enter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(entered) == 1
        entered[0].end()
        stays += entered  # left, though not forgotten


def test_of_two_threads_that_find_one_forgotten_one_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first has looked, and has not yet taken its place."""

    class Connection:
        pass

    connection, entered, far = Connection(), list[Stay](), threading.Event()

    def enter() -> None:
        try:
            entered.append(Stay(connection))
        except Misuse:
            return
        finally:
            far.set()

    second = threading.Thread(target=enter)

    class Looked(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            if second.ident is None:
                second.start()
                assert far.wait(30)
            return found

    class Mutex:
        """The second has come as far as it can, when it is here."""

        def __init__(self) -> None:
            self.lock = threading.RLock()

        def __enter__(self) -> None:
            if threading.current_thread() is second:
                far.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr(sharing, "_stays", Looked())
    monkeypatch.setattr(sharing, "_succeeding", Mutex())
    Stay(connection)  # and forgotten
    enter()
    second.join(30)
    assert len(entered) == 1


def test_who_is_forgotten_inside_has_left(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "forgotten.db", isolation_level=None)
    fenced.create_table(connection)
    fenced.transaction(connection, ("x", 1)).__enter__()  # and never left
    gc.collect()
    connection.rollback()
    with fenced.transaction(connection, ("x", 1)):
        pass
    connection.close()


def test_who_is_refused_inside_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        import aiosqlite

        async with aiosqlite.connect(tmp_path / "left.db", isolation_level=None) as connection:
            await aio.create_table(connection)
            async with aio.transaction(connection, ("x", 2)):
                with pytest.raises(Misuse, match="open already"):
                    await settle(aio.transaction(connection, ("y", 1)).__aenter__())
            with pytest.raises(StaleToken):
                await settle(aio.transaction(connection, ("x", 1)).__aenter__())
            async with aio.transaction(connection, ("x", 2)):
                pass

    asyncio.run(main())
