"""The schema as it is created, and what a database answers when asked about it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

VERSION = 2


@cache
def text(schema: str = "holdfast") -> str:
    """The SQL that creates everything, for a schema of that name."""
    plain = files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
    return plain.replace('"holdfast"', f'"{schema}"').replace("'holdfast_watch_' || 'holdfast'", f"'{watch(schema)}'")


def watch(schema: str) -> str:
    """The channel on which changes of watched names are told."""
    return f"holdfast_watch_{schema}"


def question(schema: str) -> str:
    """Who is asked (for a pooler gives itself another pid), how new it is, and whether the schema is there."""
    return (
        "SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('server_version_num'), "
        f"""pg_catalog.to_regprocedure('"{schema}".version()') IS NOT NULL"""
    )
