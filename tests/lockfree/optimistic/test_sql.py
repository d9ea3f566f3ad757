"""Optimistic updates over every SQL driver, on real servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Conflict, Missing, Misuse
from holdfast.databases.wire import settle
from holdfast.lockfree import optimistic
from holdfast.lockfree.optimistic import ONCE, Retry, aio

from ...fenced.sql_drivers import DRIVERS
from ..databases import FEW, RIVALS, Database, marked, opened

QUICK = Retry(attempts=4, first=0.0001, longest=0.001)
CREATE = "CREATE TABLE IF NOT EXISTS wallet (id INTEGER PRIMARY KEY, balance INTEGER, version BIGINT)"
_numbers = itertools.count(1)


class Wallets:
    """Two connections to one database, and rows that no other test touches."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.surface: Any = aio if database.asynchronous else optimistic
        self.rival = Database(RIVALS[database.name], database.url) if database.name in RIVALS else database
        self.mine, self.other = self.run(database.connect()), self.run(self.rival.connect())
        self.run(database.execute(self.mine, CREATE))

    def run(self, coroutine: Any) -> Any:
        return self.database.run(coroutine)

    def insert(self, balance: int = 100, version: int | None = 0) -> int:
        key = self.fresh()
        insert = "INSERT INTO wallet (id, balance, version) VALUES (:id, :balance, :version)"
        self.run(self.rival.execute(self.other, insert, id=key, balance=balance, version=version))
        return key

    def fresh(self) -> int:
        return next(_numbers)

    def look(self, key: int) -> dict[str, Any]:
        """By another connection: what is not committed is not seen."""
        (row,) = self.run(self.rival.rows(self.other, "SELECT * FROM wallet WHERE id = :id", id=key))
        return dict(row)

    def update(self, key: Any, change: Any, *, connection: Any = None, **options: Any) -> Any:
        return self.run(self.updated(key, change, connection=connection, **options))

    async def updated(self, key: Any, change: Any, *, connection: Any = None, **options: Any) -> Any:
        return await settle(self.surface.update(connection or self.mine, "wallet", key, change, **options))

    def update_all(self, keys: list[int], change: Any, **options: Any) -> Any:
        rows = [("wallet", key) for key in keys]

        async def work() -> Any:
            return await settle(self.surface.update_all(self.mine, rows, change, **options))

        return self.run(work())

    def swap(self, key: int, changes: str, where: str, **values: Any) -> bool:
        async def work() -> bool:
            return bool(await settle(self.surface.swap(self.mine, "wallet", key, changes, where, **values)))

        return bool(self.run(work()))

    def idle(self) -> bool:
        return not self.database.wire(self.mine).busy()


on_every_driver = pytest.mark.parametrize("wallets", marked(list(DRIVERS)), indirect=True, scope="module")


@pytest.fixture(scope="module", params=FEW)
def wallets(request: pytest.FixtureRequest) -> Iterator[Wallets]:
    with opened(request.param, request) as database:
        wallets = Wallets(database)
        yield wallets
        if wallets.rival is not database:
            wallets.rival.close()


def spend(amount: int) -> Any:
    return lambda row: {"balance": row["balance"] - amount}


@on_every_driver
def test_a_row_is_changed_and_its_version_rises(wallets: Wallets) -> None:
    key = wallets.insert(100)
    assert wallets.update(key, spend(30)) == {"id": key, "balance": 70, "version": 1}
    assert wallets.look(key) == {"id": key, "balance": 70, "version": 1}
    assert wallets.update({"id": key}, spend(10))["version"] == 2
    assert wallets.idle()


