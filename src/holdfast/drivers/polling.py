"""poll(), and where there is none (Windows), select() that looks like it. For sockets: other files cannot be waited for there."""

from __future__ import annotations

import select
import time
from functools import partial
from operator import methodcaller
from typing import Any

POLLIN: int = getattr(select, "POLLIN", 1)
POLLOUT: int = getattr(select, "POLLOUT", 4)
POLLERR: int = getattr(select, "POLLERR", 8)
POLLRDHUP: int = getattr(select, "POLLRDHUP", 0)  # Linux only


class BySelect:
    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, what: Any, events: int) -> None:
        self._wanted[what if isinstance(what, int) else what.fileno()] = events

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        if not self._wanted:  # which Windows refuses
            time.sleep(milliseconds / 1000)
            return []
        readable = [one for one, events in self._wanted.items() if events & POLLIN]
        writable = [one for one, events in self._wanted.items() if events & POLLOUT]
        # A connection that was refused is exceptional on Windows, and nothing else.
        ready = select.select(readable, writable, list(self._wanted), milliseconds / 1000)
        found: dict[int, int] = {}
        for which, event in zip(ready, (POLLIN, POLLOUT, POLLERR), strict=True):
            for one in which:
                found[one] = found.get(one, 0) | event
        return list(found.items())


# Looked up each time: gevent may have replaced it since this file was imported. And without a frame of Python's for that.
poll: Any = partial(methodcaller("poll"), select) if hasattr(select, "poll") else BySelect
