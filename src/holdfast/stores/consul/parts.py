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
from .wire import Unreachable

T = TypeVar("T")
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

    def by(self, within: float) -> float:
        """When a conversation that may take so long is over: never longer than the URL says."""
        return self.driver.now() + min(within, self.target.timeout)

    async def persistently(self, deadline: float, attempt: Callable[[], Awaitable[T]]) -> T:
        """Ride out a broken connection and the election of a leader: all that is done so may be done again."""
        trouble: Unavailable | None = None
        while True:
            try:
                return await attempt()
            except Unreachable:
                raise
            except Unavailable as error:
                left = deadline - self.driver.now()
                if left <= 0:
                    raise trouble or error from None  # that time ran out at last says less than what was wrong before
                # The first time at once: a connection that lay idle may have been closed.
                await self.driver.sleep(min(left, self.driver.uniform(0, 0.1) if trouble else 0.0))
                trouble = error

    async def try_again(self, name: str, tries: int, deadline: float) -> None:
        """Others were quicker to write in this book: a moment later, and not all at once."""
        if self.driver.now() >= deadline:
            raise Unavailable(f"others were quicker to write {name!r} in Consul {tries + 1} times in a row")
        await self.driver.sleep(self.driver.uniform(0, 0.005 * min(tries, 8)))


def wall_ms() -> int:
    """For people to read, and for nothing else."""
    return int(time.time() * 1000)
