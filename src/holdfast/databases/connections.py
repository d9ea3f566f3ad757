"""Which driver a connection belongs to, by the name of its class: none is imported to find out."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import Misuse
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

_found: dict[type, tuple[Any, str]] = {}  # by now


def wire_for(connection: Any, world: str, package: str = "holdfast.fenced") -> Wire:
    """`package` has the surface for threads; that for asyncio is its `aio`."""
    wire_class, lives_in = _known(type(connection))
    if lives_in != world:
        right = f"{package}.aio" if lives_in == ASYNCIO else package
        raise Misuse(f"{_shown(type(connection))} is a connection for {lives_in}: use the same function of {right}")
    wire: Wire = wire_class(connection)
    return wire


async def in_transaction(connection: Any) -> bool:
    """Of what is under another library's connection, in whichever world, after a statement that changes something: is a
    transaction open? A driver that we do not know is asked for what most of them have."""
    if is_connection(connection):
        wire: Wire = _known(type(connection))[0](connection)
        return await wire.opened()
    if hasattr(connection, "in_transaction"):  # mysql.connector
        return bool(connection.in_transaction)
    if hasattr(connection, "autocommit") and not callable(connection.autocommit):  # psycopg2, pg8000, mariadb
        return not connection.autocommit
    if hasattr(connection, "get_autocommit"):  # mysqlclient
        return not connection.get_autocommit()
    raise Misuse(f"{_shown(type(connection))} does not tell whether a transaction is open, so nothing could be guarded")


def is_connection(thing: Any) -> bool:
    """Of a driver that is known?"""
    try:
        _known(type(thing))
    except Misuse:
        return False
    return True


def _known(kind: type) -> tuple[Any, str]:
    if kind in _found:
        return _found[kind]
    for one in kind.__mro__:
        known = _KNOWN.get((one.__module__.partition(".")[0], one.__name__))
        if known is not None:
            module, _, name = known[0].partition(".")
            found = _found[kind] = getattr(import_module(f"{__package__}.{module}"), name), known[1]
            return found
    drivers = ", ".join(sorted({f"{module} {name}" for module, name in _KNOWN}))
    raise Misuse(f"{_shown(kind)} is no connection that holdfast knows. It knows: {drivers}")


def _shown(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
