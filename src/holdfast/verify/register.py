"""What the workers change: a register for every name, in a database that checks tokens. An SQLite file, or the user's PostgreSQL.

A register holds the last update, and every update knows the one that its writer had read. What can be reached from the last
one, back to the first, was kept; an update that was overwritten by somebody who had not read it cannot, and is lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import fenced
from ..errors import Misuse, Unavailable
from ..testing.history import Entry

_PATIENCE = 60.0
_LOGIN = 10.0  # seconds
Tokens = Mapping[str, int]
FIRST = ""

_TABLES = (
    "CREATE TABLE register (name TEXT PRIMARY KEY, last TEXT NOT NULL)",
    "CREATE TABLE written (name TEXT, entry TEXT, token BIGINT, base TEXT, PRIMARY KEY (name, entry))",
)


class Unanswered(Exception):
    """The database is gone in mid-conversation: whether it was done, nobody knows."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the registers are: a path, or a PostgreSQL URL and a schema of the run's own in it."""

    where: str
    schema: str = ""

    def create(self) -> None:
        db = self.connect()
        try:
            if self.schema:
                db.execute(f"CREATE SCHEMA {self.schema}")
            else:
                db.execute("PRAGMA journal_mode = WAL")
            for table in _TABLES:
                db.execute(table)
            fenced.create_table(db)
        finally:
            db.close()

    def remove(self) -> None:
        """All of it. Of a file, who made its folder removes that."""
        if self.schema:
            db = self.connect()
            try:
                db.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
            finally:
                db.close()

    def connect(self) -> Any:
        if not self.schema:
            db = sqlite3.connect(self.where, isolation_level=None, timeout=_PATIENCE, check_same_thread=False)
            db.execute("PRAGMA synchronous = OFF")  # it has to outlive its writers, not the machine
            return db
        import psycopg

        from ..stores.postgresql.opening import open_psycopg
        from ..stores.postgresql.url import parse

        try:
            connection = open_psycopg(parse(self.where), psycopg.Connection, _LOGIN)
        except Unavailable as error:
            raise Unanswered(str(error)) from None
        connection.execute(f"SET search_path = {self.schema}")
        return connection


def place(told: str | None, folder: Path, number: str) -> Place:
    """From what the user said: nothing, or the URL of a PostgreSQL."""
    if told is None:
        return Place(str(folder / "register.db"))
    if not told.startswith(("postgresql://", "postgres://")):
        raise Misuse(
            "--register: the registers can be in a PostgreSQL (postgresql://…), or else are in a file of the run's own"
        )
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise Misuse("--register takes psycopg: pip install 'holdfast[postgresql]'") from None
    return Place(told, f"holdfast_verify_{number}")


class Register:
    def __init__(self, place: Place, fence: bool = True) -> None:
        self._place = place
        self._fence = fence
        self._db: Any = None
        self._mark = "%s" if place.schema else "?"

    def read(self, tokens: Tokens) -> dict[str, str]:
        """The last update of each, under the tokens of who reads: reads are fenced as well."""
        with self._guarded(tokens):
            return {name: self._last(name) for name in tokens}

    def write(self, tokens: Tokens, bases: Mapping[str, str], entry: str) -> None:
        """An update of each, made from what was read."""
        with self._guarded(tokens):
            for name, token in tokens.items():
                self._execute("INSERT INTO written VALUES (?, ?, ?, ?)", name, entry, token, bases[name])
                self._execute(
                    "INSERT INTO register VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET last = excluded.last",
                    name,
                    entry,
                )

    def look(self, name: str) -> str:
        """Without a token: for those who only look."""
        with self._answering():
            return self._last(name)

    def kept(self, name: str) -> tuple[Entry, ...] | None:
        """The updates of a register that were kept, oldest first. None: nobody has written."""
        with self._answering():
            found = self._execute("SELECT entry, token, base FROM written WHERE name = ?", name).fetchall()
            written = {entry: (token, base) for entry, token, base in found}
            return tuple(reversed(list(_chain(self._last(name), written)))) or None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _last(self, name: str) -> str:
        found = self._execute("SELECT last FROM register WHERE name = ?", name).fetchone()
        return str(found[0]) if found else FIRST

    def _execute(self, text: str, *values: object) -> Any:
        return self._db.execute(text.replace("?", self._mark), values)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Connected; and a connection that fails is not used again."""
        if self._db is None:
            self._db = self._place.connect()
        if not self._place.schema:
            yield
            return
        import psycopg

        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            with suppress(psycopg.Error):
                self.close()
            self._db = None
            raise Unanswered(str(error).strip()) from error

    @contextmanager
    def _guarded(self, tokens: Tokens) -> Iterator[None]:
        with self._answering():
            if self._fence:
                first, *more = tokens.items()
                with fenced.transaction(self._db, first, *more):
                    yield
                return
            self._db.execute("BEGIN" if self._place.schema else "BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise


def _chain(last: str, written: Mapping[str, tuple[int, str]]) -> Iterator[Entry]:
    while last != FIRST:
        token, base = written[last]
        yield last, token
        last = base
