"""Triggers that refuse a lower token in a table's own fence column, even from code that forgot to compare.

An update that writes a lower token than the row has, or takes the token away, fails. One that does not mention the column
keeps it as it is, and passes: the trigger cannot know who sent it. Deleting is not covered either.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

from ...databases.statements import MYSQL, POSTGRESQL, identifier, load, plain, table_name, table_parts, valid_dialect
from ...errors import Misuse, StaleToken
from ..mark import Mark, refusal

__all__ = ["install", "remove", "script", "stale"]

Table = str | tuple[str, ...]

_TOLD = re.compile(r"holdfast: stale token (?:(-?\d+|NULL) )?for (.+?)(?: which has seen (-?\d+))?(?=\n|\"|'\)|$)")


def install(dialect: str, table: Table, column: str = "fence", *, add_column: bool = False) -> list[str]:
    """The statements that install the trigger; again is harmless. `add_column` adds the column first."""
    text, slots = _prepared(dialect, table, column)
    names = ["drop_trigger", "trigger"]
    if dialect == POSTGRESQL:
        names.insert(0, "function")
    if add_column:
        names.insert(0, "add_column")
    return [_filled(text[name], slots) for name in names]


def remove(dialect: str, table: Table, column: str = "fence") -> list[str]:
    """The statements that remove the trigger; the column and its tokens stay."""
    text, slots = _prepared(dialect, table, column)
    names = ["drop_trigger", "drop_function"] if dialect == POSTGRESQL else ["drop_trigger"]
    return [_filled(text[name], slots) for name in names]


def script(dialect: str, statements: Sequence[str]) -> str:
    """The statements as a file for psql, mysql or sqlite3."""
    if dialect == MYSQL:  # its client would cut the body of a trigger at the first semicolon
        return "\n".join(["DELIMITER //", *(f"{one} //" for one in statements), "DELIMITER ;", ""])
    return "\n\n".join(f"{one};" for one in statements) + "\n"


def stale(error: BaseException) -> StaleToken | None:
    """The `StaleToken` that a driver's error stands for, if it is a trigger's refusal; raise it from the error."""
    told = _TOLD.search(str(error))
    if told is None:
        return None
    presented = int(told[1]) if told[1] and told[1] != "NULL" else 0
    return refusal(Mark(told[2], presented), int(told[3] or 0))


def _prepared(dialect: str, table: Table, column: str) -> tuple[dict[str, str], dict[str, str]]:
    valid_dialect(dialect)
    parts = table_parts(table)
    label = ".".join((*parts, column))
    if "$holdfast$" in label:
        raise Misuse("a name that contains $holdfast$ would end the function's body")
    name = plain(identifier(dialect, _trigger_name(dialect, parts, column)))
    # A trigger lives in its table's schema: PostgreSQL knows, and refuses to be told.
    schema = "".join(f"{plain(identifier(dialect, part))}." for part in parts[:-1])
    slots = {
        "table": plain(table_name(dialect, table)),
        "table_in_schema": plain(identifier(dialect, parts[-1])),
        "column": plain(identifier(dialect, column)),
        "trigger": name if dialect == POSTGRESQL else schema + name,
        "label": _literal(dialect, label),
        "told": _literal(dialect, f"holdfast: stale token for {label}"),
    }
    return load(dialect, __package__ or "", f"{dialect}.sql"), slots


def _filled(template: str, slots: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: slots[match[1]], template)


def _literal(dialect: str, text: str) -> str:
    quoted = text.replace("'", "''")
    return "'" + (quoted.replace("\\", "\\\\") if dialect == MYSQL else quoted) + "'"


def _trigger_name(dialect: str, parts: tuple[str, ...], column: str) -> str:
    """Readable, and one of its own for each table and column, however long their names."""
    readable = re.sub(r"\W+", "_", "_".join((*parts, column)), flags=re.ASCII)[:36].lower()
    unique = sha256("\0".join((*parts, column)).encode()).hexdigest()[:8]
    return f"holdfast_{readable}_{unique}"
