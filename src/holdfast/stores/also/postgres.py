"""A blocking connection to PostgreSQL, by psycopg: for formats that other libraries keep there."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from ...claim import printable
from ...errors import Misuse, NotInstalled, Unavailable
from ..postgresql.url import OURS, Target, parse

_SECONDS = 3


def target(url: str) -> Target:
    """As the store reads it: the same is refused, the password is not shown, nor sent in clear text to whoever asks for it."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise NotInstalled(f"PostgreSQL needs psycopg ({error}): pip install 'holdfast[postgresql]'") from None
    if found := [key for key, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True) if key in OURS]:
        raise Misuse(
            f"also=…+postgresql://…: {found[0]} is an option of the store; here, besides libpq's own, there is ?as="
        )
    return parse(url)


def connect(target: Target, search_path: str | None = None) -> Any:
    """Unavailable: no connection. `search_path`: where to look, whatever the owner of the database has set."""
    import psycopg

    said = f"-c statement_timeout={_SECONDS * 1000}" + (f" -c search_path={search_path}" if search_path else "")
    try:
        return psycopg.connect(
            target.conninfo.plain, autocommit=True, connect_timeout=_SECONDS, options=said, keepalives_idle=_SECONDS
        )
    except psycopg.Error as error:
        why = printable(" ".join(str(error).split()))
    # Raised here, and not above: psycopg's frames hold the password in pieces, and are not to be found in its context.
    raise Unavailable(f"cannot connect to PostgreSQL at {target.where}: {why}")
