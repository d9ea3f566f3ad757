"""The body of an `async with`: the task inside it, to be cancelled when the lock is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from .lease import Lease


class Body:
    """As careful as asyncio.timeout()."""

    __slots__ = ("_before", "_cancelled", "_left", "_task")

    def __init__(self, leases: Iterable[Lease]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._cancelled = False
        self._left = False
        for lease in leases:
            lease.on_lost(self._lost)

    def _lost(self, lease: Lease) -> None:
        if asyncio.current_task() is self._task:
            # Not from within: a cancellation of oneself hits the next await, which may be beyond the body.
            self._task.get_loop().call_soon(self._lost, lease)
        elif not self._left and not self._cancelled:
            self._cancelled = True
            self._task.cancel(f"lost the lock {lease.name!r}")

    def leave(self, kind: type[BaseException] | None) -> bool:
        """Call this first when the body has ended. True: it ended because we cancelled it, and for no other reason."""
        self._left = True
        if not self._cancelled:
            return False
        only_ours = self._task.uncancel() <= self._before
        return only_ours and kind is not None and issubclass(kind, asyncio.CancelledError)
