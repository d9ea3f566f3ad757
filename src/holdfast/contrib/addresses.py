"""A database's address, as other people's settings have it, as the URL of a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote as percent
from urllib.parse import urlencode

from ..connecting import quote as quoted

OF_LIBPQ = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "service",
    "passfile",
    "target_session_attrs",
    "connect_timeout",
)


def beside(path: str, options: Mapping[str, object] | None = None) -> str:
    """Of SQLite, a file beside the database: locks are taken and given back while a transaction is open there."""
    if path == ":memory:" or "mode=memory" in path or not path:
        return "memory://beside"
    return f"sqlite://{quoted(os.path.abspath(path))}.locks" + _query(options)


def networked(
    scheme: str,
    *,
    name: object,
    user: object = None,
    password: object = None,
    host: object = None,
    port: object = None,
    options: Mapping[str, object] | None = None,
) -> str:
    """Of PostgreSQL (`scheme` is postgresql) or MySQL (mysql)."""
    login = percent(str(user or ""), safe="")
    if password:
        login += ":" + percent(str(password), safe="")
    place, said = str(host or ""), dict(options or {})
    if place.startswith("/"):  # a socket: for libpq its folder, for MySQL the file
        said["host" if scheme == "postgresql" else "socket"] = place
        if scheme == "postgresql" and port:
            said["port"] = port
        place, port = "", None
    if ":" in place:
        place = f"[{place}]"
    if port:
        place += f":{port}"
    return f"{scheme}://{login + '@' if login else ''}{place}/{percent(str(name or ''), safe='')}" + _query(said)


def _query(options: Mapping[str, object] | None) -> str:
    return f"?{urlencode(options)}" if options else ""
