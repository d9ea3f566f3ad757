"""A store that every process opens for itself, such as a file: no network, but others run between any two of its steps."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ...claim import ROUND, Claim, Grant, Place, Snapshot, Verdict
from ...drivers.simulated import Process
from ...drivers.world import Killed
from ...lending import wanted_of
from ...stores.base import Store
from ..around import Around

T = TypeVar("T")


async def moment(process: Process) -> None:
    """Others run, and perhaps we do not come back."""
    await process.driver.sleep(process.driver.uniform(0.0, 0.002))
    if not process.alive:
        raise Killed


class Local(Around):
    """The store protocol for one process. Every call takes a moment, before and after, in which anything may happen."""

    def __init__(self, store: Store, process: Process) -> None:
        super().__init__(store)
        self._process = process

    async def _call(self, execute: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await moment(self._process)
        result = await execute()
        await moment(self._process)
        return result

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        return await self._call(lambda: self.store.claim(claim, within))

    async def wait(self, place: Place, timeout: float) -> None:
        await moment(self._process)
        await self.store.wait(place, timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        return await self._call(lambda: self.store.renew(grants, within))

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        return await self._call(lambda: self.store.release(claim, within))

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await moment(self._process)
        await self.store.watch(name, token, timeout)

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        await moment(self._process)
        wanted: bool = await wanted_of(self.store)(grant, timeout)
        return wanted

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await self._call(lambda: self.store.evict(name, token, by))

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        return await self._call(lambda: self.store.inspect(name, within))

    async def names(self, prefix: str = "") -> Sequence[str]:
        return await self._call(lambda: self.store.names(prefix))

    def forked(self) -> None:
        raise NotImplementedError("a simulated process does not fork")
