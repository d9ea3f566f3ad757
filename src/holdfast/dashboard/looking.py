"""One thread a store looks at it again and again, no oftener than needed, and tells the board and the history.

While a page is open, every second; else every ten, for the history. A look that takes long is followed by a pause of four times
that: the dashboard never takes more than a fifth of one connection's time. One that failed is not: it is soon seen that a store
is back.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ..claim import Snapshot
from ..connecting import resolve
from ..drivers.starting import start
from ..errors import HoldfastError
from ..observe.changes import changes
from ..secret import Secret, redacted
from ..sync import Locks, connect
from ..waitfor import WaitGraph
from .board import Board
from .history import History

IDLE = 10.0
SHARE = 4
SOON = 3.0  # seconds, at most, after a look that failed: who waited for an answer in vain has cost the store nothing
MOST_NAMES = 5000
BEHIND = 10.0  # seconds


class Looking:
    def __init__(
        self,
        store: str,
        url: Secret,
        board: Board,
        history: History,
        interval: float,
        *,
        label: str = "dashboard",  # who evicts, as the store remembers it
    ) -> None:
        self.store = store
        self.url = url
        self.shown = redacted(url.plain)
        self._board = board
        self._history = history
        self._interval = interval
        self._label = label
        self._wake = threading.Event()
        self._end = threading.Event()
        self._closed = False
        self._locks: Locks | None = None
        self._mutex = threading.Lock()
        self._seen: dict[str, Snapshot] = {}
        self._first = True
        self._facts: dict[str, Any] = {
            "id": store,
            "url": self.shown,
            "system": "",
            "traits": {},
            "error": "",
            "partly": "",
            "every": interval,
            "since": round(time.time(), 1),
        }
        board.store(store, dict(self._facts))
        self._thread = start(self._run, f"holdfast-dashboard-{store}")

    def locks(self) -> Locks:
        with self._mutex:
            if self._locks is None:
                self._locks = connect(self.url, label=self._label, observe=[])
            return self._locks

    def wake(self) -> None:
        """A page was opened: look now."""
        self._wake.set()

    def graph(self) -> WaitGraph:
        return WaitGraph(self._seen.values())

    @property
    def error(self) -> str:
        """Why it could not be looked at the last time; "" if it could."""
        return str(self._facts["error"])

    @property
    def is_behind(self) -> bool:
        """Nobody has seen it for a while: what is shown may be old, and what was running out may have been renewed."""
        looked = self._board.looked().get(self.store, self._facts["since"])
        return bool(self.error) or time.time() - looked > BEHIND + self._interval

    def seen(self, name: str) -> Snapshot | None:
        """As it was at the last look, if it was in use then."""
        return self._seen.get(name)

    def close(self, within: float = 5.0) -> None:
        self._closed = True
        self._end.set()
        self._wake.set()
        self._thread.join(within)
        with self._mutex:
            if self._locks is not None:
                self._locks.close(timeout=1.0)

    def _run(self) -> None:
        while not self._closed:
            began = time.monotonic()
            self._wake.clear()
            try:
                self._look()
                self._tell(error="")
            except HoldfastError as error:
                self._tell(error=str(error))
            except (
                Exception
            ) as error:  # a store of somebody else's may raise anything; the page says so, and the thread lives
                self._tell(error=f"{type(error).__name__}: {error}")
            took = time.monotonic() - began
            sparing = max(self._interval, min(took * SHARE, SOON) if self.error else took * SHARE)
            self._rest(sparing, sparing if self._board.watched else max(sparing, IDLE))

    def _rest(self, sparing: float, pause: float) -> None:
        """A page that opens ends a long rest, but never the one that spares the store."""
        spared, over = (time.monotonic() + one for one in (sparing, pause))
        while not self._closed and (now := time.monotonic()) < over:
            if now >= spared and self._wake.is_set():
                return
            if now < spared:
                self._end.wait(spared - now)
            else:
                self._wake.wait(over - now)

    def _look(self) -> None:
        locks = self.locks()
        began = time.time()  # what is in nobody's hands was so at this moment, however long the rest takes
        names = locks.names()
        wanted = {*names[:MOST_NAMES], *(name for name, one in self._seen.items() if one.capacity)}
        now: dict[str, Snapshot] = {}
        seen_at: dict[str, float] = {}
        for name in wanted:
            now[name] = locks.inspect(name)
            seen_at[name] = time.time()
        happened = list(changes(self._seen, now))
        if self._first:  # what was there before us did not happen now
            happened = [one for one in happened if one.event in ("acquired", "waiting")]
            self._first = False
        self._seen = now
        self._history.add(self.store, happened)
        self._board.put(self.store, now, happened, began, seen_at)
        more = len(names) - MOST_NAMES
        self._facts["partly"] = f"{more} more names are in use than are shown" if more > 0 else ""
        self._facts |= {"system": locks.traits.system, "traits": locks.traits._asdict()}

    def _tell(self, error: str) -> None:
        self._facts["error"] = error
        self._board.store(self.store, dict(self._facts))


def named(urls: list[str | None]) -> list[tuple[str, Secret]]:
    """A short name for each store, by its kind: redis, redis-2."""
    found: list[tuple[str, Secret]] = []
    for url in urls:
        secret = resolve(url)
        kind = secret.partition("://")[0]
        count = len([one for one, _ in found if one.partition(" ")[0] == kind])
        found.append((f"{kind} {count + 1}" if count else kind, secret))
    return found
