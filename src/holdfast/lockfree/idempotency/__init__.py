"""Work that is done once, however often it is asked for: the first caller runs it, the others get its result.

>>> import sqlite3
>>> from holdfast.lockfree import idempotency
>>> keys = idempotency.Keys(sqlite3.connect(":memory:"), create=True)
>>> @keys.idempotent(key=lambda order: f"charge:{order}")
... def charge(order):
...     print("charging", order)
...     return {"receipt": order + 1000}
>>> charge(42), charge(42)
charging 42
({'receipt': 1042}, {'receipt': 1042})

For asyncio the same names are in `holdfast.lockfree.idempotency.aio`. Middleware for the header Idempotency-Key is in
`.asgi` and `.wsgi`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ...databases.connections import THREADS
from ...databases.statements import valid_dialect
from ...drivers.base import finish
from ...drivers.threads import Threads
from .codec import JSON, Codec
from .core import Run
from .quick import quick_look
from .shared import AnyKeys
from .sql import statements

__all__ = ["Keys", "idempotent", "once", "Run", "Codec", "JSON", "schema"]

P = ParamSpec("P")
T = TypeVar("T")


def schema(dialect: str) -> str:
    """The statements that create the table `holdfast_idempotency`, for your migrations."""
    valid_dialect(dialect)
    known = statements(dialect)
    return "".join(f"{known[name]};\n" for name in ("create", "create_index") if name in known)


class Once:
    """Made by `Keys.once`; `with` gives a `Run`."""

    __slots__ = ("_key", "_keys", "_payload", "_session")

    def __init__(self, keys: Keys, key: str, payload: object) -> None:
        self._keys = keys
        self._key = key
        self._payload = payload
        # Made here, so that a bad key is refused at once.
        self._session = keys._session(key, payload)

    def __enter__(self) -> Run:
        keys, key = self._keys, self._key
        if keys._kept is not None and (found := keys._kept(key, self._payload)) is not None:
            return Run(key, False, keys._rules.codec.loads(found[0]), found[1], None)
        return finish(self._session.enter())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._session.leave(error))


class Keys(AnyKeys):
    """Idempotency keys in one store: a connection to a database, a client of redis-py, or a function that opens a
    connection for `with`, such as `pool.connection` or `engine.connect`.

    `ttl`: after so many seconds a run that has not ended counts as dead, and is taken over. `keep`: for how long a result is
    remembered. `timeout`: how long to wait for somebody else's run; 0: not at all, but `InFlight` at once. `limit`: the
    largest result, in bytes. `atomic`: on a database, run the body in a transaction that also keeps the result, so that both
    stand or neither. `create`: create the table when it is missing.
    """

    _world = THREADS
    _driver = Threads()
    _quick = staticmethod(quick_look)

    def once(self, key: str, payload: object = None) -> Once:
        """For `with`: gives a `Run`. If it is the `first`, do the work and set its `result`; else the result is there.

        An error in the body gives the key free again. `payload` (bytes or plain data) must be the same whenever the key
        comes again, or `KeyReused` is raised.
        """
        return Once(self, key, payload)

    def idempotent(
        self, key: Callable[P, str], payload: Callable[P, object] | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator: `key` and `payload` are given the arguments of each call."""

        kept, loads = self._kept, self._rules.codec.loads

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @wraps(function)
            def once(*args: P.args, **kwargs: P.kwargs) -> T:
                name, said = key(*args, **kwargs), payload(*args, **kwargs) if payload else None
                if kept is not None and (found := kept(name, said)) is not None:
                    known: T = loads(found[0])
                    return known
                with self.once(name, said) as run:
                    if run.first:
                        run.result = function(*args, **kwargs)
                result: T = run.result
                return result

            return once

        return decorate

    def create_table(self) -> None:
        """Create the table `holdfast_idempotency` if there is none."""
        finish(self._create_table())

    def purge(self) -> int:
        """Delete what is past its time, and say how many; done now and then by itself."""
        return finish(self._purge())


def idempotent(
    store: Any, *, key: Callable[P, str], payload: Callable[P, object] | None = None, **rules: Any
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`Keys(store, **rules).idempotent(key, payload)`."""
    return Keys(store, **rules).idempotent(key, payload)


def once(store: Any, key: str, payload: object = None, **rules: Any) -> Once:
    """`Keys(store, **rules).once(key, payload)`."""
    return Keys(store, **rules).once(key, payload)
