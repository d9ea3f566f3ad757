"""What happened, as far as it was seen: the last ten thousand events, in memory or in a file that outlives the process."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from ..drivers.paths import is_planted, resolved
from ..errors import Misuse
from ..events import REFUSED
from ..observe.changes import Change
from .told import News

MOST = 10_000
_BESIDE = ("-journal", "-wal", "-shm")
_TABLE = """CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, at REAL NOT NULL, store TEXT NOT NULL, event TEXT NOT NULL,
name TEXT NOT NULL, owner TEXT NOT NULL, token INTEGER NOT NULL, seconds REAL NOT NULL, detail TEXT NOT NULL)"""
_FIELDS = ("at", "store", "event", "name", "owner", "token", "seconds", "detail")
# The file numbers its rows itself: another dashboard may write to it too, as each worker of a server does.
_READ = f"SELECT id, {', '.join(_FIELDS)} FROM events ORDER BY id DESC LIMIT {MOST}"  # noqa: S608
_WRITE = f"INSERT INTO events ({', '.join(_FIELDS)}) VALUES ({', '.join(f':{one}' for one in _FIELDS)})"  # noqa: S608
_FORGET = f"DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - {MOST}"  # noqa: S608
_BUSY = 0.5  # seconds that somebody else's write may hold up what is shown
_PAUSE = 5.0  # seconds, after which it is tried again: else all who tell and ask would stand in line for each try
_OPEN = " ?"
_log = logging.getLogger("holdfast.dashboard")

Event = dict[str, Any]


def one_of(system: str) -> str:
    """In the place of a store: it is of this kind, and which of several is not known."""
    return f"{system}{_OPEN}"


class History:
    def __init__(self, path: str | None = None) -> None:
        self._events: deque[Event] = deque(maxlen=MOST)
        self._next = 1
        self._mutex = threading.Lock()
        self._news = News()
        self.trouble = ""  # why the file does not have all of it
        self._unkept: list[Event] = []
        self._again = 0.0
        self._file: sqlite3.Connection | None = None
        if path:
            self._file, kept = _opened(path)
            self._events.extend(kept)
            self._next = self._events[-1]["id"] + 1 if self._events else 1
            for one in kept:  # and so it is no news what is still held
                self._news.fresh(one["store"], [Change(one["event"], one["name"], one["owner"], one["token"])])

    def add(self, store: str, some: list[Change]) -> None:
        now = round(time.time(), 3)
        with self._mutex:
            some = self._news.fresh(store, some)
            if not some:
                return
            for one in some:
                event: Event = {"id": self._next, "at": now, "store": store, **one._asdict()}
                event["seconds"] = round(one.seconds, 3)
                self._events.append(event)
                if self._file is not None:
                    self._unkept.append(event)
                self._next += 1
            self._keep()

    def _keep(self) -> None:
        """In the file, as soon as that can be. What is shown does not depend on it: a full disk hides no lock."""
        if self._file is None or not self._unkept or (self.trouble and time.monotonic() < self._again):
            return
        try:
            with self._file:
                self._file.executemany(_WRITE, self._unkept)
                self._file.execute(_FORGET)
        except sqlite3.Error as error:
            if not self.trouble:
                _log.warning("the history is not kept in its file for now: %s", error)
            self.trouble = str(error)
            self._again = time.monotonic() + _PAUSE
            del self._unkept[:-MOST]
        else:
            self._unkept.clear()
            self.trouble = ""

    def find(self, text: str = "", *, store: str = "", name: str | None = None, most: int = MOST) -> list[Event]:
        """Newest first. `text` is looked for in names, owners and words, as it stands."""
        wanted = text.casefold()
        found: list[Event] = []
        with self._mutex:
            events = list(self._events)
        for event in reversed(events):
            if len(found) >= most:
                break
            # A refusal knows the name, and not which store keeps the lock; others, perhaps, its kind only.
            is_open = event["event"] == REFUSED or event["store"].endswith(_OPEN)
            elsewhere = store and event["store"] != store and not is_open
            if elsewhere or (name is not None and event["name"] != name):
                continue
            if not wanted or any(
                wanted in str(event[key]).casefold() for key in ("event", "name", "owner", "detail", "token")
            ):
                found.append(event)
        return found

    def __iter__(self) -> Iterator[Event]:
        with self._mutex:
            return iter(list(self._events))

    def close(self) -> None:
        with self._mutex:
            if self._file is not None:
                self._again = 0.0
                self._keep()
                self._file.close()
                self._file = None


def _opened(path: str) -> tuple[sqlite3.Connection, list[Event]]:
    try:
        real = resolved(path)
        if planted := next((one for one in (real, *(f"{real}{end}" for end in _BESIDE)) if is_planted(one)), None):
            raise PermissionError(errno.EACCES, "a file of another user", planted)
        if not os.path.exists(real):  # owners and names are nobody else's business
            os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        file = sqlite3.connect(real, check_same_thread=False, timeout=5.0)
        file.execute(_TABLE)
        file.commit()
        rows = file.execute(_READ).fetchall()
        file.execute(f"PRAGMA busy_timeout = {_BUSY * 1000:.0f}")
    except (OSError, sqlite3.Error) as error:
        raise Misuse(f"the history cannot be kept in {path!r}: {error}") from None
    return file, [dict(zip(("id", *_FIELDS), row, strict=True)) for row in reversed(rows)]
