"""The schema as it is created, and what a database answers when asked about it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

VERSION = 2


@cache
def text(schema: str = "holdfast") -> str:
    """The SQL that creates everything, for a schema of that name."""
    plain = files(__package__).joinpath("schema.sql").read_text(encoding="utf-8")
    plain = plain.replace('"holdfast"', f'"{schema}"').replace("'holdfast '::bytea", f"'{schema} '::bytea")
    return plain.replace("'holdfast_watch_' || 'holdfast'", f"'{watch(schema)}'")


def watch(schema: str) -> str:
    """The channel on which changes of watched names are told."""
    return f"holdfast_watch_{schema}"


@cache
def question(schema: str) -> str:
    """Who is asked (for a pooler gives itself another pid), how new it is, whether the schema is there; and, of one
    who may do everything on the server, which role that may not owns something in it."""
    plain = files(__package__).joinpath("question.sql").read_text(encoding="utf-8")
    return plain.replace("holdfast", schema)
