"""What a database's error means, whichever driver tells it, and however deep SQLAlchemy or Django have wrapped it."""

from __future__ import annotations

from collections.abc import Iterator

# PostgreSQL: serialisation failure, deadlock. MySQL: deadlock; MariaDB: the row has changed since it was read.
_COLLISIONS = {"40001", "40P01", 1213, 1020}
_SQLITE_BUSY, _SQLITE_BUSY_SNAPSHOT = 5, 517
_DEEPEST = 10


def _layers(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_DEEPEST):
        if error is None:
            return
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def code_of(error: BaseException | None) -> object:
    """The database's own code: an SQLSTATE of PostgreSQL, a number of MySQL."""
    for one in _layers(error):
        if one.args and type(one.args[0]) is int and _of_a_database(one):
            return one.args[0]  # first: MySQL's drivers may tell an SQLSTATE too, which says less
        state = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if state:
            return state
    return None


def _of_a_database(error: BaseException) -> bool:
    """PEP 249 has all of them in one family. A KeyError(1213) is a number of the user's own."""
    return any(kind.__name__ in ("DatabaseError", "InterfaceError") for kind in type(error).__mro__)


def collided(error: BaseException | None) -> bool:
    """Was this transaction rolled back because of another, so that it may be tried again?"""
    return code_of(error) in _COLLISIONS or any(
        getattr(one, "sqlite_errorcode", None) == _SQLITE_BUSY_SNAPSHOT for one in _layers(error)
    )


def was_busy(error: BaseException | None) -> bool:
    """SQLite: another had the lock for longer than this connection waits."""
    return any(getattr(one, "sqlite_errorcode", 0) & 0xFF == _SQLITE_BUSY for one in _layers(error))


def lacks_table(error: BaseException, table: str) -> bool:
    words = str(error)
    return table in words and any(sign in words for sign in ("no such table", "does not exist", "doesn't exist"))
