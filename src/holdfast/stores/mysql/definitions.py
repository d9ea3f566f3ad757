"""The tables and procedures, as they are created on first use, or by an administrator for those who may not."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .faults import CREATE, GRANTS
from .url import parse

VERSION = 1  # also the end of every procedure's name: a newer schema drops the old ones, and we find that out
TABLES = ("holdfast_claims", "holdfast_sessions", "holdfast_audit", "holdfast_meta")
# Procedures remember the sql_mode of their creation: whatever the callers' is, they run in this one.
SQL_MODE = "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'"
WHOLE = "REPLACE INTO holdfast_meta VALUES (1, 1)"
_SWEEP_ROW = (
    "INSERT IGNORE INTO holdfast_claims VALUES ('', 0, '', '', 0, 0, 0, 0, 0, 0, 0, 4611686018427387904, NULL, 0, '')"
)


def _load(file: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), file), encoding="utf-8") as script:
        return script.read()


def tables() -> Iterator[str]:
    for part in _load("tables.sql").split(";\n"):
        if part.strip():
            yield part.strip()
    yield _SWEEP_ROW


def procedures() -> Iterator[tuple[str, str]]:
    """Each with its name."""
    for part in _load("procedures.sql").split("-- procedure: ")[1:]:
        name, _, body = part.partition("\n")
        yield name, body.strip()


def schema(url: str) -> str:
    """What `holdfast migrate --sql` prints: all of it, for the mysql or mariadb client and the database that the URL names."""
    database = parse(url).database.replace("`", "``")
    grants = GRANTS.format(database=database if database.isprintable() else "...")  # a line's end would end the comment
    parts = [
        f"-- holdfast's tables and procedures in MySQL or MariaDB, version {VERSION}. Running it again does no harm.\n"
        f"-- It takes the rights {CREATE}; an application that may not create needs only:\n--   {grants}",
        f"{SQL_MODE};",
    ]
    parts += [f"{statement};" for statement in tables()]
    parts.append("DELIMITER //")
    for name, body in procedures():
        parts.append(f"DROP PROCEDURE IF EXISTS {name} //\n{body} //")
    parts.append("DELIMITER ;")
    parts.append(f"{WHOLE};")
    return "\n\n".join(parts) + "\n"
