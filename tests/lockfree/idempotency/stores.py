"""Every store of idempotency keys, for tests that are written once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.databases.connections import ASYNCIO, THREADS
from holdfast.databases.wire import settle
from holdfast.lockfree import idempotency
from holdfast.lockfree.idempotency import aio

from ...fenced.sql_drivers import DRIVERS, Driver
from ..databases import FEW as FEW_SQL
from ..databases import RIVALS, Database, marked

_numbers = itertools.count(1)
REDIS = ["redis", "redis async", "redis decoded"]


def _redis(name: str) -> Any:
    import redis.asyncio

    kind: Any = redis.asyncio.Redis if name == "redis async" else redis.Redis
    return lambda url: kind.from_url(url, decode_responses=name == "redis decoded")


def _close_redis(client: Any) -> Any:
    return (getattr(client, "aclose", None) or client.close)()


DRIVERS_HERE = {
    **DRIVERS,
    **{
        name: Driver("redis_url", ASYNCIO if name == "redis async" else THREADS, _redis(name), _close_redis)
        for name in REDIS
    },
}

ALL = [*marked(list(DRIVERS)), *(pytest.param(name, marks=pytest.mark.server) for name in REDIS)]
SQL = marked(list(DRIVERS))
FEW = [*FEW_SQL, *(pytest.param(name, marks=pytest.mark.server) for name in ("redis", "redis async"))]


class Store:
    """Two connections to one store, and keys that no other test uses."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.sql = name in DRIVERS
        self.database = Database(name, url, DRIVERS_HERE[name])
        rival = RIVALS.get(name)  # Django has one connection a thread
        self.rival = Database(rival, url) if rival else self.database
        self.surface: Any = aio if self.database.asynchronous else idempotency
        self.mine, self.other = self.run(self.database.connect()), self.run(self.rival.connect())
        self.effects = 0
        if self.sql:
            self.run(settle_(self.surface.Keys(self.mine).create_table))

    def run(self, coroutine: Any) -> Any:
        return self.database.run(coroutine)

    def key(self) -> str:
        return f"key {next(_numbers)} of {self.name}"

    def keys(self, connection: Any = None, **rules: Any) -> Any:
        return self.surface.Keys(connection if connection is not None else self.mine, **rules)

    async def once(self, keys: Any, key: str, work: Any, payload: object = None) -> Any:
        """The work under the key; what all get."""
        context = keys.once(key, payload)
        run = await settle((context.__aenter__ if self.database.asynchronous else context.__enter__)())
        leave = context.__aexit__ if self.database.asynchronous else context.__exit__
        try:
            if run.first:
                run.result = await settle(work(run))
        except BaseException as error:
            await settle(leave(type(error), error, error.__traceback__))
            raise
        await settle(leave(None, None, None))
        return run.result

    def do(self, key: str, work: Any, payload: object = None, *, connection: Any = None, **rules: Any) -> Any:
        return self.run(self.once(self.keys(connection, **rules), key, work, payload))

    def close(self) -> None:
        self.database.close()
        if self.rival is not self.database:
            self.rival.close()


async def settle_(call: Any) -> Any:
    return await settle(call())


@contextmanager
def opened(name: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    store = Store(name, request.getfixturevalue(DRIVERS_HERE[name].server))
    try:
        yield store
    finally:
        store.close()
