"""What the store is made of, for those who work with more than one part of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from ...drivers.base import Driver
from ...errors import Unavailable
from .desk import Desk
from .ears import Ears
from .keeper import Keeper
from .keys import Keys
from .ledger import Ledger
from .sessions import Sessions
from .url import Target

T = TypeVar("T")
_MOST_TRIES = 100
MOST_LOOKED_AFTER = 60  # sessions or books in one transaction, of which Consul takes 64 operations


class Parts(NamedTuple):
    target: Target
    driver: Driver
    keys: Keys
    ledger: Ledger
    sessions: Sessions
    ears: Ears
    keeper: Keeper
    desk: Desk

    async def persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Ride out the election of a leader: all that is done so may be done again."""
        deadline = self.driver.now() + self.target.timeout
        while True:
            try:
                return await attempt()
            except Unavailable:
                if self.driver.now() >= deadline:
                    raise
                await self.driver.sleep(self.driver.uniform(0.02, 0.1))

    async def try_again(self, name: str, tries: int) -> None:
        """Others were quicker to write in this book: a moment later, and not all at once."""
        if tries >= _MOST_TRIES:
            raise Unavailable(f"others were quicker to write {name!r} in Consul {tries} times in a row")
        await self.driver.sleep(self.driver.uniform(0, 0.005 * min(tries, 8)))


def wall_ms() -> int:
    """For people to read, and for nothing else."""
    return int(time.time() * 1000)
