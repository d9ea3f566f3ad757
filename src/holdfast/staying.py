"""What stays with this process when its user has left, and who is in line for it here. `lending` lends it, and has the rules."""

from __future__ import annotations

from collections import deque
from weakref import ref

from .asking import Ask
from .claim import KEPT, Grant
from .drivers.base import Bell
from .lease import HELD, LOST, RELEASED, Lease


class Stay(Lease):
    """The grant. Whatever ends or renews it, from whichever side, passes it on to who is inside."""

    _now = HELD
    _trouble = False
    sections = 0  # how often it was lent
    kept: Kept | None = None  # None: not kept yet, or no longer
    inside: tuple[ref[Lease], ...] = ()  # of readers, as many as like
    spoiled = False  # a section ended in an error
    cut_short = False  # it ended while somebody was inside

    def borrowers(self) -> list[Lease]:
        """Who is inside. A lease that was dropped is nobody's."""
        return [lease for one in self.inside if (lease := one()) is not None and lease._state is HELD]

    @property
    def _state(self) -> str:
        return self._now

    @_state.setter
    def _state(self, state: str) -> None:
        borrowers = self.borrowers()
        self._now = state
        if state is HELD:
            return
        for lease in borrowers:
            self.cut_short = True
            lease._state = LOST if state is LOST else RELEASED
            if state is not LOST and lease._loss is not None:
                lease._loss.over()
        if self.kept is not None:
            self.kept.ended(self)

    @property
    def _troubled(self) -> bool:
        return self._trouble

    @_troubled.setter
    def _troubled(self, troubled: bool) -> None:
        self._trouble = troubled
        for lease in self.borrowers():
            lease._troubled = troubled

    @property
    def _silent(self) -> bool:  # type: ignore[override]  # a lease's is the same from its first day to its last
        """Sections tell of their ends themselves."""
        return not self.cut_short

    def _extend(self, grant: Grant, sent: float) -> None:
        super()._extend(grant, sent)
        for lease in self.borrowers():
            lease._extend(grant, sent)

    def _end(self, state: str, why: str = "") -> None:
        borrowers = self.borrowers()
        super()._end(state, why)
        for lease in borrowers:
            lease._why = why

    def _tell(self) -> None:
        super()._tell()
        if self.cut_short:
            for one in self.inside:
                if (lease := one()) is not None:
                    lease._tell()

    def __del__(self) -> None:
        """Nobody keeps it, and nobody is inside. It was in nobody's hand, so nobody is warned."""
        try:
            self._was_dropped()
        except BaseException:  # raised by a signal handler: once more, as a lease does it
            self._was_dropped()
            if self._deadline:
                self._engine.renewer.ring()
            raise

    def _was_dropped(self) -> None:
        self.kept = None  # the collector takes no lock: who looks there finds a reference to nothing
        if self._is_owed():
            self._let_go(told=False)


class Waiter:
    """A place in the line of this process."""

    __slots__ = ("__weakref__", "bell")

    def __init__(self, bell: Bell) -> None:
        self.bell = bell


class Kept:
    """One name that is kept here, or asked for in order to be. Used under the engine's mutex."""

    __slots__ = ("ask", "bell", "keep", "line", "of_store", "shared", "stay", "used", "wanted")

    def __init__(self, ask: Ask) -> None:
        self.keep = ask.keep
        self.ask = ask
        note = f"{KEPT}{ask.keep:g} s after use"  # what others are shown
        self.shared = ask.reads  # lent to all readers at once
        self.of_store = ask._replace(keep=0.0, reentrant=False, reads=False, note=note)
        self.stay: ref[Stay] | None = None
        self.bell: Bell | None = None  # of the keeper
        self.line: deque[ref[Waiter]] = deque()
        self.used = 0.0  # when it was last given back
        self.wanted = 0.0  # since when somebody elsewhere waits; 0: nobody, as far as is known

    def here(self) -> Stay | None:
        stay = self.stay() if self.stay is not None else None
        return stay if stay is not None and stay._now is HELD else None

    def first(self) -> Waiter | None:
        while self.line:
            waiter = self.line[0]()
            if waiter is not None:
                return waiter
            self.line.popleft()
        return None

    def ring(self) -> None:
        """For the head of the line: it may be lent the grant, or has to ask for one. Nobody there: for the keeper, who may
        have to give it up, and does not look often while somebody is inside."""
        if (waiter := self.first()) is not None:
            waiter.bell.ring()
        elif self.bell is not None:
            self.bell.ring()

    def leave(self, me: Waiter) -> None:
        """Out of the line. If nobody is inside, or all may be, whoever is now its head looks; or the keeper."""
        if self.first() is me:
            self.line.popleft()
        else:
            self.line = deque(one for one in self.line if one() is not None and one() is not me)
        stay = self.here()
        if stay is None or self.shared or not stay.borrowers():
            self.ring()

    def is_over(self, stay: Stay, now: float) -> bool:
        """Is it to be given up, as soon as nobody is inside?"""
        wanted = self.wanted > 0.0 and (now >= self.wanted + self.keep or self.first() is None)
        return wanted or stay.spoiled

    def may_lend(self, stay: Stay, now: float) -> bool:
        return (
            now < stay._deadline
            and (self.shared or not stay.inside or not stay.borrowers())
            and not ((self.wanted or stay.spoiled) and self.is_over(stay, now))
            and self.bell is not None
            and not self.bell.asleep  # the event loop that kept it: nobody there would hear that it is wanted elsewhere
        )

    def is_others(self, now: float) -> bool:
        """Readers are inside, and it is lent no more, or in an event loop that stands still. It goes with the last of them."""
        stay = self.here()
        if not self.shared or stay is None or not stay.borrowers():
            return False
        over = stay.spoiled or now >= stay._deadline or (self.wanted > 0.0 and now >= self.wanted + self.keep)
        return over or self.bell is None or self.bell.asleep

    def ended(self, stay: Stay) -> None:
        if self.stay is not None and self.stay() is stay:
            self.stay = None
            if self.bell is not None:
                self.bell.ring()  # the keeper may go home
            self.ring()
