"""A connection of every SQL driver that fenced transactions know, by name."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.databases.connections import ASYNCIO, THREADS


class Driver(NamedTuple):
    server: str  # the fixture that gives its URL
    world: str
    connect: Callable[[str], Any]  # an open connection, or for asyncio a coroutine that gives one
    close: Callable[[Any], Any] = lambda connection: connection.close()
    rest: Callable[[Any], object] = lambda connection: None  # after each use


def sqlite(url: str) -> Any:
    return sqlite3.connect(url, timeout=30, isolation_level=None, check_same_thread=False)


def sqlite_legacy(url: str) -> Any:
    """As `sqlite3.connect(path)` gives it: transactions begin by themselves."""
    return sqlite3.connect(url, timeout=30, check_same_thread=False)


async def aiosqlite(url: str) -> Any:
    import aiosqlite

    return await aiosqlite.connect(url, timeout=30)


def psycopg(url: str) -> Any:
    import psycopg

    return psycopg.connect(url)


def psycopg_autocommit(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True)


async def psycopg_async(url: str) -> Any:
    import psycopg

    return await psycopg.AsyncConnection.connect(url)


async def asyncpg(url: str) -> Any:
    import asyncpg

    return await asyncpg.connect(url)


def _mysql(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {"host": parts.hostname, "port": parts.port, "user": parts.username, "charset": "utf8mb4"}


def pymysql(url: str) -> Any:
    import pymysql

    return pymysql.connect(database="holdfast", **_mysql(url))


def pymysql_found_rows(url: str) -> Any:
    """As SQLAlchemy and Django set it: the row count then means something else."""
    import pymysql
    from pymysql.constants import CLIENT

    return pymysql.connect(database="holdfast", client_flag=CLIENT.FOUND_ROWS, autocommit=True, **_mysql(url))


async def asyncmy(url: str) -> Any:
    import asyncmy

    return await asyncmy.connect(db="holdfast", **_mysql(url))


async def aiomysql(url: str) -> Any:
    import aiomysql

    return await aiomysql.connect(db="holdfast", **_mysql(url))


def _engine_url(url: str, driver: str) -> str:
    return (
        f"sqlite+{driver}:///{url}"
        if url.startswith("/")
        else f"{url.partition(':')[0]}+{driver}{url[url.index(':') :]}"
    )


def close_with_engine(connection: Any) -> None:
    engine = connection.get_bind() if hasattr(connection, "get_bind") else connection.engine
    connection.close()
    engine.dispose()


async def close_with_async_engine(connection: Any) -> None:
    engine = connection.bind if hasattr(connection, "get_bind") else connection.engine
    await connection.close()
    await engine.dispose()


def core(driver: str) -> Callable[[str], Any]:
    def connect(url: str) -> Any:
        from sqlalchemy import create_engine

        return create_engine(_engine_url(url, driver)).connect()

    return connect


def session(driver: str) -> Callable[[str], Any]:
    def connect(url: str) -> Any:
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        return Session(create_engine(_engine_url(url, driver)))

    return connect


def async_core(driver: str) -> Callable[[str], Any]:
    async def connect(url: str) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine

        return await create_async_engine(_engine_url(url, driver)).connect()

    return connect


def async_session(driver: str) -> Callable[[str], Any]:
    async def connect(url: str) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        return AsyncSession(create_async_engine(_engine_url(url, driver)))

    return connect


def _pymysql_for_django() -> None:
    """Django asks for mysqlclient, which has to be compiled; PyMySQL answers to its name."""
    import pymysql

    pymysql.install_as_MySQLdb()
    for name, module in list(sys.modules.items()):  # else its parts would be imported a second time under that name
        if name.startswith("pymysql."):
            sys.modules[name.replace("pymysql", "MySQLdb", 1)] = module
    pymysql.version_info = (2, 2, 1, "final", 0)  # what Django asks for


def django(url: str) -> Any:
    """Django keeps a connection a thread; this finds the right one wherever it is used, as `django.db.connection` does."""
    from django import setup
    from django.conf import settings
    from django.db import connections
    from django.utils.connection import ConnectionProxy

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        setup()
    _pymysql_for_django()
    alias = url  # so that every server has connections of its own
    if alias not in connections.settings:
        parts = urlsplit(url)
        engine = {"postgresql": "postgresql", "mysql": "mysql"}.get(parts.scheme, "sqlite3")
        connections.settings[alias] = {
            **connections.settings["default"],
            "ENGINE": f"django.db.backends.{engine}",
            "NAME": parts.path.lstrip("/") if parts.port else url,
            "HOST": parts.hostname or "",
            "PORT": parts.port or "",
            "USER": parts.username or "",
            "OPTIONS": {} if parts.port else {"timeout": 30},
        }
    return ConnectionProxy(connections, alias)


def close_in_this_thread(connection: Any) -> None:
    """Nobody else can, and a thread that ends leaves it open. The main thread goes on."""
    if threading.current_thread() is not threading.main_thread():
        connection.close()


DRIVERS: dict[str, Driver] = {
    "sqlite3": Driver("sqlite_file", THREADS, sqlite),
    "sqlite3 legacy": Driver("sqlite_file", THREADS, sqlite_legacy),
    "aiosqlite": Driver("sqlite_file", ASYNCIO, aiosqlite),
    "psycopg": Driver("postgresql", THREADS, psycopg),
    "psycopg autocommit": Driver("postgresql", THREADS, psycopg_autocommit),
    "psycopg async": Driver("postgresql", ASYNCIO, psycopg_async),
    "asyncpg": Driver("postgresql", ASYNCIO, asyncpg),
    "pymysql": Driver("mariadb", THREADS, pymysql),
    "pymysql FOUND_ROWS": Driver("mariadb", THREADS, pymysql_found_rows),
    "asyncmy": Driver("mariadb", ASYNCIO, asyncmy, lambda connection: connection.close() or connection.ensure_closed()),
    "aiomysql": Driver("mariadb", ASYNCIO, aiomysql, lambda connection: connection.ensure_closed()),
    "sqlalchemy sqlite": Driver("sqlite_file", THREADS, core("pysqlite"), close_with_engine),
    "sqlalchemy psycopg": Driver("postgresql", THREADS, core("psycopg"), close_with_engine),
    "sqlalchemy pymysql": Driver("mariadb", THREADS, core("pymysql"), close_with_engine),
    "sqlalchemy Session sqlite": Driver("sqlite_file", THREADS, session("pysqlite"), close_with_engine),
    "sqlalchemy Session psycopg": Driver("postgresql", THREADS, session("psycopg"), close_with_engine),
    "sqlalchemy Session pymysql": Driver("mariadb", THREADS, session("pymysql"), close_with_engine),
    "sqlalchemy AsyncConnection asyncpg": Driver("postgresql", ASYNCIO, async_core("asyncpg"), close_with_async_engine),
    "sqlalchemy AsyncConnection aiosqlite": Driver(
        "sqlite_file", ASYNCIO, async_core("aiosqlite"), close_with_async_engine
    ),
    "sqlalchemy AsyncSession asyncpg": Driver("postgresql", ASYNCIO, async_session("asyncpg"), close_with_async_engine),
    "sqlalchemy AsyncSession asyncmy": Driver("mariadb", ASYNCIO, async_session("asyncmy"), close_with_async_engine),
    "django sqlite": Driver("sqlite_file", THREADS, django, Driver._field_defaults["close"], close_in_this_thread),
    "django postgresql": Driver("postgresql", THREADS, django, Driver._field_defaults["close"], close_in_this_thread),
    "django mysql": Driver("mariadb", THREADS, django, Driver._field_defaults["close"], close_in_this_thread),
}
