"""PostgreSQL, MySQL and MariaDB, SQLite: transactions that begin by recording the token."""

from __future__ import annotations

from ...errors import Misuse
from .place import Row
from .statements import DIALECTS, load

__all__ = ["Row", "schema"]


def schema(dialect: str) -> str:
    """The statement that creates the table `holdfast_fences`, for your migrations."""
    if dialect not in DIALECTS:
        raise Misuse(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
    return load(dialect)["create"] + ";\n"
