"""Who may be served: per resource, one token at a time, and never a lower one again.

A middleware that only compared would check and then let the handler write: too late. So while requests of one token are
being served, a newer one waits for them to finish, and from the moment it arrived, no older one is let in.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from ...errors import Misuse, Unavailable
from ..mark import Mark, refusal

PATIENCE = 30.0


class _Resource:
    __slots__ = ("running", "seen", "serving", "since")

    def __init__(self) -> None:
        self.seen = 0
        self.since = 0.0
        self.serving = 0  # the token that is being served …
        self.running = 0  # … by so many requests


class TooFar(Misuse):
    """The token is further ahead than the gate allows."""


class Gate:
    """The marks of one process, in memory. They end with it: state that outlives it needs a guard of its own as well."""

    def __init__(self, *, max_jump: int | None = None) -> None:
        self._resources: dict[str, _Resource] = {}
        self._max_jump = max_jump

    def seen(self, resource: str) -> int:
        known = self._resources.get(resource)
        return known.seen if known else 0

    def enter(self, mark: Mark) -> bool:
        """True: come in. False: an older token is still being served; ask again when it has left."""
        name, token = mark
        resource = self._resources.get(name)
        if resource is None:
            resource = self._resources[name] = _Resource()
        if token != resource.seen:
            if token < resource.seen:
                raise refusal(mark, resource.seen, resource.since)
            if self._max_jump is not None and resource.seen and token - resource.seen > self._max_jump:
                raise TooFar(
                    f"token {token} of {mark.resource!r} is more than {self._max_jump} ahead of the last one, {resource.seen}"
                )
            resource.seen, resource.since = token, time.time()
        if resource.running and resource.serving != token:
            return False
        resource.serving = token
        resource.running += 1
        return True

    def leave(self, mark: Mark) -> bool:
        """True if nobody is being served now."""
        resource = self._resources[mark.resource]
        resource.running -= 1
        return resource.running == 0


class ThreadGate(Gate):
    """For WSGI."""

    def __init__(self, *, max_jump: int | None = None, patience: float = PATIENCE) -> None:
        super().__init__(max_jump=max_jump)
        self._patience = patience
        self._changed = threading.Condition()

    def acquire(self, mark: Mark) -> Callable[[], None]:
        """Wait to be let in; returns what leaves."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.enter(mark), self._patience):
                raise _too_long(mark, self._patience)
        left = False

        def leave() -> None:
            nonlocal left
            with self._changed:
                if not left:
                    left = True
                    if self.leave(mark):
                        self._changed.notify_all()

        return leave


class AsyncGate(Gate):
    """For ASGI: one event loop."""

    def __init__(self, *, max_jump: int | None = None, patience: float = PATIENCE) -> None:
        super().__init__(max_jump=max_jump)
        self._patience = patience
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    async def wait(self, mark: Mark) -> None:
        """After `enter` said no."""
        deadline = time.monotonic() + self._patience
        while True:
            bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(mark.resource, []).append(bell)
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await bell
            except TimeoutError:
                raise _too_long(mark, self._patience) from None
            if self.enter(mark):
                return

    def left(self, mark: Mark) -> None:
        if self.leave(mark) and self._waiting and mark.resource in self._waiting:
            for bell in self._waiting.pop(mark.resource):
                if not bell.done():
                    bell.set_result(None)


def _too_long(mark: Mark, patience: float) -> Unavailable:
    return Unavailable(
        f"requests for {mark.resource!r} with an older token have been in progress for {patience:g} s: try again later"
    )
