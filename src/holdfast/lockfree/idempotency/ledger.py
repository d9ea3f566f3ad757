"""What idempotency needs of a store."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from .rule import Entry


class Ledger(Protocol):
    """One conversation partner: a connection to a database, or a client of Redis."""

    connection: Any
    transactional: bool  # can the user's own writes and the result be one transaction?

    def ready(self) -> None:
        """`Misuse` if it cannot be used now, because a transaction is open."""

    async def look(self, key: str) -> Entry | None: ...

    async def claim(self, key: str, payload: str | None, runner: str, ttl: float, keep: float) -> Entry:
        """Take the key if it is free; what stands there now, ours or not."""

    async def finish(self, key: str, entry: Entry, result: bytes | None, flaw: str | None, keep: float) -> bool:
        """Keep the result, in the transaction that is open if there is one. False: somebody has taken over."""

    async def release(self, key: str, runner: str) -> None:
        """Nothing came of it: the next may run. Harmless, whether or not the claim of this runner has arrived."""

    async def wait(self, key: str, entry: Entry, seconds: float, round_: int) -> None:
        """Until the run may be over; early is fine."""

    async def begin(self) -> None: ...

    async def end(self, error: BaseException | None) -> None: ...

    async def create(self) -> None: ...

    async def purge(self, keep: float) -> int: ...


Close = Callable[[BaseException | None], Coroutine[Any, Any, None]]
Open = Callable[[], Coroutine[Any, Any, tuple[Ledger, Close]]]


async def nothing_to_close(error: BaseException | None) -> None:
    """The user's own connection, or client: not ours to close."""
