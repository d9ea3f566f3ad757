"""Who holds and who waits in this process: what all exporters of metrics share.

Events tell of moments; "how many hold it now, and for how long" needs a book of who came and has not left. An exporter
gives a `Meters` for each (system, kind of lock, templated name), and the book calls it.

Rule 1: whoever is entered is struck out exactly once, whichever of the events that end a hold comes first.
Rule 2: nothing here blocks, and nothing is computed that can wait for a scrape.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from .. import events
from ..drivers.system import at_fork
from ..errors import Misuse
from ..events import Event
from . import Subscribable
from .naming import LIMIT, Names, template

REMEMBERED = 4096  # names whose meters are found without asking for their template again

# Fit for locks: from a local hand-over to a job of ten minutes.
BUCKETS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Labels(NamedTuple):
    system: str
    lock: str
    name: str


class Meters:
    """What is measured of one (system, kind of lock, name). An exporter says what becomes of it."""

    def __init__(self) -> None:
        # In the order of coming, so the first is the oldest.
        self.holds: dict[Hold, float] = {}
        self.line: dict[Wait, float] = {}

    def joined(self, event: Event, wait: Wait) -> None: ...
    def entered(self, event: Event, hold: Hold, wait: Wait | None) -> None: ...
    def gave_up(self, event: Event, outcome: str, wait: Wait | None) -> None: ...
    def left(self, hold: Hold, seconds: float, outcome: str) -> None: ...
    def renewed(self, event: Event, outcome: str) -> None: ...
    def lost(self, event: Event) -> None: ...
    def release_failed(self, event: Event) -> None: ...
    def store_failed(self, operation: str) -> None: ...

    def oldest_hold(self) -> float:
        return _oldest(self.holds)

    def oldest_wait(self) -> float:
        return _oldest(self.line)


class Hold:
    """Somebody of this process who is inside."""

    __slots__ = ("kept", "meters", "name")

    def __init__(self, meters: Meters, name: str) -> None:
        self.meters = meters
        self.name = name
        self.kept: Any = None  # by the exporter, until it is over


class Wait(Hold):
    """Somebody of this process who is in line."""

    __slots__ = ()


M = TypeVar("M", bound=Meters)


class Exporter(ABC, Generic[M]):
    """Called with a connection, it follows it; returns what ends that. One exporter may follow many connections."""

    def __init__(self, name: Callable[[str], str] = template, limit: int = LIMIT) -> None:
        if not callable(name):
            raise Misuse(f"name must be a function from a lock's name to a shorter one, not {name!r:.80}")
        if type(limit) is not int or limit < 1:
            raise Misuse(f"limit must be how many names are told apart, at least 1, not {limit!r:.80}")
        self._names = Names(name, limit)
        self._by_labels: dict[Labels, M] = {}
        self._remembered: dict[tuple[str, str, str], M] = {}
        self._refusals_heard = False
        # An acquire begins to wait and ends in one and the same thread or task.
        self.in_line: ContextVar[Wait | None] = ContextVar("in_line", default=None)
        _exporters.add(self)

    @abstractmethod
    def make(self, labels: Labels) -> M:
        """The meters of these labels; asked for once."""

    @abstractmethod
    def refused(self, name: str) -> None:
        """Storage refused a stale token."""

    def forked(self) -> None:
        """In a forked child, which holds nothing and waits for nothing."""
        for meters in self._by_labels.values():
            meters.holds.clear()
            meters.line.clear()

    def __call__(self, locks: Subscribable) -> Callable[[], None]:
        if not self._refusals_heard:
            self._refusals_heard = True
            events.refusals.subscribe(lambda event: self.refused(self.short(event.name)), (events.REFUSED,))
        return _Book(self).follow(locks)

    def short(self, name: str) -> str:
        return self._names(name)

    def meters(self, event: Event) -> M:
        key = (event.system, event.lock, event.name)
        found = self._remembered.get(key)
        if found is None:
            labels = Labels(event.system, event.lock, self.short(event.name))
            found = self._by_labels.get(labels)
            if found is None:
                found = self._by_labels.setdefault(labels, self.make(labels))
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = found
        return found


class _Book(Generic[M]):
    """One connection: tokens are unique within it, for a name."""

    def __init__(self, exporter: Exporter[M]) -> None:
        self._exporter = exporter
        self._in_line = exporter.in_line
        self._remembered = exporter._remembered
        self._holds: dict[tuple[str, int], Hold] = {}

    def follow(self, locks: Subscribable) -> Callable[[], None]:
        heard = {
            events.WAITING: self._waiting,
            events.ACQUIRED: self._acquired,
            events.NOT_ACQUIRED: lambda event: self._gave_up(event, "not_acquired"),
            events.FAILED: lambda event: self._gave_up(event, "failed"),
            events.RENEWED: self._renewed,
            events.IN_DANGER: lambda event: self._of(event).renewed(event, "failed"),
            events.LOST: self._lost,
            events.RELEASED: self._left,
            events.DROPPED: lambda event: self._left(event, "dropped"),
            events.RELEASE_FAILED: self._release_failed,
            events.STORE_FAILED: lambda event: self._of(event).store_failed(event.detail.partition(":")[0]),
        }
        ends = [locks.subscribe(subscriber, (kind,)) for kind, subscriber in heard.items()]

        def stop() -> None:
            for end in ends:
                end()

        return stop

    def _of(self, event: Event) -> Meters:
        """The meters of a grant; the events after it need not tell what kind of lock it was."""
        hold = self._holds.get((event.name, event.token))
        return hold.meters if hold is not None else self._exporter.meters(event)

    def _waiting(self, event: Event) -> None:
        meters = self._exporter.meters(event)
        wait = Wait(meters, event.name)
        meters.line[wait] = time.monotonic()
        self._in_line.set(wait)
        meters.joined(event, wait)

    def _out_of_line(self, event: Event) -> Wait | None:
        wait = self._in_line.get()
        if wait is None:
            return None
        self._in_line.set(None)
        wait.meters.line.pop(wait, None)
        return wait if wait.name == event.name else None

    def _acquired(self, event: Event) -> None:
        _, name, _, token, _, _, lock, system, _, _ = event  # as everything here: what every acquire has to pay for
        meters = self._remembered.get((system, lock, name)) or self._exporter.meters(event)
        wait = None if self._in_line.get() is None else self._out_of_line(event)
        hold = self._holds[name, token] = Hold(meters, name)
        meters.holds[hold] = time.monotonic()
        meters.entered(event, hold, wait)

    def _gave_up(self, event: Event, outcome: str) -> None:
        self._exporter.meters(event).gave_up(event, outcome, self._out_of_line(event))

    def _renewed(self, event: Event) -> None:
        late = event.seconds < event.ttl / 3
        self._of(event).renewed(event, "late" if late else "renewed")

    def _lost(self, event: Event) -> None:
        self._of(event).lost(event)
        self._left(event, "lost")

    def _release_failed(self, event: Event) -> None:
        self._of(event).release_failed(event)
        self._left(event, "release_failed")

    def _left(self, event: Event, outcome: str = "released") -> None:
        hold = self._holds.pop((event.name, event.token), None)
        if hold is None:
            return
        meters = hold.meters
        since = meters.holds.pop(hold, None)
        if since is not None:
            meters.left(hold, event.seconds or time.monotonic() - since, outcome)


def _oldest(since: dict[Any, float]) -> float:
    for _ in range(10):
        try:
            first = next(iter(since.values()), None)
        except RuntimeError:  # somebody came or left just now
            continue
        return 0.0 if first is None else max(0.0, time.monotonic() - first)
    return 0.0


_exporters: WeakSet[Exporter[Any]] = WeakSet()


def _forked() -> None:
    for exporter in list(_exporters):
        exporter.forked()


at_fork(after_in_child=_forked)
