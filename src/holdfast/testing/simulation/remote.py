"""A real store, as processes far from it see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...claim import LAST_WORDS, ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict
from ...drivers.simulated import Process
from ...drivers.world import Task
from ...lending import wanted_of
from ...stores.base import Store
from .network import Network, Unanswered


class Duplicate(NamedTuple):
    """A claim that the network delivered twice. The second may be executed long after the caller has its answer."""

    process: str
    claim: Claim


class Remote:
    """The store protocol for one process, every method a call over the network. The server runs the store itself."""

    def __init__(
        self,
        store: Store,
        network: Network,
        process: Process,
        on_duplicate: Callable[[Duplicate], object] = lambda _: None,
    ) -> None:
        self._store = store
        self._network = network
        self._process = process
        self._on_duplicate = on_duplicate
        self._waits: dict[str, Task] = {}  # at the server: one for each place

    @property
    def traits(self) -> Traits:
        return self._store.traits._replace(scope="network")

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        told = Duplicate(self._process.name, claim)
        return await self._network.call(
            self._process,
            "claim",
            lambda: self._store.claim(claim, within),
            on_duplicate=lambda: self._on_duplicate(told),
        )

    async def wait(self, place: Place, timeout: float) -> None:
        """The server rings by sending a message, which may be lost: then the wait lasts its time.

        The server's wait is to end first. Else it could still be listening when we have gone to look again, and take for
        nobody the ring that was meant for our next wait.
        """
        try:
            await self._network.call(
                self._process, "wait", lambda: self._listen(place, timeout), timeout + self._network.round_trip
            )
        except Unanswered:
            return

    async def _listen(self, place: Place, timeout: float) -> None:
        """At the server. A new wait for a place takes over from one that is still there, as a new connection would."""
        holder = place.claim.holder
        before = self._waits.get(holder)
        if before is not None:
            before.cancel()
        me = self._waits[holder] = self._network.server.world.running()
        try:
            await self._store.wait(place, timeout)
        finally:
            if self._waits.get(holder) is me:
                del self._waits[holder]

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        return await self._network.call(
            self._process, "renew", lambda: self._store.renew(grants, within), within, on_duplicate=lambda: None
        )

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        return await self._network.call(
            self._process, "release", lambda: self._store.release(claim, within), on_duplicate=lambda: None
        )

    async def watch(self, name: str, token: int, timeout: float) -> None:
        try:
            await self._network.call(
                self._process,
                "watch",
                lambda: self._store.watch(name, token, timeout),
                timeout + self._network.round_trip,
            )
        except Unanswered:
            return

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        wanted: bool = await self._network.call(
            self._process,
            "wanted",
            lambda: wanted_of(self._store)(grant, timeout),
            timeout + self._network.round_trip,
        )
        return wanted

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await self._network.call(self._process, "evict", lambda: self._store.evict(name, token, by))

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        return await self._network.call(self._process, "inspect", lambda: self._store.inspect(name, within))

    async def names(self, prefix: str = "") -> Sequence[str]:
        return await self._network.call(self._process, "names", lambda: self._store.names(prefix))

    def wake_waiters(self) -> None:
        self._store.wake_waiters()

    def forked(self) -> None:
        """Nothing of the network is inherited."""

    async def close(self, within: float = LAST_WORDS) -> None:
        """The server goes on."""
