"""What happens to locks, told through one small hook. Logging subscribes to it, and metrics can.

A subscriber runs where the event happened (the caller's thread or task, or the renewer's), so it should be quick; one
that raises is logged and never breaks a lock. Nothing is built when nobody listens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple

from .claim import printable, valid_note
from .errors import Misuse

_tuple = tuple.__new__  # a named tuple's own constructor is a function in Python around this

ACQUIRED = "acquired"  # seconds: how long it waited; took: the whole call
WAITING = "waiting"  # joined the line; detail: what those inside carry, if an observer asked for that
NOT_ACQUIRED = "not acquired"  # seconds: how long it waited
FAILED = "failed"  # an acquire ended by an error or an interruption; detail: which; seconds: how long it took
RENEWED = "renewed"  # seconds: what was left when it was renewed; ttl: of how much
IN_DANGER = "in danger"  # a renewal failed; seconds: what is left
LOST = "lost"  # seconds: how long it was held
RELEASED = "released"  # seconds: how long it was held
RELEASE_FAILED = "release failed"  # the store did not answer until the lock ended by itself
DROPPED = "dropped"  # nobody had the lease any more, so it is released
EVICTED = "evicted"  # somebody's lock was taken away by force_release; detail: who, and by whom
REFUSED = "refused"  # storage refused a stale token
STORE_FAILED = "store failed"  # one conversation with it; detail: which (claim, renew, release), and why
SKIPPED = "skipped"  # a decorated call did not run, because somebody else is inside; detail: what, and who

KINDS = (
    ACQUIRED,
    WAITING,
    NOT_ACQUIRED,
    FAILED,
    RENEWED,
    IN_DANGER,
    LOST,
    RELEASED,
    RELEASE_FAILED,
    DROPPED,
    EVICTED,
    REFUSED,
    STORE_FAILED,
    SKIPPED,
)
ALARMING = (IN_DANGER, LOST, RELEASE_FAILED, DROPPED, EVICTED, REFUSED)
LOGGED = (*ALARMING, SKIPPED)  # even if nobody asked for it


class Event(NamedTuple):
    """Something happened to a lock.

    `kind`: one of `KINDS`. `name`: of the lock. `owner`: host/pid/thread/label. `token`: of the lease, if there is one.
    `seconds`: how long; of what, depends on the kind. `detail`: in words. `lock`: mutex, semaphore, read, write or election.
    `system`: redis, etcd, …. `took`: how many seconds the call took. `ttl`: of the lease.
    """

    kind: str
    name: str
    owner: str = ""
    token: int = 0
    seconds: float = 0.0
    detail: str = ""
    lock: str = ""  # mutex, semaphore, read, write or election; told when somebody asks for it and when it is given
    system: str = ""  # redis, etcd, …
    took: float = 0.0
    ttl: float = 0.0


Subscriber = Callable[[Event], object]


class Hook:
    """Subscribers by kind. Copied on change, so that emitting takes no lock."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        # Kinds that nobody listens to are not in it: `kind in hook.by_kind` is the cheap question on hot paths.
        self.by_kind: dict[str, tuple[Subscriber, ...]] = {}
        # What claims without a note of their own carry for others to see, if an observer wants that. Whoever waits is then
        # told, in the detail of WAITING, what those inside carry: one more look at the store.
        self.carry: Callable[[], str] | None = None

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = KINDS) -> Callable[[], None]:
        """Call `subscriber` with every event of these kinds; returns what ends it."""
        if not callable(subscriber):
            raise Misuse(f"subscribe takes something to call, not {subscriber!r:.80}")
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

    def carried(self) -> str:
        """The note of a new claim; "" from whoever fails: that is no reason to get no lock."""
        try:
            return valid_note(self.carry() if self.carry is not None else "", "a note")
        except Exception as error:
            report(error, "what a claim carries")
            return ""

    def emit(
        self,
        kind: str,
        name: str,
        owner: str = "",
        token: int = 0,
        seconds: float = 0.0,
        detail: str = "",
        lock: str = "",
        took: float = 0.0,
        ttl: float = 0.0,
    ) -> None:
        subscribers = self.by_kind.get(kind)
        if not subscribers:
            return
        detail = printable(detail) if detail else ""
        event = _tuple(Event, (kind, name, owner, token, seconds, detail, lock, self.system, took, ttl))
        interruption: BaseException | None = None
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception as error:
                report(error, f"a subscriber to {kind!r}")
            except BaseException as error:  # Ctrl-C, or sys.exit(): the others are told all the same
                interruption = error
        if interruption is not None:
            try:
                raise interruption
            finally:
                del interruption  # else the frame, and what it knows, would be kept by its own traceback


refusals = Hook("fence")  # what storage refused in this process: a guard knows names and tokens, and no connection


def report(error: BaseException, what: str) -> None:
    """In the log; and where that fails, too (logging lets through what a filter or a handler raises), on standard error: nobody
    who reports is kept from what comes next, which may be to tell somebody that a lock is lost."""
    import logging  # late: a healthy process need not pay for the import

    try:
        logging.getLogger("holdfast").error("%s failed", what, exc_info=error)
    except Exception as unlogged:
        from contextlib import suppress

        kinds = f"({type(error).__name__}), and could not be logged ({type(unlogged).__name__})"
        with suppress(Exception):
            sys.stderr.write(f"holdfast: {what} failed {kinds}\n")


class contained:
    """Whatever is raised inside is logged, and goes no further: not even sys.exit(), nor a stray CancelledError."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if error is not None:
            report(error, self._what)
        return True
