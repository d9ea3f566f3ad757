"""Idempotency keys for asyncio: the same names as in `holdfast.lockfree.idempotency`, with `await`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ...databases.connections import ASYNCIO
from ...drivers.aio import Asyncio
from . import schema
from .codec import JSON, Codec
from .core import Run, Session
from .shared import AnyKeys

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


class Keys(AnyKeys):
    """Idempotency keys in one store: a connection to a database, a client of redis-py, or a function that opens a
    connection for `async with`, such as `pool.connection` or `engine.connect`.

    `ttl`: after so many seconds a run that has not ended counts as dead, and is taken over. `keep`: for how long a result is
    remembered. `timeout`: how long to wait for somebody else's run; 0: not at all, but `InFlight` at once. `limit`: the
    largest result, in bytes. `atomic`: on a database, run the body in a transaction that also keeps the result, so that both
    stand or neither. `create`: create the table when it is missing.
    """

    _world = ASYNCIO
    _driver = Asyncio()

    def once(self, key: str, payload: object = None) -> Once:
        """For `async with`: gives a `Run`. If it is the `first`, do the work and set its `result`; else the result is there.

        An error in the body gives the key free again. `payload` (bytes or plain data) must be the same whenever the key
        comes again, or `KeyReused` is raised.
        """
        return Once(self._session(key, payload))

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
        await self._create_table()

    async def purge(self) -> int:
        """Delete what is past its time, and say how many; done now and then by itself."""
        return await self._purge()


def idempotent(
    store: Any, *, key: Callable[P, str], payload: Callable[P, object] | None = None, **rules: Any
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
    """`Keys(store, **rules).idempotent(key, payload)`."""
    return Keys(store, **rules).idempotent(key, payload)


def once(store: Any, key: str, payload: object = None, **rules: Any) -> Once:
    """`Keys(store, **rules).once(key, payload)`."""
    return Keys(store, **rules).once(key, payload)
