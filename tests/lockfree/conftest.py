"""One server of each kind for all tests of this folder, started when it is first asked for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import servers

SERVER = pytest.mark.server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """What outlives a power cut is not the question here, so it need not wait for the disk."""
    with servers.start("postgresql", "-c", "fsync=off", "-c", "synchronous_commit=off") as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with servers.start("redis") as server:
        yield server.url


class Blocking:
    """An asyncio object, spoken to as if it blocked: so that one test serves both surfaces."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = found(*args, **kwargs)
            if inspect.isasyncgen(answer):
                return self._each(answer)
            return self._runner.run(answer) if inspect.iscoroutine(answer) else answer

        return call

    def _each(self, answer: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(anext(answer))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(answer.aclose())


class Database:
    """Connections of one driver to one database, and what is made of them."""

    def __init__(self, driver: str, address: str, runner: asyncio.Runner) -> None:
        self.driver = driver
        self.address = address
        self.runner = runner
        self._open: list[Any] = []

    @property
    def asynchronous(self) -> bool:
        return self.driver in ("aiosqlite", "psycopg-async", "asyncpg", "redis-async")

    def connect(self, **options: Any) -> Any:
        connection = self._connect(**options)
        self._open.append(connection)
        return connection

    def _connect(self, **options: Any) -> Any:
        if self.driver == "sqlite3":
            import sqlite3

            return sqlite3.connect(self.address, **{"isolation_level": None, "timeout": 30, **options})
        if self.driver == "aiosqlite":
            import aiosqlite

            return self.runner.run(_await(aiosqlite.connect(self.address, isolation_level=None, timeout=30)))
        if self.driver.startswith("psycopg"):
            import psycopg

            options = {"autocommit": True, **options}
            if self.driver == "psycopg":
                return psycopg.connect(self.address, **options)
            return self.runner.run(psycopg.AsyncConnection.connect(self.address, **options))
        if self.driver == "asyncpg":
            import asyncpg

            return self.runner.run(asyncpg.connect(self.address))
        import redis

        kind: Any = redis.asyncio.Redis if self.driver == "redis-async" else redis.Redis
        return kind.from_url(self.address)

    def use(self, made: Any) -> Any:
        """Something made of a connection of ours: spoken to as if it blocked."""
        return Blocking(self.runner, made) if self.asynchronous else made

    def close(self) -> None:
        for connection in self._open:
            close = getattr(connection, "aclose", None) or connection.close
            answer = close()
            if inspect.isawaitable(answer):
                self.runner.run(_await(answer))


async def _await(something: Any) -> Any:
    return await something


DRIVERS = [
    "sqlite3",
    "aiosqlite",
    pytest.param("psycopg", marks=SERVER),
    pytest.param("psycopg-async", marks=SERVER),
    pytest.param("asyncpg", marks=SERVER),
    pytest.param("redis", marks=SERVER),
    pytest.param("redis-async", marks=SERVER),
]


def address_of(driver: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if "sqlite" in driver:
        return str(tmp_path / "database.db")
    return str(request.getfixturevalue("redis_url" if driver.startswith("redis") else "postgresql"))


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Parametrize it with names of drivers, indirectly."""
    driver: str = request.param
    with asyncio.Runner() as runner:
        made = Database(driver, address_of(driver, request, tmp_path), runner)
        yield made
        made.close()
