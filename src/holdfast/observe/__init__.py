"""Events, made visible. Each observer subscribes to the one hook; none can break a lock.

An observer is anything that is called with what can be subscribed to (a connection), and returns what ends it:

    holdfast.connect(url, observe=["prometheus", "opentelemetry", "logging"])    # by name
    holdfast.connect(url, observe=[Prometheus(limit=20)])                        # with settings of one's own
    HOLDFAST_OBSERVE=prometheus,opentelemetry                                    # where no observe= is given

Nothing is imported unless it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import Misuse, NotInstalled
from ..events import Subscriber

if TYPE_CHECKING:
    from .log import log_events

__all__ = ["log_events", "Observer", "Observers", "Subscribable"]

VARIABLE = "HOLDFAST_OBSERVE"


class Subscribable(Protocol):
    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str]) -> Callable[[], None]: ...


Observer = Callable[[Subscribable], Callable[[], None]]
Observers = Iterable[str | Observer]

BUILT_IN = {
    "logging": ("log", "log_events"),
    "structlog": ("structlog", "observe"),
    "prometheus": ("prometheus", "observe"),
    "opentelemetry": ("opentelemetry", "observe"),
    "dashboard": ("dashboard", "observe"),
}


def found(observe: Observers | None) -> list[Observer]:
    """The observers that are meant, or Misuse: before anything is connected."""
    if observe is None:
        words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",")]
        return [_named(word, VARIABLE) for word in dict.fromkeys(words) if word]
    if isinstance(observe, str):
        raise Misuse(f"observe takes a list, as in observe=[{observe!r}]")
    told = {
        one if isinstance(one, str) else id(one): one for one in observe
    }  # once each, or all would be counted twice
    return [_named(one, "observe") if isinstance(one, str) else _callable(one) for one in told.values()]


def _callable(one: Observer) -> Observer:
    if not callable(one):
        raise Misuse(f"an observer is a name or something to call, not {one!r:.80}")
    return one


def _named(name: str, where: str) -> Observer:
    if name not in BUILT_IN:
        raise Misuse(f"{where}: nobody observes by the name {name!r:.80} (there are: {', '.join(BUILT_IN)})")
    from importlib import import_module

    module, symbol = BUILT_IN[name]
    try:
        observer: Observer = getattr(import_module(f"{__name__}.{module}"), symbol)
    except ImportError as error:
        raise NotInstalled(
            f"{where}: {name} is not to be had here ({error}): pip install 'holdfast[{name}]'"
        ) from error
    return observer


def __getattr__(name: str) -> Any:
    if name == "log_events":  # late: it brings logging, which a healthy process need not pay for
        from .log import log_events

        return log_events
    raise AttributeError(f"module 'holdfast.observe' has no attribute {name!r}")
