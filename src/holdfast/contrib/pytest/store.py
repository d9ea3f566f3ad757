"""A store in memory that can be told not to answer. Its URL is `memory+test://name`."""

from __future__ import annotations

from collections.abc import Sequence

from ...claim import ROUND, Claim, Grant, Place, Snapshot, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable
from ...stores.memory import MemoryStore

silent: dict[str, str] = {}  # the spaces that do not answer, and what is said of it


class TestStore(MemoryStore):
    """As `memory://`, but for its silence. What was asked during it never arrived."""

    __test__ = False  # it is called what it is, and pytest need not look for tests in it

    def __init__(self, driver: Driver, name: str) -> None:
        super().__init__(driver, f"test/{name}")
        self._name = name

    def _answer(self) -> None:
        if (why := silent.get(self._name)) is not None:
            raise Unavailable(why)

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        self._answer()
        return await super().claim(claim, within)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        self._answer()
        return await super().renew(grants, within)

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        self._answer()
        return await super().release(claim, within)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        self._answer()
        await super().watch(name, token, timeout)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        self._answer()
        return await super().evict(name, token, by)

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        self._answer()
        return await super().inspect(name, within)

    async def names(self, prefix: str = "") -> Sequence[str]:
        self._answer()
        return await super().names(prefix)


def open_store(url: str, driver: Driver) -> TestStore:
    """`memory+test://name`."""
    return TestStore(driver, url.partition("://")[2].strip("/"))
