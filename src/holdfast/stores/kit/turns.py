"""So many at a time, first come, first served; written once for threads and for asyncio.

A place in the list *is* the permission: to leave is to be taken off it. So whatever interrupts whoever waits, or works,
nothing stays taken: `over()` in a `finally` is right wherever it was interrupted, and right twice. And should a second
interruption hit `over()` itself: who comes again has left before, and nobody stays beyond the time that it came with.
"""

from __future__ import annotations

from ...drivers.base import Driver


class Turns:
    def __init__(self, driver: Driver, room: int = 1) -> None:
        self._driver = driver
        self._room = room
        # In order; each operation on them that is used here is a single step of the interpreter, and none of those that everybody
        # does goes through the whole line: there may be ten thousand in it.
        self._line: dict[Turn, None] = {}
        self._latest: dict[int, Turn] = {}  # of whom

    def __bool__(self) -> bool:
        return bool(self._line)

    def turn(self) -> Turn:
        return Turn(self)

    def first(self) -> Turn | None:
        """Whose turn it is, for the first of them."""
        return next(iter(self.inside()), None)

    def inside(self) -> list[Turn]:
        """Whose turn it is."""
        return list(self._line)[: self._room]

    def dismiss(self) -> None:
        """What they came for may be done: all who wait look, at once, and come again if it is not."""
        waiting = list(self._line)
        self._line.clear()
        self._latest.clear()
        for one in waiting:
            one._bell.ring()


class Turn:
    """One time through: `turn = turns.turn()`, then at once `try`, `come`, work; `finally`, `over`."""

    __slots__ = ("_bell", "_me", "_turns", "until")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._bell = turns._driver.bell()
        self._me = turns._driver.me()
        self.until = 0.0

    async def come(self, deadline: float) -> bool:
        """Until it is our turn, for work that is over by the deadline as well. False: it was not, by then."""
        turns, line, me = self._turns, self._turns._line, id(self._me)
        self.until = deadline
        before = turns._latest.get(me)
        if before is not None and before._me is self._me:
            before.over()
        turns._latest[me] = self
        line[self] = None
        while self in line:
            inside = turns.inside()
            if self in inside:
                return True
            now = turns._driver.now()
            for ahead in inside:
                if not ahead.is_alive(now):
                    ahead.over()
            inside = turns.inside()
            soonest = min((ahead.until for ahead in inside), default=now)
            if now >= deadline:
                return False
            if self not in inside:
                await self._bell.wait(min(deadline, soonest) - now + 0.001)
        return False  # by now others do not wait for us any more

    def is_alive(self, now: float) -> bool:
        """Not so: its time is over, or the event loop that it waits in was closed under it."""
        return self.until >= now and self._bell.ring()

    def over(self) -> None:
        turns, me = self._turns, id(self._me)
        turns._line.pop(self, None)  # unless it never came, or has left
        if turns._latest.get(me) is self:
            turns._latest.pop(me, None)
        if not turns._line:
            turns._latest.clear()
        for following in turns.inside()[-1:] if len(turns._line) >= turns._room else ():
            following._bell.ring()
