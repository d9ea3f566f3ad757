"""Locks in PostgreSQL: a lease table, safe behind poolers, or session locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...drivers.base import Driver
from ...errors import NotInstalled
from ..base import Store
from .url import Target, parse

if TYPE_CHECKING:
    from .wires import Kinds

__all__ = ["open_store", "schema"]


def open_store(url: str, driver: Driver) -> Store:
    """`postgresql://[user:password@]host[:port][/database][?mode=session&…]`."""
    from ...drivers.aio import Asyncio

    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise NotInstalled(f"PostgreSQL needs psycopg ({error}): pip install 'holdfast[postgresql]'") from None
    target = parse(url)
    if isinstance(driver, Asyncio):
        from .lane import KINDS
    else:
        from .watched import KINDS
    return (_session if target.mode == "session" else _lease)(target, driver, KINDS)


def _lease(target: Target, driver: Driver, kinds: Kinds) -> Store:
    from .greeting import Greeting
    from .released import Released
    from .statements import Statements
    from .store import PostgresStore
    from .wire import Wire

    statements = Statements(target.schema)
    greeting = Greeting(target, statements)
    wire = Wire(target, greeting, Released(statements.release), driver, kinds)
    return PostgresStore(target, wire, greeting, statements, driver)


def _session(target: Target, driver: Driver, kinds: Kinds) -> Store:
    from .greeting import Greeting
    from .released import Released
    from .session import SessionStore
    from .session_wire import SessionWire
    from .statements import SessionStatements

    statements = SessionStatements(target.schema)
    greeting = Greeting(target, statements)
    wire = SessionWire(target, greeting, Released(None), driver, kinds)
    return SessionStore(target, wire, greeting, statements, driver)


def schema(url: str) -> str:
    """What `holdfast migrate --sql` prints: the SQL that creates what a URL's store needs."""
    from .migration import text

    return text(parse(url).schema)
