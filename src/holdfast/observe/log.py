"""Events into the standard logging module, under the logger `holdfast`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .. import events
from ..events import Event
from . import Subscribable

_LEVELS = {
    events.IN_DANGER: logging.WARNING,
    events.RELEASE_FAILED: logging.WARNING,
    events.DROPPED: logging.WARNING,
    events.EVICTED: logging.WARNING,
    events.REFUSED: logging.WARNING,
    events.LOST: logging.ERROR,
    events.SKIPPED: logging.INFO,
}


def log_events(locks: Subscribable, logger: logging.Logger | None = None) -> Callable[[], None]:
    """Log what happens to the locks of this connection; returns what ends it.

    Losses are errors, dangers and evictions warnings, skipped calls INFO, the everyday is DEBUG.

    >>> import holdfast
    >>> from holdfast.observe import log_events
    >>> locks = holdfast.connect("memory://")
    >>> stop = log_events(locks)
    """
    ours = logging.getLogger("holdfast")
    target = logger or ours
    # What is alarming, or was skipped, is logged there anyway (connecting.py), and need not be told twice.
    kinds = [kind for kind in events.KINDS if target is not ours or kind not in events.LOGGED]
    return locks.subscribe(lambda event: write(event, target), kinds)


def level_of(event: Event) -> int:
    return _LEVELS.get(event.kind, logging.DEBUG)


def write(event: Event, logger: logging.Logger) -> None:
    level = level_of(event)
    if logger.isEnabledFor(level):
        token = f" token {event.token}" if event.token else ""
        detail = f": {event.detail}" if event.detail else ""
        logger.log(level, "%s %r%s (%s, %.3f s)%s", event.kind, event.name, token, event.owner, event.seconds, detail)
