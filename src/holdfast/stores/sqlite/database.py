"""One SQLite file: opened with care, used in short transactions, its errors put into words.

A transaction never waits inside SQLite: when another process writes, it is tried again after a short, jittered sleep of
the driver's, so that the same code neither blocks an event loop nor real time in a simulation.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

from ...drivers.base import Driver
from ...errors import HoldfastError, Misuse, Unavailable

T = TypeVar("T")
Execute = Callable[..., sqlite3.Cursor]

VERSION = 1
BUSY_PATIENCE = 5.0
RETENTION = 3600.0  # how long an idle name keeps its last token, against a clock that is set back
_SAME_FILE_FOR = 0.1  # how long to believe that the path still leads to the file that is open
_NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "ceph",
    "glusterfs",
    "fuse.sshfs",
    "fuse.glusterfs",
    "9p",
}


def load_sql(file: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), file), encoding="utf-8") as script:
        return script.read()


def load_statements() -> dict[str, str]:
    parts = load_sql("statements.sql").split("-- name: ")[1:]
    return {name: body.strip().rstrip(";") for name, _, body in (part.partition("\n") for part in parts)}


# A fork in the middle of another thread's statement would leave the child with SQLite's own locks taken for ever, and with
# a transaction that nobody ends. So nobody is inside SQLite when a process forks.
_databases: WeakSet[Database] = WeakSet()
_forking = threading.Lock()
_paused: list[threading.Lock] = []


def _before_fork() -> None:
    _forking.acquire()
    for database in _databases:
        mutex = database._mutex
        if mutex.acquire(timeout=BUSY_PATIENCE):  # a statement takes milliseconds; but rather a bad child than no fork
            _paused.append(mutex)


def _after_fork() -> None:
    while _paused:
        _paused.pop().release()
    _forking.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class Database:
    """A connection that is opened on first use, and again after a fork or when the file was replaced."""

    def __init__(self, path: str, driver: Driver, now: Callable[[], float], boot: str) -> None:
        self.path = path
        self._driver = driver
        self._now = now
        self._boot = boot
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None  # reused, for the statements of `at_once`
        self._identity: tuple[int, int] | None = None
        self._looked_at = 0.0
        with _forking:
            _databases.add(self)

    def at_once(self, statement: str, parameters: Sequence[Any], now: float) -> bool:
        """One statement as its own transaction; did it change anything? If not, for whatever reason, use `transact`."""
        with self._mutex:
            cursor = self._cursor
            if cursor is None or now - self._looked_at > _SAME_FILE_FOR or cursor.connection.in_transaction:
                return False
            try:
                return cursor.execute(statement, parameters).rowcount > 0
            except sqlite3.Error:
                return False

    async def transact(self, work: Callable[[Execute], T], within: float = BUSY_PATIENCE) -> T:
        """Run `work` in one write transaction, or raise what a person can act on."""
        give_up: float | None = None
        pause = 0.0005
        while True:
            try:
                with self._mutex:
                    return self._once(work)
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise self._in_words(error) from None
                now = self._driver.now()
                if give_up is None:
                    give_up = now + within
                if now >= give_up:
                    raise Unavailable(
                        f"{self.path} has been locked by another process for {within:g} s: is one stopped, or in a transaction?"
                    ) from None
            await self._driver.sleep(self._driver.uniform(pause / 4, pause))
            pause = min(pause * 2, 0.01)

    def _once(self, work: Callable[[Execute], T]) -> T:
        connection = self._connection
        if connection is None:
            connection = self.open()
        else:
            self._same_file()
        execute = connection.execute
        if connection.in_transaction:  # an interrupt can leave one open between two instructions
            execute("ROLLBACK")
        execute("BEGIN IMMEDIATE")
        try:
            result = work(execute)
            execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                execute("ROLLBACK")
            raise
        return result

    # ---- opening

    def connect(self) -> None:
        """Open it for the first time. While others make a new file ready, SQLite turns us away at once: try again."""
        give_up = time.monotonic() + BUSY_PATIENCE
        while True:
            try:
                self.open()
                return
            except sqlite3.Error as error:  # only ever that it is busy: `open` puts all else into words
                if time.monotonic() >= give_up:
                    raise Unavailable(f"{self.path} could not be opened for {BUSY_PATIENCE:g} s: {error}") from None
            time.sleep(0.005)

    def open(self) -> sqlite3.Connection:
        self._check_path()
        try:
            connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._in_words(error) from None
        try:
            self._prepare(connection)
        except sqlite3.Error as error:
            connection.close()
            if _is_busy(error):
                raise
            raise self._in_words(error) from None
        except HoldfastError:
            connection.close()
            raise
        status = os.stat(self.path)
        self._identity = status.st_dev, status.st_ino
        self._connection, self._cursor = connection, connection.cursor()
        # Forgotten by its user, it is closed without complaint. At exit lifecycle.py sees to it, before.
        self._closing = weakref.finalize(self, connection.close)
        self._closing.atexit = False
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        execute = connection.execute
        execute("PRAGMA busy_timeout = 2000")  # switching a new file to WAL needs it for itself for a moment
        if execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise Misuse(f"{self.path} cannot use write-ahead logging: put it on a local disk")
        # Nothing here needs to outlive a power cut but the order of the tokens, which the clock keeps.
        execute("PRAGMA synchronous = NORMAL")
        execute("PRAGMA temp_store = MEMORY")  # else every statement that may fail half-way opens a temporary file
        if not self._is_ready(execute):
            self._create(execute)
        execute("PRAGMA busy_timeout = 0")

    def _is_ready(self, execute: Execute) -> bool:
        """Only a read, which waits for nobody: the usual case."""
        known = execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_meta'").fetchone()
        return known is not None and execute("SELECT version, boot FROM holdfast_meta").fetchone() == (
            VERSION,
            self._boot,
        )

    def _create(self, execute: Execute) -> None:
        execute("BEGIN IMMEDIATE")
        for statement in load_sql("schema.sql").split(";\n"):
            execute(statement)
        version, boot = execute("SELECT version, boot FROM holdfast_meta").fetchone()
        if version > VERSION:
            raise Misuse(
                f"{self.path} was made by a newer holdfast (its tables are version {version}, this one knows {VERSION}): "
                "upgrade holdfast here, or use another file"
            )
        if boot != self._boot:
            sql = load_statements()
            execute(sql["forget_claims"])
            execute(sql["forget_holders"], (self._now() + RETENTION,))
            execute(sql["new_boot"], (self._boot,))
        execute("COMMIT")

    def _check_path(self) -> None:
        path = self.path
        if os.path.isdir(path):
            raise Misuse(f"{path} is a folder: name a file in it, such as {os.path.join(path, 'locks.db')}")
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            raise Misuse(f"{path} cannot be opened: the folder {folder} does not exist")
        kind = file_system_of(folder)
        if kind in _NETWORK_FILE_SYSTEMS:
            raise Misuse(
                f"{path} is on a network file system ({kind}), where SQLite's locks do not hold between machines: "
                "use a local disk, or a store that is made for several machines"
            )

    def _same_file(self) -> None:
        """A file that was removed lives on for those who have it open, and others would start a second one: two worlds."""
        try:
            status = os.stat(self.path)
            if (status.st_dev, status.st_ino) == self._identity:
                self._looked_at = self._now()
                return
        except FileNotFoundError:
            pass
        self.close()
        raise Unavailable(f"{self.path} was removed or replaced while in use: what was held in it is lost")

    # ---- ending

    def close(self) -> None:
        if self._connection is not None:
            self._connection, self._cursor = None, None
            self._closing()

    def forked(self) -> None:
        """SQLite must not see an inherited connection again, not even to close it: so it is kept for ever, unused."""
        connection, self._connection, self._cursor = self._connection, None, None
        self._mutex = threading.Lock()
        if connection is not None:
            import ctypes

            self._closing.detach()
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    def _in_words(self, error: sqlite3.Error) -> HoldfastError:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        path = self.path
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return Misuse(
                f"{path} is not an SQLite database, or is damaged ({error}): name another file, or remove this one"
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return Unavailable(
                f"{path} cannot be opened for writing ({error}): locks need write permission on the file and on its folder"
            )
        if code == sqlite3.SQLITE_FULL:
            return Unavailable(
                f"{path} cannot grow: the disk is full. Nothing was changed; free some space and try again"
            )
        return Unavailable(f"{path} failed: {error}")


def _is_busy(error: sqlite3.Error) -> bool:
    return ((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def boot_id() -> str:
    """Tells this boot of the machine from all others; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def file_system_of(folder: str, mounts: str = "/proc/self/mountinfo") -> str:
    """The type of file system that a folder is on; empty where the system does not say."""
    try:
        device = os.stat(folder).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields, _, rest = line.partition(" - ")
                if fields.split()[2] == wanted:
                    return rest.split()[0]
    except (OSError, IndexError):
        pass
    return ""


Row = tuple[Any, ...]
