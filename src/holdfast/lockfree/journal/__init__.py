"""Events instead of state: what happened is appended, never changed; the state is what they come to.

    from holdfast.lockfree import journal

    events = journal.Journal(db)                              # sqlite3, psycopg, asyncpg, SQLAlchemy, redis-py …
    balance, version = events.replay("account:42", lambda balance, event: balance + event["cents"], 0)
    events.append("account:42", {"cents": -500}, expected=version)    # Conflict, if somebody was faster

Two appends at one version: one is kept, the other is told. For asyncio the same names are in `journal.aio`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import Conflict
from .event import Event, Replayed
from .threads import Journal

if TYPE_CHECKING:
    from . import aio

__all__ = ["Journal", "Event", "Replayed", "Conflict", "aio"]


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module(f"{__name__}.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
