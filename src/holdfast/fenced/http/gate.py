"""Who may be served: per resource, one token at a time, and never a lower one again.

A middleware that only compared would check and then let the handler write: too late. So while requests of one token are
being served, a newer one waits for them to finish, and from the moment it arrived, no older one is let in.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from ...errors import Misuse, Unavailable
from ..mark import Mark, refusal

PATIENCE = 30.0
MOST = 100_000
KEEP = 86_400.0
AHEAD = 86_400.0  # seconds by which clocks may differ
_TRIES = 16


class _Resource:
    __slots__ = ("asked", "running", "seen", "serving", "since")

    def __init__(self) -> None:
        self.seen = 0
        self.since = 0.0
        self.asked = 0.0  # when a request came last
        self.serving = 0  # the token that is being served …
        self.running = 0  # … by so many requests


class TooFar(Misuse):
    """The token is further ahead than the gate allows."""


class Gate:
    """The marks of one process, in memory. They end with it: state that outlives it needs a guard of its own as well.

    There are at most `most`; a name that nobody has asked for in `keep` seconds makes room for a new one.
    """

    def __init__(self, *, max_jump: int | None = None, most: int = MOST, keep: float = KEEP) -> None:
        self._resources: dict[str, _Resource] = {}
        self._max_jump = max_jump
        self._most = most
        self._keep = keep

    def seen(self, resource: str) -> int:
        known = self._resources.get(resource)
        return known.seen if known else 0

    def look(self, mark: Mark) -> None:
        """For one who only reads, and is not known: refused if overtaken, and no mark is left."""
        resource = self._resources.get(mark.resource)
        if resource is not None and mark.token < resource.seen:
            raise refusal(mark, resource.seen, resource.since)

    def enter(self, mark: Mark, vouched: bool = True) -> bool:
        """True: come in. False: an older token is still being served; ask again when it has left.

        `vouched`: by a signature. If not, no token can be of a later time than now: those of a clock are its microseconds,
        those of a counter are far below."""
        name, token = mark
        resource = self._resources.get(name)
        if resource is None or token != resource.seen:
            self._may_move(mark, resource, vouched)
            if resource is None:
                resource = self._new(name)
            resource.seen, resource.since = token, time.time()
        resource.asked = time.monotonic()
        if resource.running and resource.serving != token:
            return False
        resource.serving = token
        resource.running += 1
        return True

    def _may_move(self, mark: Mark, resource: _Resource | None, vouched: bool) -> None:
        seen = resource.seen if resource else 0
        if resource is not None and mark.token < seen:
            raise refusal(mark, seen, resource.since)
        if self._max_jump is not None and seen and mark.token - seen > self._max_jump:
            raise TooFar(
                f"token {mark.token} of {mark.resource!r} is more than {self._max_jump} ahead of the last one, {seen}"
            )
        if not vouched and mark.token > (time.time() + AHEAD) * 1e6:
            raise TooFar(f"token {mark.token} of {mark.resource!r} is ahead of the clock, and nobody has signed it")

    def _new(self, name: str) -> _Resource:
        """Oldest first, a few at a time: who has been asked for since goes to the end."""
        for _ in range(_TRIES):
            if len(self._resources) < self._most:
                break
            oldest = next(iter(self._resources))
            resource = self._resources.pop(oldest)
            if resource.running or time.monotonic() - resource.asked < self._keep:
                self._resources[oldest] = resource
        else:
            raise Unavailable(
                f"the marks of {self._most} resources are being kept already: there is no room for {name!r}"
            )
        made = self._resources[name] = _Resource()
        return made

    def leave(self, mark: Mark) -> bool:
        """True if nobody is being served now."""
        resource = self._resources[mark.resource]
        resource.running -= 1
        return resource.running == 0


class ThreadGate(Gate):
    """For WSGI."""

    def __init__(self, *, patience: float = PATIENCE, **limits: Any) -> None:
        super().__init__(**limits)
        self._patience = patience
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)

    def acquire(self, mark: Mark, vouched: bool = True) -> Callable[[], None]:
        """Wait to be let in; returns what leaves."""
        with self._mutex:
            if not self._changed.wait_for(lambda: self.enter(mark, vouched), self._patience):
                raise _too_long(mark, self._patience)
        left = False

        def leave() -> None:
            nonlocal left
            with self._mutex:
                if not left:
                    left = True
                    if self.leave(mark):
                        self._changed.notify_all()

        return leave


class AsyncGate(Gate):
    """For ASGI: one event loop."""

    def __init__(self, *, patience: float = PATIENCE, **limits: Any) -> None:
        super().__init__(**limits)
        self._patience = patience
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    async def wait(self, mark: Mark) -> None:
        """After `enter` said no."""
        deadline = time.monotonic() + self._patience
        while True:
            bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            others = self._waiting.setdefault(mark.resource, {})
            others[bell] = None
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await bell
            except TimeoutError:
                raise _too_long(mark, self._patience) from None
            finally:
                others.pop(bell, None)  # the one who is being served may never leave, and who waits is anybody
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
