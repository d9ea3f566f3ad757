"""The short way to a result that was kept. On SQLite a SELECT is a function call of a few µs, and all that the long way does
around it would take several times that; so one SELECT is made first, and only what it finds in order is taken from it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import time_ns
from typing import Any

from ...databases.statements import QMARK, SQLITE, bind
from .codec import fingerprint
from .sql import statements

Kept = Callable[[Any, object], tuple[bytes, int] | None]


def quick_look(store: Any) -> Kept | None:
    """From key and payload to what was kept, and under which token. It answers None whenever there is anything to be said,
    done or waited for: the long way does that. For other stores than a connection of sqlite3, there is no such short way."""
    sqlite3 = sys.modules.get("sqlite3")
    if sqlite3 is None or not isinstance(store, sqlite3.Connection):
        return None
    text = bind(statements(SQLITE)["kept"], QMARK, {"name": ""}).text

    def look(key: Any, payload: object) -> tuple[bytes, int] | None:
        # Rows of the user's own kind may be anything; and with autocommit=False (Python 3.12) a SELECT would leave a
        # transaction open.
        if type(key) is not str or store.row_factory is not None or getattr(store, "autocommit", None) is False:
            return None
        try:
            found = store.execute(text, (key,)).fetchall()
        except Exception:
            return None
        if not found:
            return None
        seen, kept, token, expires = found[0]
        if seen != (None if payload is None else fingerprint(payload)):
            return None
        return (kept, token) if expires > time_ns() // 1000 else None  # SQLite has no other clock than this machine's

    return look
