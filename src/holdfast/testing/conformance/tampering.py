"""The real store, with a hand on it: what passes can be counted, failed, delayed, or forgotten on its way back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...claim import ROUND, Claim, Grant, Place, Snapshot, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable
from ...stores.base import Store
from ..around import Around
from .world import settled

Hook = Callable[[str], Any]


class Interruption(BaseException):
    """Like Ctrl-C, but the test's own."""


def _let_pass(method: str) -> None:
    return None


def _in_the_background() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return (task.get_name() if task is not None else threading.current_thread().name).startswith("holdfast-")


class Tampered(Around):
    """`before` and `after` are called with the method's name; they may raise, or return something to await."""

    def __init__(self, store: Store, driver: Driver) -> None:
        super().__init__(store)
        self._driver = driver
        self.calls: list[str] = []
        self.before: Hook = _let_pass
        self.after: Hook = _let_pass
        self._refused = "", ""
        self.doubtful: set[str] = set()  # names whose renewals arrive, but are not answered
        self.stalled = False  # no renewal arrives, and whoever asks for one waits as long as they said

    def heal(self) -> None:
        self.before = self.after = _let_pass
        self._refused = "", ""

    def fail(self, *methods: str, times: int = 1, reply_only: bool = False) -> None:
        """The next calls raise Unavailable: the request is lost, or, with `reply_only`, its answer."""
        left = times

        def hook(method: str) -> None:
            nonlocal left
            if method in methods and left > 0:
                left -= 1
                raise Unavailable(f"{method}: as the test wants it")

        if reply_only:
            self.after = hook
        else:
            self.before = hook

    def fail_name(self, method: str, name: str) -> None:
        """All such calls for this name raise Unavailable."""
        self._refused = method, name

    def interrupt(self, at: int, *, after: bool) -> None:
        """Raise Interruption at the call number `at`, before it was sent or after it was done.

        What runs in the background is not counted: nobody's Ctrl-C arrives there.
        """
        left = at

        def hook(method: str) -> None:
            nonlocal left
            if _in_the_background():
                return
            left -= 1
            if left == -1:
                raise Interruption(method)

        if after:
            self.after = hook
        else:
            self.before = hook

    async def _pass(self, method: str, *args: Any) -> Any:
        self.calls.append(method)
        await settled(self.before(method))
        if method == self._refused[0] and args[0].name == self._refused[1]:
            raise Unavailable(f"{method}: as the test wants it")
        answer = await getattr(self.store, method)(*args)
        await settled(self.after(method))
        return answer

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        answer: Grant | Place = await self._pass("claim", claim, within)
        return answer

    async def wait(self, place: Place, timeout: float) -> None:
        await self._pass("wait", place, timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        end = time.monotonic() + within
        while self.stalled:
            if time.monotonic() >= end:
                raise Unavailable(f"renew: no answer within {within:g} s, as the test wants it")
            await self._driver.sleep(0.005)
        answer: Sequence[Verdict] = await self._pass("renew", grants, within)
        doubt = Unavailable("renew: no answer about this one, as the test wants it")
        return [doubt if grant.claim.name in self.doubtful else one for grant, one in zip(grants, answer, strict=True)]

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        answer: bool = await self._pass("release", claim, within)
        return answer

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._pass("watch", name, token, timeout)

    @property
    def post(self) -> Any:
        """Not tampered with: whoever tampers waits for every answer."""
        return None

    @property
    def wanted(self) -> Any:
        return partial(self._pass, "wanted") if hasattr(self.store, "wanted") else None

    async def evict(self, name: str, token: int, by: str) -> int | None:
        answer: int | None = await self._pass("evict", name, token, by)
        return answer

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        answer: Snapshot = await self._pass("inspect", name, within)
        return answer

    async def names(self, prefix: str = "") -> Sequence[str]:
        answer: Sequence[str] = await self._pass("names", prefix)
        return answer


def tamper(locks: Any) -> Tampered:
    """Put a hand between a connection and its store."""
    engine = locks._engine
    hand = Tampered(engine.store, engine.driver)
    engine.store = engine.renewer._store = engine.leaving._store = hand
    return hand
