"""What keys have in common, for threads and for asyncio: the store, the rules, and what is done with the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from ...drivers.base import Driver
from .codec import JSON, Codec
from .core import Rules, Session
from .opening import opener


class AnyKeys:
    _world: ClassVar[str]
    _driver: ClassVar[Driver]

    def __init__(
        self,
        store: Any,
        *,
        ttl: float = 30.0,
        keep: float = 86400.0,
        timeout: float | None = None,
        limit: int = 1_000_000,
        codec: Codec = JSON,
        atomic: bool = True,
        create: bool = False,
    ) -> None:
        self._rules = Rules(ttl, keep, timeout, limit, codec, atomic, create)
        self._open = opener(self._driver, self._world, store)
        self._kept = self._quick(store)

    def __repr__(self) -> str:
        return f"<Keys: a run has {self._rules.ttl:g} s, its result is kept for {self._rules.keep:g} s>"

    @staticmethod
    def _quick(store: Any) -> Any:
        """How to look for a result without a conversation's worth of ceremony, where there is a way."""
        return None

    def _session(self, key: str, payload: object) -> Session:
        return Session(self._driver, self._open, self._rules, key, payload)

    def _with(self, **changes: Any) -> Self:
        """The same store by other rules."""
        other = object.__new__(type(self))
        other._rules = replace(self._rules, **changes)
        other._open, other._kept = self._open, self._kept
        return other

    async def _create_table(self) -> None:
        ledger, close = await self._open()
        try:
            await ledger.create()
        finally:
            await close(None)

    async def _purge(self) -> int:
        ledger, close = await self._open()
        try:
            return await ledger.purge(self._rules.keep)
        finally:
            await close(None)
