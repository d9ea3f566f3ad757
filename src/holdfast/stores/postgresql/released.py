"""What was released last. A release does not wait for the disk, so a crash of the server may forget it after it was confirmed.

Whoever finds a connection broken cannot tell a crash from a cut cable: so on the next one the latest releases are said again,
which is harmless, before anything else is. Written as a conversation without a connection, as the greeting is.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Generator

from .replies import ServerError
from .statements import Params, Row, Statement, transposed, whole

_FORGETFUL = 1.0  # seconds: all is on the disk after three times wal_writer_delay, which is 0.2
_MOST = 1024
_HASTY, _PATIENCE = 16, 8  # flags of `release` in schema.sql
_LONGEST = 200  # ms for all rows together that somebody has locked just then
_LOCKED = b""

Question = tuple[Statement, Params]


class Released:
    def __init__(self, release: Statement | None) -> None:
        self._release = release  # None: nothing is ever added, since a session's lock goes with its connection
        self._latest: deque[tuple[float, bytes, bytes]] = deque(maxlen=_MOST)
        self.doubtful = False  # a connection broke since they were last said

    def add(self, name: bytes, holder: bytes) -> None:
        self._latest.append((time.monotonic(), name, holder))

    def forget(self) -> None:
        self._latest.clear()

    def again(self) -> Generator[Question, list[Row], None]:
        release = self._release
        if not self.doubtful or not self._latest or release is None or release.many is None:
            return
        latest = list(self._latest)
        since = latest[-1][0] - _FORGETFUL  # what came after those is not known to be on the disk
        asked = sorted((name, holder) for at, name, holder in latest if at >= since)
        hasty = whole(_HASTY)
        try:
            rows = yield release.many, transposed(release.many, [(*one, hasty) for one in asked])
        except ServerError:
            return  # on another connection, then
        locked = [one for one, (there,) in zip(asked, rows, strict=True) if there == _LOCKED]
        for one in locked:  # one by one: whoever waits for a row may have no other locked
            with contextlib.suppress(ServerError):
                yield release, (*one, whole(max(2, _LONGEST // len(locked)) << _PATIENCE))
        self.doubtful = False
