"""Which driver a connection belongs to, by the name of its class: none is imported to find out."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...errors import Misuse
from .wire import Wire

THREADS, ASYNCIO = "threads", "asyncio"

# (top-level module, class) of a connection: where its wire is, and in which world it lives
_KNOWN = {
    ("sqlite3", "Connection"): ("sqlite.SqliteWire", THREADS),
    ("aiosqlite", "Connection"): ("sqlite.SqliteWire", ASYNCIO),
    ("psycopg", "Connection"): ("postgresql.PsycopgWire", THREADS),
    ("psycopg", "AsyncConnection"): ("postgresql.PsycopgWire", ASYNCIO),
    ("asyncpg", "Connection"): ("postgresql.AsyncpgWire", ASYNCIO),
    ("asyncpg", "PoolConnectionProxy"): ("postgresql.AsyncpgWire", ASYNCIO),
    ("pymysql", "Connection"): ("mysql.MySqlWire", THREADS),
    ("asyncmy", "Connection"): ("mysql.MySqlWire", ASYNCIO),
    ("aiomysql", "Connection"): ("mysql.MySqlWire", ASYNCIO),
    ("sqlalchemy", "Connection"): ("sqlalchemy.SqlAlchemyWire", THREADS),
    ("sqlalchemy", "Session"): ("sqlalchemy.SqlAlchemyWire", THREADS),
    ("sqlalchemy", "scoped_session"): ("sqlalchemy.SqlAlchemyWire", THREADS),
    ("sqlalchemy", "AsyncConnection"): ("sqlalchemy.SqlAlchemyWire", ASYNCIO),
    ("sqlalchemy", "AsyncSession"): ("sqlalchemy.SqlAlchemyWire", ASYNCIO),
    ("sqlalchemy", "async_scoped_session"): ("sqlalchemy.SqlAlchemyWire", ASYNCIO),
    ("django", "BaseDatabaseWrapper"): ("django.DjangoWire", THREADS),
    ("django", "ConnectionProxy"): ("django.DjangoWire", THREADS),
}


def wire_for(connection: Any, world: str) -> Wire:
    for kind in type(connection).__mro__:
        known = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if known is None:
            continue
        where, lives_in = known
        if lives_in != world:
            right = "holdfast.fenced.aio" if lives_in == ASYNCIO else "holdfast.fenced"
            raise Misuse(f"{_shown(connection)} is a connection for {lives_in}: use the same function of {right}")
        module, _, name = where.partition(".")
        wire: Wire = getattr(import_module(f"{__package__}.{module}"), name)(connection)
        return wire
    drivers = ", ".join(sorted({f"{module} {name}" for module, name in _KNOWN}))
    raise Misuse(f"{_shown(connection)} is no connection that fenced storage knows. It knows: {drivers}")


def _shown(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
