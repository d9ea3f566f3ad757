"""What was released last. A release does not wait for the disk, so a crash of the server may forget it after it was confirmed.

Whoever finds a connection broken cannot tell a crash from a cut cable: so on the next one the latest releases are said again,
which is harmless, before anything else is. Those whose row somebody has locked just then are left unsaid, and said before what is
asked next, on whatever connection. One connection says them, and others that are opened meanwhile do not: all at once they
stood in each other's way for longer than connections lived that were cut all the time.

Written as conversations without a connection, as the greeting is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator

from .replies import ServerError
from .statements import Params, Row, Statement, transposed, whole

_FORGETFUL = 1.0  # seconds: all is on the disk after three times wal_writer_delay, which is 0.2
_MOST = 1024
_HASTY = whole(16)  # flag of `release` in schema.sql: wait for no row
_PAUSE = 0.02  # seconds between two looks at a row that somebody has locked
_LOCKED = b""

Question = tuple[Statement, Params]
Conversation = Generator[Question, list[Row], None]


class Released:
    def __init__(self, release: Statement | None) -> None:
        self._release = release  # None: nothing is ever added, since a session's lock goes with its connection
        self._latest: deque[tuple[float, bytes, bytes]] = deque(maxlen=_MOST)
        self.doubtful = False  # a connection broke since they were last said
        self._saying = False
        self._unsaid: list[tuple[bytes, bytes]] = []
        self._not_before = 0.0

    def add(self, name: bytes, holder: bytes) -> None:
        self._latest.append((time.monotonic(), name, holder))

    def forget(self) -> None:
        self._latest.clear()
        self._unsaid = []
        self._saying = False

    @property
    def owed(self) -> bool:
        """Some are to be said before anything else is asked."""
        return bool(self._unsaid) and time.monotonic() >= self._not_before

    def again(self) -> Conversation:
        """On a new connection."""
        latest = list(self._latest)
        if not self.doubtful or not latest or self._saying:
            return
        since = latest[-1][0] - _FORGETFUL  # what came after those is not known to be on the disk
        doubted = [(name, holder) for at, name, holder in latest if at >= since]
        try:
            self._saying = True
            locked = yield from self._said(doubted)
        finally:
            self._saying = False
        self._unsaid += locked
        self.doubtful = False

    def rest(self) -> Conversation:
        """On any connection. Whoever else asks meanwhile does not wait for it."""
        owed, self._unsaid = self._unsaid, []
        locked = owed
        try:
            locked = yield from self._said(owed)
        finally:
            self._not_before = time.monotonic() + _PAUSE
            self._unsaid += locked

    def _said(self, asked: list[tuple[bytes, bytes]]) -> Generator[Question, list[Row], list[tuple[bytes, bytes]]]:
        """Returns those whose row was locked."""
        release = self._release
        if release is None or release.many is None:
            return []
        asked = sorted(set(asked))[:_MOST]
        try:
            rows = yield release.many, transposed(release.many, [(*one, _HASTY) for one in asked])
        except ServerError:
            return asked  # another time
        return [one for one, (there,) in zip(asked, rows, strict=True) if there == _LOCKED]
