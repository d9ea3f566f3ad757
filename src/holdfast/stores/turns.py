"""So many at a time, first come, first served; written once for threads and for asyncio.

A place in the list *is* the permission: to leave is to be taken off it. So whatever interrupts whoever waits, or works, at
whatever line, nothing stays taken: `over()` in a `finally` is right wherever it was interrupted, and right twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ..drivers.base import Bell, boot_time


class Turns:
    def __init__(self, bell: Callable[[], Bell], room: int = 1) -> None:
        self._bell = bell
        self._room = room
        self._line: list[Bell] = []  # each operation on it that is used here is a single step of the interpreter

    def __bool__(self) -> bool:
        return bool(self._line)

    def turn(self) -> Turn:
        return Turn(self)


class Turn:
    """One time through: `turn = turns.turn()`, then at once `try`, `come`, work; `finally`, `over`."""

    __slots__ = ("_bell", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._bell = turns._bell()

    async def come(self, deadline: float) -> bool:
        """Until it is our turn. False: it was not, by the deadline."""
        line, room, bell = self._turns._line, self._turns._room, self._bell
        line.append(bell)
        while line.index(bell) >= room:
            for ahead in line[:room]:
                if not ahead.ring():  # of an event loop that was closed under it
                    self._leave(ahead)
            left = deadline - boot_time()
            if left <= 0:
                return False
            await bell.wait(left)
        return True

    def over(self) -> None:
        self._leave(self._bell)

    def _leave(self, bell: Bell) -> None:
        line, room = self._turns._line, self._turns._room
        with contextlib.suppress(ValueError):  # it never came, or has left
            line.remove(bell)
        for following in line[room - 1 : room]:
            following.ring()
