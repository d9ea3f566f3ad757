"""On a database, the result and what the body wrote are one transaction: both stand, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Misuse, StaleToken, Unstorable
from holdfast.lockfree.idempotency import core
from holdfast.lockfree.idempotency.sql import statements

from .stores import SQL, Store, opened, settle_
from .test_stores import SHORT, Work, as_another

CREATE = "CREATE TABLE IF NOT EXISTS payment (name VARCHAR(200), amount INTEGER)"


class Payments:
    def __init__(self, store: Store) -> None:
        self.store = store
        store.run(store.database.execute(store.mine, CREATE))

    def pay(self, key: str, amount: int = 1, result: Any = "paid") -> Any:
        """Work that writes through the connection of the run."""

        async def work(run: Any) -> Any:
            wire = self.store.database.wire(run.connection)
            insert = "INSERT INTO payment (name, amount) VALUES (:name, :amount)"
            await wire.run(self.store.database.sql(wire, insert, name=key, amount=amount))
            if isinstance(result, BaseException):
                raise result
            return result

        return work

    def amounts(self, key: str) -> list[int]:
        """By another connection."""
        select = "SELECT amount FROM payment WHERE name = :name"
        return [row["amount"] for row in self.store.run(self.store.rival.rows(self.store.other, select, name=key))]


@pytest.fixture(scope="module", params=SQL)
def payments(request: pytest.FixtureRequest) -> Iterator[Payments]:
    with opened(request.param, request) as store:
        yield Payments(store)


def test_the_effect_is_committed_with_the_result(payments: Payments) -> None:
    key = payments.store.key()
    assert [payments.store.do(key, payments.pay(key)) for _ in range(2)] == ["paid", "paid"]
    assert payments.amounts(key) == [1]


def test_an_error_takes_the_effect_back(payments: Payments) -> None:
    key = payments.store.key()
    with pytest.raises(ZeroDivisionError):
        payments.store.do(key, payments.pay(key, result=ZeroDivisionError()))
    assert payments.amounts(key) == []
    assert payments.store.do(key, payments.pay(key), timeout=0) == "paid"
    assert payments.amounts(key) == [1]


def test_a_result_that_cannot_be_kept_takes_the_effect_back(payments: Payments) -> None:
    key = payments.store.key()
    for bad in (object(), "x" * 2000):
        with pytest.raises(Unstorable):
            payments.store.do(key, payments.pay(key, result=bad), limit=1000)
    assert payments.amounts(key) == []
    assert payments.store.do(key, payments.pay(key), timeout=0) == "paid"


def test_whoever_was_taken_over_has_his_effect_rolled_back(payments: Payments) -> None:
    store, key = payments.store, payments.store.key()

    if store.database.driver.server == "sqlite_file":
        pytest.skip("SQLite has one writer: nobody takes over while a transaction is open")

    async def slow(run: Any) -> str:
        await payments.pay(key, 1)(run)
        await as_another(store.once(store.keys(store.other), key, successor))
        return "too late"

    async def successor(run: Any) -> str:
        wire = store.rival.wire(run.connection)
        insert = "INSERT INTO payment (name, amount) VALUES (:name, :amount)"
        await wire.run(store.rival.sql(wire, insert, name=key, amount=2))
        return "in time"

    with pytest.raises(StaleToken, match="rolled back"):
        store.do(key, slow, ttl=SHORT)
    assert payments.amounts(key) == [2]
    assert store.do(key, Work()) == "in time"


def test_a_transaction_that_is_open_already_is_refused(payments: Payments) -> None:
    store, key = payments.store, payments.store.key()
    wire = store.database.wire(store.mine)

    async def work() -> None:
        await wire.begin(None)
        try:
            await wire.records(store.database.sql(wire, "SELECT * FROM payment WHERE name = :name", name=key))
            await wire.run(store.database.sql(wire, "INSERT INTO payment (name) VALUES (:name)", name=key))
            await store.once(store.keys(), key, Work())
        except BaseException as error:
            await wire.end(error)
            raise

    with pytest.raises(Misuse, match="open already"):
        store.run(work())
    assert payments.amounts(key) == []
    assert store.do(key, Work("then")) == "then"


def test_old_entries_are_purged(payments: Payments) -> None:
    store, key = payments.store, payments.store.key()
    store.do(key, Work(), keep=0.001)
    count = "SELECT COUNT(*) AS many FROM holdfast_idempotency WHERE expires < 10"
    expire = "UPDATE holdfast_idempotency SET expires = 5 WHERE done = 1"
    store.run(store.rival.execute(store.other, expire))

    async def purge() -> Any:
        from holdfast.databases.wire import settle

        return await settle(store.keys().purge())

    assert store.run(purge()) >= 1
    assert store.run(store.rival.rows(store.other, count))[0]["many"] == 0


@pytest.mark.parametrize("atomic", [True, False])
def test_a_sweep_that_fails_is_no_failure_of_the_work(
    payments: Payments, atomic: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, key = payments.store, payments.store.key()
    monkeypatch.setattr(core, "_PURGE_EVERY", 1)
    monkeypatch.setitem(statements(store.database.wire(store.mine).dialect), "purge", "DELETE FROM nowhere")
    work = payments.pay(key) if atomic else Work("paid")
    assert [store.do(key, work, atomic=atomic) for _ in range(2)] == ["paid", "paid"]
    assert payments.amounts(key) == ([1] if atomic else [])
    assert "deleting old idempotency keys failed" in caplog.text
    monkeypatch.undo()
    store.run(settle_(store.surface.Keys(store.mine).purge))  # the connection is in order


def test_the_table_is_missed_told_of_and_created_if_allowed(payments: Payments) -> None:
    store, key = payments.store, payments.store.key()
    store.run(store.rival.execute(store.other, "DROP TABLE holdfast_idempotency"))
    try:
        with pytest.raises(Misuse, match="no table holdfast_idempotency"):
            store.do(key, Work())
    finally:
        assert store.do(key, Work("made"), create=True) == "made"
    assert store.do(key, Work("again")) == "made"
