"""PostgreSQL, MySQL and MariaDB, SQLite: transactions that begin by recording the token."""

from __future__ import annotations

from ...databases.statements import DIALECTS
from ...errors import Misuse
from .place import Row, texts

__all__ = ["Row", "schema"]


def schema(dialect: str) -> str:
    """The statement that creates the table `holdfast_fences`, for your migrations."""
    if dialect not in DIALECTS:
        raise Misuse(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
    return texts(dialect)["create"] + ";\n"
