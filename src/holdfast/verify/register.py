"""What the workers change: a register for every name, in an SQLite file that checks tokens.

A register holds the last update, and every update knows the one that its writer had read. What can be reached from the last
one, back to the first, was kept; an update that was overwritten by somebody who had not read it cannot, and is lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from .. import fenced
from ..testing.history import Entry

_PATIENCE = 60.0
Tokens = Mapping[str, int]
FIRST = ""


def create(path: Path) -> None:
    with closing(_opened(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE register (name TEXT PRIMARY KEY, last TEXT NOT NULL)")
        db.execute("CREATE TABLE written (name TEXT, entry TEXT, token INTEGER, base TEXT, PRIMARY KEY (name, entry))")
        fenced.create_table(db)


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE, check_same_thread=False)


class Register:
    def __init__(self, path: Path, fence: bool = True) -> None:
        self._db = _opened(path)
        self._db.execute("PRAGMA synchronous = OFF")  # it has to outlive its writers, not the machine
        self._fence = fence

    def read(self, tokens: Tokens) -> dict[str, str]:
        """The last update of each, under the tokens of who reads: reads are fenced as well."""
        with self._guarded(tokens):
            return {name: self.look(name) for name in tokens}

    def write(self, tokens: Tokens, bases: Mapping[str, str], entry: str) -> None:
        """An update of each, made from what was read."""
        with self._guarded(tokens) as db:
            for name, token in tokens.items():
                db.execute("INSERT INTO written VALUES (?, ?, ?, ?)", (name, entry, token, bases[name]))
                db.execute("INSERT OR REPLACE INTO register VALUES (?, ?)", (name, entry))

    def look(self, name: str) -> str:
        """Without a token: for those who only look."""
        found = self._db.execute("SELECT last FROM register WHERE name = ?", (name,)).fetchone()
        return str(found[0]) if found else FIRST

    def kept(self, name: str) -> tuple[Entry, ...] | None:
        """The updates of a register that were kept, oldest first. None: nobody has written."""
        found = self._db.execute("SELECT entry, token, base FROM written WHERE name = ?", (name,))
        written = {entry: (token, base) for entry, token, base in found}
        return tuple(reversed(list(_chain(self.look(name), written)))) or None

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _guarded(self, tokens: Tokens) -> Iterator[sqlite3.Connection]:
        if self._fence:
            first, *more = tokens.items()
            with fenced.transaction(self._db, first, *more) as db:
                yield db
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise


def _chain(last: str, written: Mapping[str, tuple[int, str]]) -> Iterator[Entry]:
    while last != FIRST:
        token, base = written[last]
        yield last, token
        last = base
