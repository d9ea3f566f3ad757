"""What `holdfast run` says on a terminal while it waits: one line, after a second, gone when the lock is given."""

from __future__ import annotations

import os
import time
from typing import Any, TextIO, cast

from ..claim import ROUND, Claim, Grant, Place, Snapshot
from ..drivers.base import boot_time
from ..errors import Unavailable
from ..stores.base import Store
from .terminal import width_of
from .text import ago, line

PATIENCE = 1.0  # most waits are over by then, and need no words
_ASKING = 0.5  # seconds for finding out who holds it: the line keeps our place meanwhile


def can_tell(stream: TextIO | None) -> bool:
    """A terminal that can take a line back."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Telling:
    """The store, and on the way a word to whoever sits there."""

    def __init__(self, store: Store, stream: TextIO) -> None:
        self._store = store
        self._stream = stream
        self._since = 0.0
        self._clock = ""
        self._told = False

    def around(self) -> Store:
        return cast(Store, self)

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        answer = await self._store.claim(claim, within)
        if type(answer) is Grant:
            self.erase()
        return answer

    async def wait(self, place: Place, timeout: float) -> None:
        now = boot_time()
        if not self._since:
            self._since, self._clock = now, time.strftime("%H:%M:%S")
        left = self._since + PATIENCE - now
        if left <= 0:
            await self._tell(place.claim)
        # Back early is fine, so the first wait ends when there is something to say.
        await self._store.wait(place, timeout if left <= 0 else min(timeout, left))

    async def _tell(self, claim: Claim) -> None:
        try:
            snapshot = await self._store.inspect(claim.name, _ASKING)
        except Unavailable:
            return
        self._show(snapshot, claim.owner)

    def _show(self, snapshot: Snapshot, me: str) -> None:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            return
        self._stream.write(f"\r\x1b[K{fitting(snapshot, me, self._clock, columns - 1)}")
        self._stream.flush()
        self._told = True

    def erase(self) -> None:
        if self._told:
            self._told = False
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def sentence(snapshot: Snapshot, me: str, since: str) -> str:
    told = f"holdfast: waiting for {line(snapshot.name)} since {since}"
    if snapshot.holders:
        oldest = max(snapshot.holders, key=lambda one: one.age)
        told += f"; held for {ago(oldest.age)} by {line(oldest.owner)}"
        if len(snapshot.holders) > 1:
            told += f" and {len(snapshot.holders) - 1} more"
    ahead = next((place for place, one in enumerate(snapshot.waiters) if one.owner == me), 0)
    return f"{told}; {ahead} ahead in line" if ahead else told


def fitting(snapshot: Snapshot, me: str, since: str, columns: int) -> str:
    """All of it if there is room; else, before all, for whom. The name was typed by whoever sits there."""
    told = [sentence(snapshot, me, since)]
    if snapshot.holders:
        oldest = max(snapshot.holders, key=lambda one: one.age)
        who, inside = line(oldest.owner), f"inside for {ago(oldest.age)}"
        told += [f"waiting since {since} for {who}, {inside}", f"waiting for {who}, {inside}", f"waiting for {who}"]
    return next((one for one in told if width_of(one) <= columns), shortened(told[-1], columns))


def shortened(text: str, columns: int) -> str:
    """A line that wraps cannot be erased as one."""
    if width_of(text) <= columns:
        return text
    while text and width_of(text) >= columns:
        text = text[:-1]
    return f"{text}…"
