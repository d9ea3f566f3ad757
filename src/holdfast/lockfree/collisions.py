"""When a server says that two transactions got into each other's way."""

from __future__ import annotations

from ..fenced.sql.core import error_code

_SQLSTATES = ("40001", "40P01")  # PostgreSQL: serialization failure, deadlock
_MYSQL = (1213, 1020)  # deadlock; MariaDB: the record has changed since last read
_SQLITE_BUSY_SNAPSHOT = 517


def collided(error: BaseException | None) -> bool:
    """Was this transaction rolled back because of another, and may be tried again? SQLAlchemy and Django wrap the error."""
    if error_code(error) in _MYSQL:
        return True
    while error is not None:
        if getattr(error, "sqlstate", None) in _SQLSTATES:
            return True
        if getattr(error, "sqlite_errorcode", None) == _SQLITE_BUSY_SNAPSHOT:
            return True
        error = getattr(error, "orig", None) or error.__cause__
    return False
