"""Those of this process who wait for a bell, so that all of them can be woken at once, from any thread."""

from __future__ import annotations

from ...drivers.base import Bell


class Sleepers:
    def __init__(self) -> None:
        self._bells: set[Bell] = set()
        self.woken = 0  # how often: who notes it before it gets ready to sleep cannot sleep through

    async def sleep(self, bell: Bell, timeout: float, woken: int) -> None:
        """Until the bell, `timeout`, or a `wake` since `woken` was noted."""
        self._bells.add(bell)
        try:
            if woken == self.woken:
                await bell.wait(timeout)
        finally:
            self._bells.discard(bell)

    def wake(self) -> None:
        self.woken += 1
        for bell in list(self._bells):
            bell.ring()
