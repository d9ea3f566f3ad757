"""How a loss is heard of in asyncio. Two loops may share a store, and one of them renews for both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .drivers.aio import LoopBell
from .events import contained
from .lease import Lease


class Told:
    """An asyncio.Event that tasks of several loops may wait for, and that is set from any thread."""

    def __init__(self) -> None:
        self._is_set = False
        self._bells: dict[LoopBell, None] = {}

    def set(self) -> None:
        self._is_set = True  # first: whoever begins to wait now sees it, or is rung
        for bell in list(self._bells):
            bell.ring()

    async def wait(self) -> None:
        bell = LoopBell()
        self._bells[bell] = None
        try:
            while not self._is_set:
                await bell.wait(3600.0)
        finally:
            del self._bells[bell]


def in_this_loop(callback: Callable[[Lease], object]) -> Callable[[Lease], object]:
    """Called from another one, it would set, or cancel, what is not woken by that."""
    loop = asyncio._get_running_loop()

    def call(lease: Lease) -> None:
        with contained(f"an on_lost callback of {lease.name!r}"):
            callback(lease)

    def told(lease: Lease) -> None:
        if loop is not None and loop is not asyncio._get_running_loop() and loop.is_running():
            with suppress(RuntimeError):  # it was closed in this moment: here, then
                loop.call_soon_threadsafe(call, lease)
                return
        callback(lease)

    return told
