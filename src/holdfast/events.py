"""What happens to locks, told through one small hook. Logging subscribes to it, and metrics can.

A subscriber runs where the event happened (the caller's thread or task, or the renewer's), so it should be quick; one
that raises is reported once in a while and never breaks a lock. Nothing is built when nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from .errors import Misuse

ACQUIRED = "acquired"  # seconds: how long it waited
WAITING = "waiting"  # joined the line
NOT_ACQUIRED = "not acquired"  # seconds: how long it waited
RENEWED = "renewed"  # seconds: what was left of the ttl when it was renewed
IN_DANGER = "in danger"  # a renewal failed; seconds: what is left
LOST = "lost"  # seconds: how long it was held
RELEASED = "released"  # seconds: how long it was held
RELEASE_FAILED = "release failed"  # the store did not answer; the lock stays until its ttl ends
EVICTED = "evicted"  # somebody was put out by force_release; detail: who, and by whom
REFUSED = "refused"  # storage refused a stale token

KINDS = (ACQUIRED, WAITING, NOT_ACQUIRED, RENEWED, IN_DANGER, LOST, RELEASED, RELEASE_FAILED, EVICTED, REFUSED)
ALARMING = (IN_DANGER, LOST, RELEASE_FAILED, EVICTED, REFUSED)


class Event(NamedTuple):
    kind: str
    name: str
    owner: str = ""
    token: int = 0
    seconds: float = 0.0
    detail: str = ""


Subscriber = Callable[[Event], object]


class Hook:
    """Subscribers by kind. Copied on change, so that emitting takes no lock."""

    def __init__(self) -> None:
        # Kinds that nobody listens to are not in it: `kind in hook.by_kind` is the cheap question on hot paths.
        self.by_kind: dict[str, tuple[Subscriber, ...]] = {}

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = KINDS) -> Callable[[], None]:
        """Call `subscriber` with every event of these kinds; returns what ends it."""
        mine = tuple(kinds)
        for kind in mine:
            if kind not in KINDS:
                raise Misuse(f"there is no such kind of event: {kind!r:.80} (there are: {', '.join(KINDS)})")
        for kind in mine:
            self.by_kind = {**self.by_kind, kind: (*self.by_kind.get(kind, ()), subscriber)}

        def unsubscribe() -> None:
            for kind in mine:
                rest = tuple(one for one in self.by_kind.get(kind, ()) if one is not subscriber)
                self.by_kind = {**self.by_kind, kind: rest}
                if not rest:
                    del self.by_kind[kind]

        return unsubscribe

    def emit(
        self, kind: str, name: str, owner: str = "", token: int = 0, seconds: float = 0.0, detail: str = ""
    ) -> None:
        subscribers = self.by_kind.get(kind)
        if not subscribers:
            return
        event = Event(kind, name, owner, token, seconds, detail)
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception:
                _report(subscriber, event)


def _report(subscriber: Subscriber, event: Event) -> None:
    import logging  # late: a healthy process need not pay for the import

    logging.getLogger("holdfast").exception("a subscriber failed on %r: %r", event.kind, subscriber)
