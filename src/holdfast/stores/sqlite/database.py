"""One SQLite file: opened with care, used in short transactions, its errors put into words.

A transaction never waits inside SQLite: when another process writes, it is tried again after a short, jittered sleep of
the driver's, so that the same code neither blocks an event loop nor real time in a simulation.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

from ...claim import ROUND
from ...drivers.base import Driver
from ...drivers.paths import is_planted, resolved
from ...drivers.system import at_fork
from ...errors import HoldfastError, Misuse, Unavailable
from .machine import LOCAL_FILE_SYSTEMS, NETWORK_FILE_SYSTEMS, file_system_of

T = TypeVar("T")
Execute = Callable[..., sqlite3.Cursor]

VERSION = 1
BUSY_PATIENCE = ROUND
RETENTION = 3600.0  # how long an idle name keeps its last token, against a clock that is set back
_SAME_FILE_FOR = 0.1  # how long to believe that the path still leads to the file that is open
_unknown: set[str] = set()  # kinds of file systems that were told of
_open_to_all: set[str] = set()  # folders that were


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
    if _forking.locked():  # not in a child of which Python was not told
        _forking.release()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class Database:
    """A connection that is opened on first use, and again after a fork or when the file was replaced."""

    def __init__(self, path: str, driver: Driver, now: Callable[[], float], boot: str) -> None:
        self.path = path
        self.real = path  # without links, from when it was opened
        self._driver = driver
        self._now = now
        self._boot = boot
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None  # reused, for the statements of `at_once`
        self._identity: tuple[int, int] | None = None
        self._looked_at = 0.0
        self._closed = False
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
        give_up = self._driver.now() + within
        pause = 0.0005
        while True:
            try:
                with self._mutex:
                    try:
                        return self._once(work)
                    finally:
                        if self._closed:  # a last word, of somebody who was interrupted by the end
                            self._disconnect()
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise self._in_words(error) from None
                left = give_up - self._driver.now()
                if left <= 0:
                    raise Unavailable(
                        f"{self.path} has been locked by another process for {within:g} s: is one stopped, or in a transaction?"
                    ) from None
            await self._driver.sleep(min(left, self._driver.uniform(pause / 4, pause)))
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
        try:
            execute("BEGIN IMMEDIATE")
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
        self.real = self._trusted()
        self._make_file()
        try:
            connection = sqlite3.connect(self.real, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._in_words(error) from None
        try:
            self._prepare(connection)
            status = os.stat(self.path)
            cursor = connection.cursor()
            # Forgotten by its user, it is closed without complaint. At exit lifecycle.py sees to it, before.
            closing = weakref.finalize(self, connection.close)
            closing.atexit = False
        except (
            BaseException
        ) as error:  # also a signal handler's: else the file stays locked for as long as somebody has that
            connection.close()
            if isinstance(error, sqlite3.Error) and not _is_busy(error):
                raise self._in_words(error) from None
            raise
        # All at once, nothing is called here: no interruption leaves a connection that nobody can close.
        self._identity, self._closing = (status.st_dev, status.st_ino), closing
        self._connection, self._cursor = connection, cursor
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        execute = connection.execute
        execute("PRAGMA busy_timeout = 100")  # switching a new file to WAL needs it for itself for a moment
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
            self._meet_another_boot(execute, load_statements())
        execute("COMMIT")

    def _meet_another_boot(self, execute: Execute, sql: dict[str, str]) -> None:
        """Another id may be that of a container, and those who are in the file alive. A clock that went back is a new boot's.

        A machine that has been up for longer than in the boot before finds claims that look alive for as long as they were
        given, and no longer; and as soon as there are none, the id is taken over.
        """
        newest, last = execute(sql["times"]).fetchone()
        now = self._now()
        if newest > now:
            execute(sql["forget_claims"])
            execute(sql["forget_holders"], (now, now + RETENTION))
        elif last > now:
            return
        execute(sql["new_boot"], (self._boot,))

    def _trusted(self) -> str:
        """The path without links, if no other user has put anything there for us to find."""
        try:
            real = resolved(self.path)
            planted = next(
                (one for one in (real, f"{real}-wal", f"{real}-shm", f"{real}-journal") if is_planted(one)), None
            )
        except PermissionError as error:
            planted = error.filename or self.path
        except OSError as error:
            raise Misuse(f"{self.path} cannot be opened ({error.strerror}): name another file") from None
        if planted is not None:
            raise Misuse(
                f"{planted} belongs to another user, in a folder where everybody can write, and is not trusted: name a file in "
                "a folder where only those who share it can write"
            )
        return real

    def _make_file(self) -> None:
        """Ours alone, whatever the umask; who wants to share it changes its mode. SQLite gives its other files the same."""
        try:
            os.close(os.open(self.real, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be made ({error.strerror}): locks need write permission on the file and on its folder"
            ) from None

    def _check_path(self) -> None:
        path = self.path
        if os.path.isdir(path):
            raise Misuse(f"{path} is a folder: name a file in it, such as {os.path.join(path, 'locks.db')}")
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            raise Misuse(f"{path} cannot be opened: the folder {folder} does not exist")
        kind = file_system_of(folder)
        if kind in NETWORK_FILE_SYSTEMS:
            raise Misuse(
                f"{path} is on a network file system ({kind}), where SQLite's locks do not hold between machines: "
                "use a local disk, or a store that is made for several machines"
            )
        if kind and kind not in LOCAL_FILE_SYSTEMS and kind not in _unknown:
            import logging  # late: it is rarely needed

            _unknown.add(kind)
            logging.getLogger("holdfast").warning(
                "%s is on a file system that holdfast does not know (%s): if it is shared with other machines, locks do not "
                "hold between them",
                path,
                kind,
            )
        if os.name == "posix" and folder not in _open_to_all and os.stat(folder).st_mode & stat.S_IWOTH:
            import logging

            _open_to_all.add(folder)
            logging.getLogger("holdfast").warning(
                "every user may write to the folder %s: they can put files in the way of %s, and hold up its locks",
                folder,
                path,
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
        self._disconnect()
        raise Unavailable(f"{self.path} was removed or replaced while in use: what was held in it is lost")

    # ---- ending

    def close(self) -> None:
        with self._mutex:  # a connection that is closed while another thread uses it takes the interpreter with it
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
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


Row = tuple[Any, ...]
