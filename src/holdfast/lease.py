"""A live grant in the user's hand. Ownership is this object, never a thread-local: it may cross threads and tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import ref

from .claim import Grant
from .errors import LeaseLost, Misuse
from .events import contained, report
from .scope import Scope

if TYPE_CHECKING:
    from .engine import Engine

_HERE = os.path.dirname(__file__) + os.sep
_ASYNCIO = os.path.dirname(os.__file__) + os.sep + "asyncio" + os.sep

HELD = "held"
RELEASING = "releasing"  # no longer renewed; the store has not confirmed yet
RELEASED = "released"
LOST = "lost"


class Enterable:
    """What is entered as it is: a lease, or several."""

    _looked_up: ref[Scope] | None = None  # the scope of the `with` that is about to be entered
    _by_hand: tuple[Scope, ...] = ()  # those that were entered without one
    _entries = 1  # how often it has been entered: once, unless its lock is re-entrant

    def _enter(self, make: type[Scope]) -> Scope:
        scope = self._looked_up() if self._looked_up is not None else None
        self._looked_up = None
        if scope is None:
            scope = make(self)
            self._by_hand = (*self._by_hand, scope)
        scope.entered(self)
        return scope

    def _left_by_hand(self) -> Scope:
        *rest, scope = self._by_hand
        self._by_hand = tuple(rest)
        return scope

    def _abandon(self, depth: int) -> None:
        raise NotImplementedError


class Loss:
    """What both surfaces share of it; theirs can wait."""

    _event: Any  # threading's, or asyncio's

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        lease.on_lost(lambda _: self._event.set())

    def is_set(self) -> bool:
        """Is the lease lost?"""
        return self._lease._is_lost()

    __bool__ = is_set

    def over(self) -> None:
        """For the engine: wakes whoever waits, since the lease was released."""
        self._event.set()

    def __repr__(self) -> str:
        return f"<Loss of {self._lease.name!r}: {'it is lost' if self.is_set() else 'not lost'}>"


class Lease(Enterable):
    """What both surfaces share. `sync.Lease` and `aio.Lease` add release and the context manager."""

    # Defaults stand in the class: a lease that is taken and released untroubled sets only what differs.
    _limit: float | None = None  # not renewed past this
    _keep_until = 0.0  # released before, the lock stays taken until then
    _state = HELD
    _troubled = False
    _why = ""
    _callbacks: tuple[Callable[[Any], object], ...] = ()
    _by: ref[Any] | None = None  # the thread or task that acquired it
    _key: Any = None  # where the engine looks for it on re-entry
    _strays = False  # a claim for it was sent that was never answered: it may land after the release
    _handed_over = False  # to the background, which goes on releasing it
    _stay: Any = None  # the grant that stays here, of which this is lent; while it is
    _silent = False  # its release is not told of
    _confirm = True  # whoever releases it waits for the answer
    _loss: Any = None  # the surface's event, made when somebody asks for it
    _due = 0.0  # the renewer's note
    _deadline = 0.0
    _acquired_at: tuple[CodeType, int] | None = None  # by which code, and where in it
    _outside = 2  # so many frames away, at least, is who acquired it
    _cut = False  # the limit comes before the store would end it

    def __init__(self, engine: Engine, grant: Grant, sent: float) -> None:
        self._engine = engine
        self._grant = grant
        self._since = sent
        self._deadline = sent + grant.ttl
        try:  # not before that depth: each frame that is looked at is made for that, and costs time
            frame = sys._getframe(self._outside)
        except ValueError:
            return
        while frame is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back  # type: ignore[assignment]  # the outermost has none behind it
        if frame is not None:
            self._acquired_at = frame.f_code, frame.f_lasti

    def __del__(self) -> None:
        """Nobody has it any more: what a file does then, a lease does too."""
        try:
            if not self._is_owed():
                return
            held = self.held
            dropped = self._let_go(told=held)
        except BaseException:  # raised by a signal handler. Python prints it and goes on, and so do we
            if self._is_owed():
                self._let_go(told=self.held)
            elif self._deadline:
                self._engine.renewer.ring()
            raise
        if dropped and held:  # a release that was cut short was asked for, and needs no warning
            import warnings

            what = f"the lease of {self.name!r} was dropped without a release (acquired {self._where()})"
            warnings.warn(what, ResourceWarning, source=self, stacklevel=2)

    def _is_owed(self) -> bool:
        state = self._state
        return not (state is RELEASED or state is LOST or self._handed_over or self._deadline == 0.0)

    def _let_go(self, told: bool) -> bool:
        """In the background: called by the collector, at any moment and in any thread, so it takes no lock."""
        engine = self._engine
        if engine.closed or sys.is_finalizing():
            self._state = RELEASED
            return False
        over = engine.driver.now() >= self._deadline
        engine._dropped(self, told, over)
        return not over

    def _abandon(self, depth: int) -> None:
        """A `with` is gone whose end was cut short: do what is left of it. It was asked for, so nobody is warned."""
        if self._state is not HELD or self._entries < depth:
            return
        if self._entries > 1:
            self._entries -= 1
        else:
            self._let_go(told=False)

    def _failed(self) -> None:
        """Its section ended in an error. What that had sent may still be on its way: whoever comes next gets another token."""
        if self._stay is not None:
            self._stay.spoiled = True

    def _where(self) -> str:
        if self._acquired_at is None or self._acquired_at[0].co_filename.startswith(_ASYNCIO):
            return "by a task of its own"
        code, at = self._acquired_at
        lines = (line for start, end, line in code.co_lines() if start <= at < end)
        return f"at {code.co_filename}:{next(lines, code.co_firstlineno)} in {code.co_qualname}"

    def _bound(self, at_most: float | None, at_least: float) -> None:
        """Set before the lease is handed out: it ends after `at_most` seconds, and is not free before `at_least`."""
        if at_most is not None:
            self._limit = self._since + at_most
            self._cut = self._limit < self._deadline
            self._deadline = min(self._deadline, self._limit)
        if at_least:
            self._keep_until = self._since + at_least

    @property
    def name(self) -> str:
        """Of the lock."""
        return self._grant.claim.name

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every earlier grant of this name."""
        return self._grant.token

    @property
    def owner(self) -> str:
        """Who holds it, as others see it: host/pid/thread/label."""
        return self._grant.claim.owner

    @property
    def ttl(self) -> float:
        """How long the store keeps this grant unrenewed; it may be longer than was asked for, where the store rounds."""
        return self._grant.ttl

    def remaining(self) -> float:
        """Seconds until this lease is over unless it is renewed; 0 when it is over."""
        if self._state in (RELEASED, LOST):
            return 0.0
        return max(0.0, self._deadline - self._engine.driver.now())

    @property
    def held(self) -> bool:
        """Inside, as far as can be known here. The storage, which checks the token, knows better."""
        return self._state is HELD and self._engine.driver.now() < self._deadline

    @property
    def in_danger(self) -> bool:
        """A renewal failed or is overdue: time to wind up, while there is time."""
        return self._state is HELD and (self._troubled or self.remaining() < self._grant.ttl / 3)

    def check(self) -> None:
        """Raise LeaseLost if this lease is over. Call it before a step that cannot be undone."""
        if not self.held:
            raise self._over()

    def on_lost(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` with the lease when it is lost: at once, if it already is.

        It runs in a thread of its own (asyncio: in the loop). One that raises is logged and breaks nothing.
        """
        if not callable(callback):
            raise Misuse(f"on_lost takes something to call, not {callback!r:.80}")
        callback = self._here(callback)
        with self._engine.mutex:
            if not self._is_lost():
                self._callbacks = (*self._callbacks, callback)
                return
        try:
            callback(self)
        except Exception as error:
            report(error, f"an on_lost callback of {self.name!r}")

    @staticmethod
    def _here(callback: Callable[[Any], object]) -> Callable[[Any], object]:
        """To be called by whoever notices the loss, and done where it is heard."""
        return callback

    def _is_lost(self) -> bool:
        return self._state is LOST or (self._state is HELD and self._engine.driver.now() >= self._deadline)

    def _over(self) -> LeaseLost:
        if self._state in (RELEASED, RELEASING):
            return LeaseLost(f"the lease of {self.name!r} was released", self.name, self.token)
        why = self._reason()
        return LeaseLost(
            f"lost the lock {self.name!r} (token {self.token}): {why}. Somebody else may hold it now: stop, do not write",
            self.name,
            self.token,
        )

    def _reason(self) -> str:
        return self._why or f"its ttl of {self.ttl:g} s ran out before a renewal was confirmed"

    def _extend(self, grant: Grant, sent: float) -> None:
        """The store confirmed a renewal that was sent at `sent`. Called under the engine's mutex."""
        self._grant = grant
        deadline = sent + grant.ttl
        self._cut = self._limit is not None and self._limit < deadline
        self._deadline = deadline if self._limit is None else min(deadline, self._limit)
        self._troubled = False

    def _end(self, state: str, why: str = "") -> None:
        self._state = state
        self._why = why

    def _tell(self) -> None:
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            with contained(f"an on_lost callback of {self.name!r}"):
                callback(self)

    def __repr__(self) -> str:
        state = self._state if not self._is_lost() else LOST
        return f"<Lease {self.name!r} token={self.token} {state}, {self.remaining():.1f} s left>"
