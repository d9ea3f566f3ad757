"""One account in an SQLite file. `token=None` is how most programs keep their data: whoever writes is believed.

With a token, every touch of the account, reads included, first records it; one that is lower than a token seen before
changes no row there, and is refused. Same transaction, so nothing can come between.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from ...errors import StaleToken

DEPOSIT = 10

with open(os.path.join(os.path.dirname(__file__), "fence.sql"), encoding="utf-8") as _file:
    FENCE = _file.read()


def open_bank(path: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL)")
        db.execute("CREATE TABLE fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL)")


class Account:
    def __init__(self, path: str, name: str) -> None:
        self.name = name
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("INSERT OR IGNORE INTO account VALUES (?, 0)", (name,))

    def read(self, token: int | None = None) -> int:
        with self._transaction(token):
            (balance,) = self._db.execute("SELECT balance FROM account WHERE name = ?", (self.name,)).fetchone()
        return int(balance)

    def write(self, balance: int, token: int | None = None) -> None:
        with self._transaction(token):
            self._db.execute("UPDATE account SET balance = ? WHERE name = ?", (balance, self.name))

    @contextmanager
    def _transaction(self, token: int | None) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if token is not None:
                self._pass_fence(token)
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _pass_fence(self, token: int) -> None:
        if self._db.execute(FENCE, {"resource": self.name, "token": token}).rowcount:
            return
        (seen,) = self._db.execute("SELECT token FROM fence WHERE resource = ?", (self.name,)).fetchone()
        raise StaleToken(f"{self.name} has seen token {seen}, which is newer than {token}", self.name, seen, token)

    def close(self) -> None:
        self._db.close()
