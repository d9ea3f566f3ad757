"""Signals to `holdfast run`: while it waits they end the waiting; while the command runs they are the command's.

Rule 1: a signal never cuts a claim short, only the wait between two claims. So the claim that is taken back afterwards is
one whose fate is known.
Rule 2: what was ignored when we were started (nohup) stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import Any, cast

from ..claim import ROUND, Claim, Grant, Place
from ..stores.base import Store

_ENDING = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGPWR", "SIGIO", "SIGVTALRM")
_OTHERS = ("SIGWINCH", "SIGCONT", "SIGTSTP", "SIGURG")


def _numbers(names: tuple[str, ...]) -> list[int]:
    return [int(getattr(signal, name)) for name in names if hasattr(signal, name)]


# Left alone: the faults of our own (SEGV, ABRT …), PIPE, and the limits and timers that the kernel keeps for a process.
ENDING = _numbers(_ENDING)
if hasattr(signal, "SIGRTMIN"):
    ENDING += range(signal.SIGRTMIN, signal.SIGRTMAX + 1)


class Interrupted(BaseException):
    """A signal came while we waited. Not an Exception, so that nobody on the way takes it for one."""


class Signals:
    def __init__(self) -> None:
        self.arrived = 0  # the first one that came while we waited
        self.die_of = 0  # Ctrl-C on a terminal ended the command: end as it did
        self._waiting = False
        self._inbox = self._outbox = -1
        self._mine = [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]
        for signum in self._mine:
            signal.signal(signum, self._leave)

    def _leave(self, signum: int, _: FrameType | None) -> None:
        if not self.arrived:
            self.arrived = signum
        if self._waiting:
            self._waiting = False  # a second one must not cut short the release that the first one led to
            raise Interrupted

    # ---- while waiting

    def around(self, store: Store) -> Store:
        """The store, with waits that a signal ends."""
        return cast(Store, _Interruptible(store, self))

    # ---- while the command runs

    def collect(self) -> int:
        """From now on signals are queued; returns what to poll for them."""
        self._inbox, self._outbox = os.pipe()
        os.set_blocking(self._inbox, False)
        os.set_blocking(self._outbox, False)
        signal.set_wakeup_fd(self._outbox, warn_on_full_buffer=False)
        others = [one for one in _numbers(_OTHERS) if signal.getsignal(one) is not signal.SIG_IGN]
        for signum in (*self._mine, *others, signal.SIGCHLD):
            signal.signal(signum, _noted)
        return self._inbox

    def nudge(self) -> None:
        """Wake up whoever polls, from any thread."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._outbox, b"\0")

    def read(self) -> list[int]:
        try:
            came = os.read(self._inbox, 4096)
        except BlockingIOError:
            return []
        return [signum for signum in dict.fromkeys(came) if signum]


def _noted(signum: int, _: FrameType | None) -> None:
    """The number is in the pipe already; Python only puts it there for signals that have a handler."""


class _Interruptible:
    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        if self._signals.arrived:
            raise Interrupted
        return await self._store.claim(claim, within)

    async def wait(self, place: Place, timeout: float) -> None:
        self._signals._waiting = True
        try:
            if self._signals.arrived:
                raise Interrupted
            await self._store.wait(place, timeout)
        finally:
            self._signals._waiting = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
