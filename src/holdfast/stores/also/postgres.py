"""A blocking connection to PostgreSQL, by psycopg: for formats that other libraries keep there."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ...errors import NotInstalled

_SECONDS = 3


def connect(url: str) -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise NotInstalled(f"PostgreSQL needs psycopg ({error}): pip install 'holdfast[postgresql]'") from None
    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=_SECONDS,
        options=f"-c statement_timeout={_SECONDS * 1000}",
        keepalives_idle=_SECONDS,
    )


def place(url: str) -> str:
    """Without user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
