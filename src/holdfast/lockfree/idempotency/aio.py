"""Idempotency keys for asyncio: the same names as in `holdfast.lockfree.idempotency`, with `await`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ...databases.connections import ASYNCIO
from ...drivers.aio import Asyncio
from . import schema
from .codec import JSON, Codec
from .core import Rules, Run, Session
from .opening import opener

__all__ = ["Keys", "idempotent", "once", "Run", "Codec", "JSON", "schema"]

P = ParamSpec("P")
T = TypeVar("T")


class Once:
    """Made by `Keys.once`; `async with` gives a `Run`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def __aenter__(self) -> Run:
        return await self._session.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.leave(error)


class Keys:
    """Idempotency keys in one store: a connection to a database, a client of redis-py, or a function that opens a
    connection for `async with`, such as `pool.connection` or `engine.connect`.

    `ttl`: after so many seconds a run that has not ended counts as dead, and is taken over. `keep`: for how long a result is
    remembered. `timeout`: how long to wait for somebody else's run; 0: not at all, but `InFlight` at once. `limit`: the
    largest result, in bytes. `atomic`: on a database, run the body in a transaction that also keeps the result, so that both
    stand or neither. `create`: create the table when it is missing.
    """

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
        self._driver = Asyncio()
        self._open = opener(self._driver, ASYNCIO, store)

    def once(self, key: str, payload: object = None) -> Once:
        """For `async with`: gives a `Run`. If it is the `first`, do the work and set its `result`; else the result is there.

        An error in the body gives the key free again. `payload` (bytes or plain data) must be the same whenever the key
        comes again, or `KeyReused` is raised.
        """
        return Once(Session(self._driver, self._open, self._rules, key, payload))

    def idempotent(
        self, key: Callable[P, str], payload: Callable[P, object] | None = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
        """A decorator: `key` and `payload` are given the arguments of each call."""

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
            @wraps(function)
            async def once(*args: P.args, **kwargs: P.kwargs) -> T:
                async with self.once(key(*args, **kwargs), payload(*args, **kwargs) if payload else None) as run:
                    if run.first:
                        run.result = await function(*args, **kwargs)
                result: T = run.result
                return result

            return once

        return decorate

    async def create_table(self) -> None:
        """Create the table `holdfast_idempotency` if there is none."""
        ledger, close = await self._open()
        try:
            await ledger.create()
        finally:
            await close(None)

    async def purge(self) -> int:
        """Delete what is past its time, and say how many; done now and then by itself."""
        ledger, close = await self._open()
        try:
            return await ledger.purge(self._rules.keep)
        finally:
            await close(None)

    def _with(self, **changes: Any) -> Keys:
        """The same store by other rules."""
        other = object.__new__(Keys)
        other._rules = replace(self._rules, **changes)
        other._driver, other._open = self._driver, self._open
        return other


def idempotent(
    store: Any, *, key: Callable[P, str], payload: Callable[P, object] | None = None, **rules: Any
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """`Keys(store, **rules).idempotent(key, payload)`."""
    return Keys(store, **rules).idempotent(key, payload)


def once(store: Any, key: str, payload: object = None, **rules: Any) -> Once:
    """`Keys(store, **rules).once(key, payload)`."""
    return Keys(store, **rules).once(key, payload)
