"""PostgreSQL, MySQL and MariaDB, SQLite: transactions that begin by recording the token."""

from __future__ import annotations

from ...databases.statements import valid_dialect
from .place import Row, texts

__all__ = ["Row", "schema"]


def schema(dialect: str) -> str:
    """The statement that creates the table `holdfast_fences`, for your migrations."""
    valid_dialect(dialect)
    return texts(dialect)["create"] + ";\n"
