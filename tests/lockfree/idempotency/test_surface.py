"""The decorator, functions that open connections, and what is the same for threads and asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import InFlight, KeyReused, Misuse
from holdfast.lockfree import idempotency, optimistic
from holdfast.lockfree.idempotency import aio
from holdfast.lockfree.idempotency.rule import Entry, Verdict, judge


def opener(path: Path) -> Callable[[], Any]:
    return lambda: contextlib.closing(sqlite3.connect(path / "keys.db", timeout=30))


def test_a_decorated_function_runs_once_a_key(tmp_path: Path) -> None:
    calls = []

    @idempotency.idempotent(
        opener(tmp_path), key=lambda order, amount: f"charge:{order}", payload=lambda order, amount: amount, create=True
    )
    def charge(order: int, amount: int) -> int:
        """Charges."""
        calls.append(order)
        return order * amount

    assert [charge(2, 5), charge(2, amount=5), charge(order=3, amount=5)] == [10, 10, 15]
    assert calls == [2, 3]
    with pytest.raises(KeyReused):
        charge(2, 6)
    assert charge.__doc__ == "Charges."


def test_many_threads_at_once_run_it_once(tmp_path: Path) -> None:
    keys = idempotency.Keys(opener(tmp_path), create=True)
    keys.create_table()
    calls: list[int] = []
    results: list[Any] = []
    barrier = threading.Barrier(8)

    @keys.idempotent(key=lambda: "the same")
    def work() -> int:
        calls.append(1)
        return len(calls)

    def caller() -> None:
        barrier.wait(30)
        results.append(work())

    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (calls, results) == ([1], [1] * 8)


def test_many_tasks_at_once_run_it_once(tmp_path: Path) -> None:
    import aiosqlite

    async def main() -> None:
        keys = aio.Keys(lambda: aiosqlite.connect(tmp_path / "keys.db", timeout=30), create=True, atomic=False)
        await keys.create_table()
        calls = 0

        @keys.idempotent(key=lambda: "the same")
        async def work() -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0)
            return calls

        assert await asyncio.gather(*(work() for _ in range(8))) == [1] * 8

    asyncio.run(main())


def test_a_cancelled_run_gives_the_key_free(tmp_path: Path) -> None:
    import aiosqlite

    async def main() -> None:
        keys = aio.Keys(lambda: aiosqlite.connect(tmp_path / "keys.db", timeout=30), create=True, timeout=0)
        inside = asyncio.Event()

        async def work() -> None:
            async with keys.once("key") as run:
                assert run.first
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with keys.once("key") as run:
            assert run.first

    asyncio.run(main())


def test_what_opens_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no connection that holdfast knows"):
        idempotency.Keys(object())
    with pytest.raises(Misuse, match="closing"):
        idempotency.Keys(lambda: 7).once("key").__enter__()


def test_a_connection_is_given_back_whatever_happens(tmp_path: Path) -> None:
    opened = closed = 0

    @contextlib.contextmanager
    def connection() -> Any:
        nonlocal opened, closed
        opened += 1
        try:
            with contextlib.closing(sqlite3.connect(tmp_path / "keys.db")) as db:
                yield db
        finally:
            closed += 1

    keys = idempotency.Keys(connection, create=True, timeout=0)
    with contextlib.suppress(ZeroDivisionError), keys.once("a"):
        raise ZeroDivisionError
    with keys.once("a", payload=1):
        pass
    with keys.once("a", payload=1) as run:
        assert not run.first
        assert "token" in repr(run)
    with contextlib.suppress(KeyReused), keys.once("a", payload=2):
        raise AssertionError
    with keys.once("b"), contextlib.suppress(InFlight):
        pass
    assert opened == closed == 5


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_the_schema_can_be_printed(dialect: str) -> None:
    assert "CREATE TABLE IF NOT EXISTS holdfast_idempotency" in idempotency.schema(dialect)
    assert aio.schema(dialect) == idempotency.schema(dialect)
    with pytest.raises(Misuse):
        idempotency.schema("oracle")


def test_the_schema_of_sqlite_runs_as_printed() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(idempotency.schema("sqlite"))
        with idempotency.once(db, "key") as run:
            run.result = 1
        assert run.result == 1


ENTRY = Entry(5, "someone", "p", False, 3.0, None, None)


@pytest.mark.parametrize(
    ("entry", "payload", "verdict"),
    [
        (None, "p", Verdict.FREE),
        (ENTRY, "p", Verdict.RUNNING),
        (ENTRY, "q", Verdict.REUSED),
        (ENTRY._replace(left=0.0), "p", Verdict.FREE),
        (ENTRY._replace(left=-1.0), "q", Verdict.REUSED),
        (ENTRY._replace(left=None), "p", Verdict.FREE),
        (ENTRY._replace(done=True, result=b"1"), "p", Verdict.DONE),
        (ENTRY._replace(done=True, result=b"1"), None, Verdict.REUSED),
        (ENTRY._replace(done=True, left=None), "p", Verdict.DONE),
        (ENTRY._replace(done=True, left=-1.0), "q", Verdict.FREE),
    ],
)
def test_the_rule(entry: Entry | None, payload: str | None, verdict: Verdict) -> None:
    assert judge(entry, payload) is verdict


@pytest.mark.parametrize("package", [idempotency, optimistic])
def test_threads_and_asyncio_have_the_same_names_and_parameters(package: Any) -> None:
    from importlib import import_module

    other = import_module(f"{package.__name__}.aio")
    assert package.__all__ == other.__all__
    for name in package.__all__:
        ours, theirs = getattr(package, name), getattr(other, name)
        for one, two in ((ours, theirs), *_methods(ours, theirs)):
            if ours is theirs or not inspect.isfunction(one):
                continue
            assert list(inspect.signature(one).parameters) == list(inspect.signature(two).parameters), name
            swapped = re.sub(r"`with`", "`async with`", one.__doc__ or "")
            assert swapped == (two.__doc__ or ""), name


def _methods(ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
    if not inspect.isclass(ours):
        return []
    names = [name for name in dir(ours) if not name.startswith("_")]
    assert names == [name for name in dir(theirs) if not name.startswith("_")]
    return [(getattr(ours, name), getattr(theirs, name)) for name in names]


def test_on_sqlite_a_hit_is_one_select_and_all_else_takes_the_long_way(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "keys.db", isolation_level=None)) as db:
        keys = idempotency.Keys(db, create=True, keep=3600)

        @keys.idempotent(key=lambda order, amount: order, payload=lambda order, amount: amount)
        def charge(order: str, amount: int) -> dict[str, int]:
            return {"paid": amount}

        def on_the_way() -> int:
            said: list[str] = []
            db.set_trace_callback(said.append)
            assert charge("a", 5) == {"paid": 5}
            with keys.once("a", 5) as run:
                assert (run.first, run.result, run.token > 0) == (False, {"paid": 5}, True)
            db.set_trace_callback(None)
            return len(said)

        charge("a", 5)
        assert on_the_way() == 2
        with pytest.raises(KeyReused):
            charge("a", 6)
        with pytest.raises(Misuse):
            charge(7, 5)  # SQLite would take it for "7"
        db.row_factory = lambda cursor, row: {"row": row}
        assert on_the_way() == 2  # the long way, which is as right
        db.row_factory = None
        db.execute("UPDATE holdfast_idempotency SET expires = 1")
        with keys.once("a", 6) as run:  # forgotten, and the payload with it
            assert run.first
            with pytest.raises(Misuse, match="asks for its own result"):
                charge("a", 6)
            run.result = {"paid": 6}
        assert charge("a", 6) == {"paid": 6}
