"""Locks between the processes of one machine, in one SQLite file."""

from __future__ import annotations

import os

from ...drivers.base import Driver
from ...errors import Misuse
from ...secret import redacted
from .store import SqliteStore

__all__ = ["SqliteStore", "open_store"]


def open_store(url: str, driver: Driver) -> SqliteStore:
    """`sqlite:///absolute/path`, as in a file URL; `sqlite://./path` is taken from the current folder."""
    return SqliteStore(file_of(url), driver)


def file_of(url: str) -> str:
    path, _, options = url.removeprefix("sqlite://").partition("?")
    if options:
        raise Misuse(f"{redacted(url)!r}: a sqlite URL takes no options (write a ? in the path as %3F)")
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    if path.startswith("./") and len(path) > 2:
        path = "/" + os.path.abspath(path).replace(os.sep, "/").lstrip("/")
    if not path.startswith("/") or path.strip("/") == "" or path.endswith(":memory:") or "\0" in path:
        raise Misuse(
            f"{redacted(url)!r} names no file: write sqlite:///absolute/path/locks.db, or sqlite://./locks.db for one in the "
            "current folder (processes in other folders would not find it). For locks in memory: memory://"
        )
    path = path.lstrip("/")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise Misuse(f"{redacted(url)!r}: no file can be called that") from None
    return path if os.path.splitdrive(path)[0] else f"/{path}"  # Windows: C:/…
