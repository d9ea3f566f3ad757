"""Events into structlog: the kind is the event, and what is known of it are its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from .. import events
from ..claim import printable
from ..events import Event
from . import Subscribable
from .log import level_of


def observe(locks: Subscribable, logger: Any = None) -> Callable[[], None]:
    """Tell structlog what happens to the locks of this connection; returns what ends it.

    The levels are those of `log_events`. `logger`: of your own, else `structlog.get_logger("holdfast")`.
    """
    target = logger if logger is not None else structlog.get_logger("holdfast")
    return locks.subscribe(lambda event: write(event, target), events.KINDS)


def write(event: Event, logger: Any) -> None:
    known: dict[str, object] = {"lock": printable(event.name), "owner": event.owner, "seconds": round(event.seconds, 6)}
    if event.token:
        known["token"] = event.token
    if event.detail:
        known["detail"] = event.detail
    logger.log(level_of(event), event.kind, **known)
