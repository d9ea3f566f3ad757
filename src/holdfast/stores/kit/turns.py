"""So many at a time, first come, first served; written once for threads and for asyncio.

A place in the list *is* the permission: to leave is to be taken off it. So whatever interrupts whoever waits, or works,
nothing stays taken: `over()` in a `finally` is right wherever it was interrupted, and right twice. And should a second
interruption hit `over()` itself: who comes again has left before, and nobody stays beyond the time that it came with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ...drivers.base import Bell, boot_time


class Turns:
    def __init__(
        self,
        bell: Callable[[], Bell],
        me: Callable[[], object],
        room: int = 1,
        now: Callable[[], float] = boot_time,
    ) -> None:
        self._bell = bell
        self._me = me
        self._room = room
        self._now = now
        self._line: list[Turn] = []  # each operation on it that is used here is a single step of the interpreter

    def __bool__(self) -> bool:
        return bool(self._line)

    def turn(self) -> Turn:
        return Turn(self)

    def dismiss(self) -> None:
        """What they came for may be done: all who wait look, at once, and come again if it is not."""
        waiting = list(self._line)
        self._line.clear()
        for one in waiting:
            one._bell.ring()


class Turn:
    """One time through: `turn = turns.turn()`, then at once `try`, `come`, work; `finally`, `over`."""

    __slots__ = ("_bell", "_me", "_turns", "_until")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._bell = turns._bell()
        self._me = turns._me()
        self._until = 0.0

    async def come(self, deadline: float) -> bool:
        """Until it is our turn, for work that is over by the deadline as well. False: it was not, by then."""
        line, room = self._turns._line, self._turns._room
        self._until = deadline
        for before in list(line):
            if before._me is self._me:
                before.over()
        line.append(self)
        while self in line:
            if line.index(self) < room:
                return True
            now = self._turns._now()
            for ahead in line[:room]:
                if ahead._until < now or not ahead._bell.ring():  # not: of an event loop that was closed under it
                    ahead.over()
            soonest = min((ahead._until for ahead in line[:room]), default=now)
            if now >= deadline:
                return False
            if line.index(self) >= room:
                await self._bell.wait(min(deadline, soonest) - now + 0.001)
        return False  # by now others do not wait for us any more

    def over(self) -> None:
        line, room = self._turns._line, self._turns._room
        with contextlib.suppress(ValueError):  # it never came, or has left
            line.remove(self)
        for following in line[room - 1 : room]:
            following._bell.ring()
