"""sqlite://: the file, the folder, the disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from urllib.parse import unquote

from ..stores.sqlite.machine import LOCAL_FILE_SYSTEMS, file_system_of
from .findings import Finding, Ward, ok, problem, warning

LITTLE_ROOM = 100 << 20
LONG_LOG = 64 << 20


class SqliteWard(Ward):
    order = ("version", "rights", "disk", "persistence", "clock")

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = os.path.dirname(path)

    def version(self) -> Iterator[Finding]:
        yield ok(f"SQLite {sqlite3.sqlite_version}, {self.path}")

    def rights(self) -> Iterator[Finding]:
        status = os.stat(self.path)
        if others := stat.S_IMODE(status.st_mode) & 0o007:
            what = "read the holders' secrets and stop all writers" if not others & 2 else "take and release every lock"
            yield warning(
                f"every user of this machine can {what} ({stat.filemode(status.st_mode)})", f"chmod o= {self.path}"
            )
        folder = os.stat(self.folder)
        if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
            yield problem(
                f"everybody may rename and replace files in {self.folder}: then there are two worlds of locks",
                f"chmod o-w {self.folder}",
            )
        elif folder.st_mode & stat.S_IWOTH:
            yield warning(
                f"everybody may put files into {self.folder}, in the way of this one and of those beside it",
                "keep it in a folder where only those who share it can write",
            )
        if status.st_uid != os.geteuid():
            yield ok("the file belongs to another user, who shares it with this one")
        if stat.S_IMODE(status.st_mode) & 0o070:
            yield ok(f"shared with the group {status.st_gid} ({stat.filemode(status.st_mode)})")
        elif not others:
            yield ok(f"for its owner only ({stat.filemode(status.st_mode)})")

    def disk(self) -> Iterator[Finding]:
        kind = file_system_of(self.folder)
        if kind not in LOCAL_FILE_SYSTEMS:
            yield warning(
                f"on a file system of a kind that is not known ({kind or 'the system does not say'})",
                "make sure that no other machine shares it: locks would not hold between them",
            )
        free = shutil.disk_usage(self.folder).free
        if free < LITTLE_ROOM:
            yield warning(f"{free >> 20} MB are free on its disk", "a full disk means no locks: make room")
        else:
            yield ok(f"{kind or 'a disk'}, {free >> 30} GB free")

    def persistence(self) -> Iterator[Finding]:
        connection = sqlite3.connect(self.path, timeout=1.0)
        try:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        except sqlite3.Error as error:
            raise OSError(f"SQLite says: {error}") from error
        finally:
            connection.close()
        if said != "ok":
            yield problem(f"the file is damaged: {said}", "stop all users, remove it, and find out what damaged it")
        log = f"{self.path}-wal"
        size = os.path.getsize(log) if os.path.exists(log) else 0
        if size > LONG_LOG:
            yield warning(
                f"its write-ahead log has {size >> 20} MB: somebody reads in a transaction that never ends",
                "find who has the file open (lsof) besides holdfast",
            )
        if said == "ok":
            yield ok(f"whole; journal mode {journal}. Locks outlive a crash of a process, and end with the machine's")

    def clock(self) -> Iterator[Finding]:
        yield ok("the kernel's boot clock, which all processes share and nobody can set")


def admit(url: str) -> Ward:
    path = unquote(url.removeprefix("sqlite://"))
    return SqliteWard(os.path.abspath(path) if path.startswith("./") else "/" + path.lstrip("/"))
