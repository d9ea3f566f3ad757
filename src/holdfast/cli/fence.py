"""`holdfast fence install` and `remove`: the trigger that refuses a lower token, printed or applied."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from ..databases.statements import DIALECTS, MYSQL, POSTGRESQL, SQLITE
from ..drivers.base import boot_time
from ..errors import Misuse, NotInstalled, Unavailable
from ..fenced import schema, triggers
from ..secret import plausible
from . import exits
from .options import Options, Usage

_LOGIN = 10.0  # seconds
_DAY = 86400.0  # what it may take to give a large table a column
_SCHEMES = {
    "postgresql": POSTGRESQL,
    "postgres": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "sqlite": SQLITE,
}


def fence(options: Options) -> int:
    dialect = _dialect(options)
    table, column = options.get("table"), options.get("column", "fence")
    if options.name == "install":
        statements = triggers.install(dialect, table, column, add_column=options.flag("add_column"))
    elif options.name == "remove":
        statements = triggers.remove(dialect, table, column)
    else:
        statements = [schema(dialect).rstrip().rstrip(";")]
    if options.flag("apply"):
        _apply(options.get("database"), dialect, statements, table or "", column)
    _show(options, dialect, statements)
    return exits.OK


def _dialect(options: Options) -> str:
    said, database = options.get("dialect"), options.get("database")
    if options.name not in ("install", "remove", "table"):
        raise Usage(f"say `fence install`, `fence remove` or `fence table`, not {options.name!r}", "fence")
    if options.name != "table" and not options.get("table"):
        raise Usage("which table? Say --table T", "fence")
    if options.flag("apply") and not database:
        raise Usage("--apply needs --database URL, or --database-file", "fence")
    found = _SCHEMES.get(database.partition("://")[0].partition("+")[0]) if database else said
    if database and found is None:
        raise Usage(f"--database wants a URL that begins with one of {', '.join(_SCHEMES)}", "fence")
    if found is None:
        raise Usage(f"which database is it for? Say --dialect {'|'.join(DIALECTS)}, or --database URL", "fence")
    if said and said != found:
        raise Usage(f"--dialect says {said}, --database says {found}", "fence")
    return str(found)


def _show(options: Options, dialect: str, statements: list[str]) -> None:
    applied = options.flag("apply")
    if options.flag("json"):
        import json

        print(json.dumps({"dialect": dialect, "applied": applied, "statements": statements}, indent=2))
    elif applied:
        print(f"Done, in {len(statements)} statement{'s' * (len(statements) > 1)}.", file=sys.stderr)
    else:
        print(triggers.script(dialect, statements), end="")


def _apply(url: str, dialect: str, statements: list[str], table: str, column: str) -> None:
    """In one transaction where the database can (MySQL commits each such statement by itself)."""
    connection, failure = _connect(url, dialect)
    try:
        cursor = connection.cursor()
        for statement in statements:
            if dialect == SQLITE and statement.startswith("CREATE TRIGGER"):
                _check_column(cursor, table, column)
            cursor.execute(statement)
        connection.commit()
    except failure as error:
        with suppress(failure):  # it may be gone
            connection.rollback()
        raise Misuse(f"the database refused: {error}") from error
    finally:
        connection.close()


def _check_column(cursor: Any, table: str, column: str) -> None:
    """SQLite takes a trigger over a column that is not there, and then refuses every update."""
    cursor.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table.rpartition(".")[2], column))
    if cursor.fetchone() is None:
        raise Misuse(f"the table {table!r} has no column {column!r}: add it with --add-column")


def _connect(url: str, dialect: str) -> tuple[Any, type[Exception]]:
    scheme, _, rest = url.partition("://")
    url = f"{scheme.partition('+')[0]}://{rest}"  # SQLAlchemy's way of naming a driver
    if dialect == SQLITE:
        import sqlite3

        connection = sqlite3.connect(unquote(rest), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        return connection, sqlite3.Error
    plausible(url)
    return _postgresql(url) if dialect == POSTGRESQL else _mysql(url)


# Both by the parsers of the stores, which know what of a URL may be shown, and how TLS is asked for. The driver's error is
# no cause of ours: its frames hold the password.
def _postgresql(url: str) -> tuple[Any, type[Exception]]:
    driver = _driver("psycopg")
    from ..stores.postgresql.opening import open_psycopg
    from ..stores.postgresql.url import parse

    target = parse(url)
    try:
        return open_psycopg(target, driver.Connection, _LOGIN, autocommit=False), driver.Error
    except Unavailable as error:
        raise Unavailable(f"cannot connect to PostgreSQL at {target.where}: {error}") from None


def _mysql(url: str) -> tuple[Any, type[Exception]]:
    driver = _driver("pymysql")
    from ..stores.mysql.connection import Bounded, Preferring
    from ..stores.mysql.connections import refused_logins, tls_context_of
    from ..stores.mysql.faults import NONSENSE
    from ..stores.mysql.url import parse

    target, why = parse(url), ""
    tls: dict[str, Any] = {"ssl": tls_context_of(target)} if target.tls else {}
    try:
        connection = (Bounded if target.tls else Preferring)(
            defer_connect=True,
            connect_timeout=_LOGIN,
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            database=target.database,
            unix_socket=target.socket or None,
            auth_plugin_map=refused_logins(target),
            **tls,
        )
        connection.deadline = boot_time() + _LOGIN
        connection.connect()
        connection.deadline = boot_time() + _DAY
        return connection, driver.Error
    except (driver.Error, *NONSENSE) as error:
        why = str(error)
    raise Unavailable(f"cannot connect to MySQL at {target.shown()}: {why}")


def _driver(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise NotInstalled(
            f"--apply needs {name}: pip install {name}. Without --apply the statements are printed"
        ) from None
