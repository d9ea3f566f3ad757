"""A database's address, as other people's settings have it, as the URL of a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote as percent
from urllib.parse import urlencode

from ..connecting import quote as quoted

OF_LIBPQ = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslcrldir",
    "sslcertmode",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "require_auth",
    "channel_binding",
    "gssencmode",
    "requirepeer",
    "service",
    "passfile",
    "target_session_attrs",
    "connect_timeout",
)


_NO = ("", "0", "false", "no", "none")
_OF_TLS = {"ca": "ca", "cert": "cert", "key": "cert_key"}
_ENCRYPTED = ("REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")


def tls_of_mysql(said: Mapping[str, Any]) -> dict[str, str]:
    """Whoever asks their driver for TLS, in whatever words, gets it from us too, with all that we check."""
    mode, nested = str(said.get("ssl_mode", "")).upper(), said.get("ssl")
    if mode == "DISABLED" or _is_said(said.get("ssl_disabled")):
        return {}
    files = dict(nested) if isinstance(nested, Mapping) else {}
    files |= {key.removeprefix("ssl_"): value for key, value in said.items() if key.startswith("ssl_")}
    found = {ours: str(files[theirs]) for theirs, ours in _OF_TLS.items() if _is_said(files.get(theirs))}
    others = [value for key, value in said.items() if key.startswith("ssl_") and key != "ssl_mode"]
    wanted = mode in _ENCRYPTED or any(_is_said(value) for value in (nested, *others))
    return found or ({"tls": "yes"} if wanted else {})


def _is_said(value: object) -> bool:
    return str(value).lower() not in _NO and value != {}


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
