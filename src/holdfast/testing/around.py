"""Who stands between an engine and its store, and lets pass what is none of his business."""

from __future__ import annotations

from collections.abc import Sequence

from ..claim import LAST_WORDS, ROUND, Place, Snapshot, Traits
from ..stores.base import Store


class Around:
    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def traits(self) -> Traits:
        return self.store.traits

    async def wait(self, place: Place, timeout: float) -> None:
        await self.store.wait(place, timeout)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self.store.watch(name, token, timeout)

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        return await self.store.inspect(name, within)

    async def names(self, prefix: str = "") -> Sequence[str]:
        return await self.store.names(prefix)

    def wake_waiters(self) -> None:
        self.store.wake_waiters()

    def forked(self) -> None:
        self.store.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        await self.store.close(within)
