"""News from PostgreSQL: LISTEN, where the driver lets one wait for it."""

from __future__ import annotations

from typing import Any

from ..databases.postgresql import AsyncpgWire, PsycopgWire
from ..databases.statements import POSTGRESQL, Statement
from ..databases.wire import Wire


class PostgresBell:
    """Rings when somebody has said NOTIFY on the channel. On other databases, and in drivers that cannot wait: never."""

    def __init__(self, connection: Any, wire: Wire, channel: str) -> None:
        self._connection = connection
        self._wire = wire
        self._channel = channel
        self._rung: Any = None  # asyncpg calls back, so here an event keeps what was heard

    def crowded(self) -> bool:
        """Is this the end of a loop that was left, said by Python in a task of its own (which is how it ends a generator that was
        dropped), while the connection takes one statement at a time and may be at another? Then nothing can be said now."""
        import asyncio

        if isinstance(self._wire, PsycopgWire):
            return False  # who comes second waits
        task = asyncio.current_task()
        return task is not None and type(task.get_coro()).__name__ == "async_generator_athrow"

    def _hears(self) -> bool:
        """A connection inside a transaction hears nothing until that ends."""
        return self._wire.dialect == POSTGRESQL and self._wire.standalone() and not self._wire.busy()

    async def listen(self) -> None:
        if not self._hears():
            return
        if isinstance(self._wire, AsyncpgWire):
            import asyncio

            self._rung = asyncio.Event()
            await self._connection.add_listener(self._channel, self._heard)
        elif isinstance(self._wire, PsycopgWire):
            await self._wire.run(Statement(f"LISTEN {self._channel}", (), {}))

    def _heard(self, *_: object) -> None:
        self._rung.set()

    async def wait(self, timeout: float) -> bool:
        """False: it cannot tell. Come again after a while."""
        if not self._hears():
            return False
        if isinstance(self._wire, PsycopgWire):
            notices = self._connection.notifies(timeout=timeout, stop_after=1)
            if hasattr(notices, "__aiter__"):
                async for _ in notices:
                    pass
            else:
                for _ in notices:
                    pass
            return True
        if self._rung is None:
            return False
        import asyncio
        import contextlib

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        self._rung.clear()
        return True

    async def unlisten(self) -> None:
        if self._rung is not None:
            self._rung = None
            await self._connection.remove_listener(self._channel, self._heard)
        elif isinstance(self._wire, PsycopgWire) and self._hears():
            await self._wire.run(Statement(f"UNLISTEN {self._channel}", (), {}))