@on_every_driver
def test_a_row_that_changed_between_read_and_write_is_read_again_and_nothing_is_lost(wallets: Wallets) -> None:
    key = wallets.insert(100)
    calls = 0

    async def change(row: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls <= 2:
            await wallets.updated(key, spend(1), connection=wallets.other)
        return {"balance": row["balance"] - 10}

    assert wallets.update(key, change, retry=QUICK) == {"id": key, "balance": 88, "version": 3}
    assert wallets.look(key)["balance"] == 88
    assert calls == 3


@on_every_driver
def test_a_conflict_that_outlives_the_attempts_tells_the_versions_seen_and_writes_nothing(wallets: Wallets) -> None:
    key = wallets.insert(100)

    async def change(row: dict[str, Any]) -> dict[str, Any]:
        await wallets.updated(key, spend(1), connection=wallets.other)
        return {"balance": 0}

    with pytest.raises(Conflict, match=rf"wallet {{'id': {key}}}.*4 attempts .*0, 1, 2, 3") as caught:
        wallets.update(key, change, retry=QUICK)
    assert caught.value.seen == (0, 1, 2, 3)
    assert wallets.look(key) == {"id": key, "balance": 96, "version": 4}
    assert wallets.idle()


def test_a_change_of_none_leaves_the_row_as_it_is(wallets: Wallets) -> None:
    key = wallets.insert(100)
    assert wallets.update(key, lambda row: None) == {"id": key, "balance": 100, "version": 0}
    assert wallets.look(key)["version"] == 0
    assert wallets.idle()


@on_every_driver
def test_an_error_in_the_change_leaves_everything_as_it_was(wallets: Wallets) -> None:
    key = wallets.insert(100)

    def change(row: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        wallets.update(key, change)
    with pytest.raises(ZeroDivisionError):
        wallets.update_all([key], change)
    assert wallets.look(key)["version"] == 0
    assert wallets.idle()


def test_a_version_that_is_expected_must_be_there(wallets: Wallets) -> None:
    key = wallets.insert(100, version=5)
    with pytest.raises(Conflict, match="at version 5, not at 4") as caught:
        wallets.update(key, spend(1), expected=4)
    assert caught.value.seen == (5,)
    assert wallets.update(key, spend(1), expected=5)["version"] == 6
    assert wallets.idle()


def test_bad_input_is_refused_with_nothing_written(wallets: Wallets) -> None:
    key, negative, without = wallets.insert(100), wallets.insert(100, version=-3), wallets.insert(100, version=None)
    for broken, what in ((negative, "from 0 to .*not -3"), (without, "not None")):
        with pytest.raises(Misuse, match=what):
            wallets.update(broken, spend(1))
        with pytest.raises(Misuse, match=what):
            wallets.update_all([key, broken], lambda rows: [{"balance": 0}, {"balance": 0}])
        assert wallets.look(broken)["balance"] == 100
    with pytest.raises(Missing, match="insert it first"):
        wallets.update(wallets.fresh(), spend(1))
    for bad in (7, [("balance", 1)], {"version": 3}):
        with pytest.raises(Misuse):
            wallets.update(key, lambda row, bad=bad: bad)
    for options in ({"expected": -1}, {"expected": "1"}, {"expected": True}):
        with pytest.raises(Misuse, match="version"):
            wallets.update(key, spend(1), **options)
    for bad_key in ({}, {"id": None}):
        with pytest.raises(Misuse):
            wallets.update(bad_key, spend(1))
    for rows, answer in (([], []), ([key, key], [{}, {}]), ([key], {}), ([key], [{}, {}])):
        with pytest.raises(Misuse):
            wallets.update_all(rows, lambda _, answer=answer: answer)
    assert wallets.look(key) == {"id": key, "balance": 100, "version": 0}
    assert wallets.idle()


@on_every_driver
def test_several_rows_change_together(wallets: Wallets) -> None:
    alice, bob, rate = wallets.insert(100), wallets.insert(5), wallets.insert(2)

    def transfer(rows: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        amount = 10 * rows[2]["balance"]
        return [{"balance": rows[0]["balance"] - amount}, {"balance": rows[1]["balance"] + amount}, None]

    after = wallets.update_all([alice, bob, rate], transfer)
    assert [row["balance"] for row in after] == [80, 25, 2]
    assert after == [wallets.look(key) for key in (alice, bob, rate)]
    assert wallets.look(rate)["version"] == 1, "what was decided by it was checked with the rest"
    assert wallets.update_all([alice, bob], lambda rows: [None, None])[0]["version"] == 1
    assert wallets.idle()


@on_every_driver
def test_several_rows_of_which_one_has_changed_are_not_written(wallets: Wallets) -> None:
    if wallets.database.driver.server == "sqlite_file":
        pytest.skip("SQLite has one writer: the transaction that reads them keeps all others out")
    first, second = wallets.insert(100), wallets.insert(100)

    async def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        await wallets.updated(second, spend(1), connection=wallets.other)
        return [{"balance": 0}, {"balance": 200}]

    with pytest.raises(Conflict) as caught:
        wallets.update_all([first, second], change, retry=QUICK)
    assert caught.value.seen == ((0, 0), (0, 1), (0, 2), (0, 3))
    assert wallets.look(first) == {"id": first, "balance": 100, "version": 0}
    assert wallets.look(second) == {"id": second, "balance": 96, "version": 4}
    assert wallets.idle()


@on_every_driver
def test_in_a_transaction_of_ones_own_there_is_one_attempt(wallets: Wallets) -> None:
    key = wallets.insert(100)
    wire = wallets.database.wire(wallets.mine)

    async def work(retry: Retry | None, commit: bool) -> None:
        await wire.begin(None)
        try:
            await wire.records(wallets.database.sql(wire, "SELECT * FROM wallet WHERE id = :id", id=key))
            await wallets.updated(key, spend(30), retry=retry)
        except BaseException as error:
            await wire.end(error)
            raise
        await wire.end(None if commit else ZeroDivisionError())

    with pytest.raises(Misuse, match="transaction is open already"):
        wallets.run(work(None, commit=True))
    wallets.run(work(ONCE, commit=False))
    assert wallets.look(key)["balance"] == 100
    wallets.run(work(ONCE, commit=True))
    assert wallets.look(key) == {"id": key, "balance": 70, "version": 1}


@on_every_driver
def test_a_swap_says_whether_the_condition_held(wallets: Wallets) -> None:
    key = wallets.insert(3)
    take = {"changes": "balance = balance - :taken", "where": "balance >= :taken"}
    assert [wallets.swap(key, **take, taken=2) for _ in range(2)] == [True, False]
    assert wallets.look(key)["balance"] == 1
    assert not wallets.swap(wallets.fresh(), **take, taken=0)
    assert wallets.idle()


@on_every_driver
def test_a_swap_that_finds_everything_as_it_should_be_has_held(wallets: Wallets) -> None:
    """Without FOUND_ROWS, MySQL counts no row here."""
    key = wallets.insert(3)
    assert wallets.swap(key, "balance = :new", "balance = :old OR balance = :new", old=2, new=3)
    assert not wallets.swap(key, "balance = :new", "balance = :old", old=2, new=3)
    assert wallets.look(key)["balance"] == 3


def test_a_swap_with_a_value_that_was_not_given(wallets: Wallets) -> None:
    key = wallets.insert(3)
    with pytest.raises(Misuse, match="no value was given for :taken"):
        wallets.swap(key, "balance = :taken", "1 = 1")
    with pytest.raises(Misuse, match="key0 are taken"):
        wallets.swap(key, "balance = :key0", "1 = 1", key0=1)


@on_every_driver
def test_a_connection_of_the_other_world_is_told_where_to_go(wallets: Wallets) -> None:
    async def work() -> None:
        if wallets.database.asynchronous:
            optimistic.update(wallets.mine, "wallet", 1, spend(1))
        else:
            await aio.update(wallets.mine, "wallet", 1, spend(1))

    with pytest.raises(Misuse, match=r"use the same function of holdfast\.lockfree\.optimistic"):
        wallets.run(work())


@pytest.mark.server
def test_in_a_pipeline_of_psycopg_an_update_is_told_as_it_was(postgresql: str) -> None:
    import psycopg

    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE piped (id INT PRIMARY KEY, n INT, version INT NOT NULL DEFAULT 0)")
        connection.execute("INSERT INTO piped VALUES (1, 0)")
        with connection.pipeline():
            assert optimistic.update(connection, "piped", 1, lambda row: {"n": row["n"] + 1})["n"] == 1
            with pytest.raises(Conflict):
                optimistic.update(connection, "piped", 1, lambda row: {"n": 7}, expected=0)
        assert connection.execute("SELECT n, version FROM piped").fetchall() == [(1, 1)]
