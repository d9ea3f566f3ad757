"""The journal on blocking connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from ...claim import valid_timeout
from ...drivers.base import finish
from ..patience import Patience
from .core import PAGE, AnyJournal
from .event import Event, Replayed
from .roll import THREADS


class Journal(AnyJournal):
    """Streams of events, kept in the database of this connection."""

    _world = THREADS

    def create_table(self) -> None:
        """Create the tables if there are none. Redis needs none."""
        finish(self._core.roll.create())

    def append(self, stream: str, *events: Any, expected: int | None) -> int:
        """Append all of `events` or none, and return the new version. `Conflict` if the stream is not at `expected`.

        0 is a stream without events. None appends wherever the end is: for events that are true whatever came before.
        """
        return finish(self._core.append(stream, events, expected))

    def version(self, stream: str) -> int:
        """The version of the last event; 0 if there is none."""
        return finish(self._core.version(stream))

    def read(self, stream: str, after: int = 0) -> Iterator[Event]:
        """The events of one stream, in order."""
        while events := finish(self._core.page(stream, after)):
            yield from events
            after = events[-1].version
            if len(events) < PAGE:
                return

    def replay(self, stream: str, apply: Callable[[Any, Any], Any], initial: Any = None) -> Replayed:
        """`apply(state, data)` over the events, from the last snapshot on: the state, and the version to expect."""
        return finish(self._core.replay(stream, apply, initial))

    def snapshot(self, stream: str, version: int, state: Any) -> None:
        """Keep the state at this version, so that a replay begins there. An older one never replaces a newer one."""
        finish(self._core.snapshot(stream, version, state))

    def subscribe(self, after: str = "", *, prefix: str = "", timeout: float | None = None) -> Iterator[Event]:
        """The events of all streams (of those whose names begin so), from a position on, and then those to come.

        None is left out and none comes twice. Ends after `timeout` seconds without an event. Keep `event.position` with
        what you make of the event, and go on from there.
        """
        patience = Patience(valid_timeout(timeout))
        roll = self._core.roll
        finish(roll.listen())
        try:
            while True:
                before = after
                events, after = finish(self._core.log(after, prefix))
                if after != before:  # though all of them may have been other streams'
                    yield from events
                    if events:
                        patience.heard()
                    continue
                if patience.over():
                    return
                if not finish(roll.wait(after, patience.block())):
                    time.sleep(patience.pause())
        finally:
            finish(roll.unlisten())
