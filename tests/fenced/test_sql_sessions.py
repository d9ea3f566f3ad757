"""A session of SQLAlchemy that speaks to several databases: the mark is in one of them, and guards that one only."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from holdfast import fenced
from holdfast.databases import sqlalchemy
from holdfast.errors import Misuse, StaleToken

from .sql_drivers import DRIVERS, close_with_engine


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str]


def engines(folder: Path) -> tuple[Any, Any]:
    marked, other = (create_engine(f"sqlite:///{folder}/{name}.db") for name in ("marked", "other"))
    with marked.connect() as connection:
        fenced.create_table(connection)
    for engine in (marked, other):
        Base.metadata.create_all(engine)
    return marked, other


def session_of(kind: str, marked: Any, other: Any) -> Any:
    if kind == "binds":
        return Session(marked, binds={Order: other})
    if kind == "scoped":
        return scoped_session(sessionmaker(marked, binds={Order: other}))

    class Routing(Session):
        """As SQLAlchemy's own documentation shows it for a leader and its followers."""

        def get_bind(self, mapper: Any = None, **more: Any) -> Any:
            return other if mapper is not None else marked

    return Routing()


@pytest.mark.parametrize("how", ["added", "said", "swallowed"])
@pytest.mark.parametrize("kind", ["binds", "scoped", "routing"])
def test_a_session_of_two_databases_changes_only_the_one_with_the_mark(tmp_path: Path, kind: str, how: str) -> None:
    marked, other = engines(tmp_path)
    session = session_of(kind, marked, other)

    def change() -> None:
        if how == "added":
            session.add(Order(id=1, state="stale"))  # written when the block is left
            return
        with contextlib.suppress(Misuse) if how == "swallowed" else contextlib.nullcontext():
            session.get(Order, 1)
        if how == "swallowed":
            session.execute(text("INSERT INTO orders VALUES (1, 'stale')"), bind_arguments={"mapper": Order})

    with pytest.raises(Misuse, match="a second transaction"), fenced.transaction(session, ("x", 5)):
        change()
    with fenced.transaction(session, ("x", 5)), session.begin_nested():  # as good as ever, also for savepoints
        session.execute(text("SELECT 1"))
    assert session.get(Order, 1) is None  # and on its own again
    session.close()
    for engine in (marked, other):
        with engine.connect() as connection:
            assert connection.execute(text("SELECT COUNT(*) FROM orders")).scalar() == 0
        engine.dispose()


def test_in_asyncio_as_well(tmp_path: Path) -> None:
    engines(tmp_path)

    async def main() -> None:
        marked, other = (
            create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{name}.db") for name in ("marked", "other")
        )
        async with AsyncSession(marked, binds={Order: other}) as session:
            with pytest.raises(Misuse, match="a second transaction"):
                async with fenced.aio.transaction(session, ("x", 5)):
                    session.add(Order(id=1, state="stale"))
            async with fenced.aio.transaction(session, ("x", 6)):
                await session.execute(text("SELECT 1"))
            assert await session.get(Order, 1) is None
        await marked.dispose()
        await other.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["connection", "session", "session of a connection"])
def test_a_commit_inside_is_the_last_one(tmp_path: Path, kind: str) -> None:
    """Who commits after each step changes nothing more after the first: that was fenced, and the rest would not be."""
    marked, other = engines(tmp_path)
    connection = marked.connect()
    tx: Any = connection if kind == "connection" else Session(marked if kind == "session" else connection)
    steps = []

    def step_by_step() -> None:
        for number in (1, 2, 3):
            tx.execute(text(f"INSERT INTO orders VALUES ({number}, 'new')"))  # noqa: S608  # numbers
            tx.commit()
            steps.append(number)

    with pytest.raises(Misuse, match="ended inside"), fenced.transaction(tx, ("x", 5)):
        step_by_step()
    assert steps == [1]
    with pytest.raises(Misuse, match="ended inside"), fenced.transaction(tx, ("x", 5)):
        tx.rollback()
        with contextlib.suppress(Misuse):
            step_by_step()
    with fenced.transaction(tx, ("x", 5)):  # as good as ever
        assert [row[0] for row in tx.execute(text("SELECT id FROM orders"))] == [1]
    tx.execute(text("SELECT 1"))
    tx.close()
    connection.close()
    marked.dispose()
    other.dispose()


@pytest.mark.server
def test_nor_is_one_of_two_phases_begun_after_it(mariadb: str) -> None:
    connection = DRIVERS["sqlalchemy pymysql"].connect(mariadb)
    name = f"phases_{time.time_ns()}"
    fenced.create_table(connection)
    connection.execute(text(f"CREATE TABLE {name} (step VARCHAR(16))"))
    connection.commit()
    with pytest.raises(Misuse, match="ended inside"), fenced.transaction(connection, (name, 5)):
        connection.commit()
        with connection.begin_twophase() as phases:
            connection.execute(text(f"INSERT INTO {name} VALUES ('not fenced')"))  # noqa: S608
            phases.prepare()
    with fenced.transaction(connection, (name, 5)):
        assert connection.execute(text(f"SELECT step FROM {name}")).all() == []  # noqa: S608
    with connection.begin_twophase():  # as good as ever
        connection.execute(text("SELECT 1"))
    connection.execute(text(f"DROP TABLE {name}"))
    close_with_engine(connection)


def test_scoped_sessions_are_guarded(tmp_path: Path) -> None:
    marked, other = engines(tmp_path)
    session = scoped_session(sessionmaker(marked))
    with fenced.transaction(session, ("x", 5)) as tx:
        assert tx is session
        session.add(Order(id=1, state="paid"))
    with pytest.raises(StaleToken), fenced.transaction(session, ("x", 4)):
        pytest.fail("let in")
    assert session.get(Order, 1) is not None
    with pytest.raises(Misuse, match="open already"), fenced.transaction(session, ("x", 6)):
        pytest.fail("let in")
    session.remove()

    async def in_asyncio() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/marked.db")
        session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        async with fenced.aio.transaction(session, ("x", 7)):
            await session.execute(text("UPDATE orders SET state = 'sent'"))
        with pytest.raises(StaleToken):
            await fenced.aio.transaction(session, ("x", 6)).__aenter__()
        await session.remove()
        await engine.dispose()

    asyncio.run(in_asyncio())
    marked.dispose()
    other.dispose()


def test_a_refusal_shows_no_password_of_the_other_database() -> None:
    url = make_url("postgresql://u:hunter1@h/other?password=hunter2")
    refused = str(sqlalchemy._elsewhere(SimpleNamespace(engine=SimpleNamespace(url=url))))
    assert "h/other" in refused
    assert "hunter" not in refused
