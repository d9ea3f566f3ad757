"""Keys that open connections from a pool: what is not needed goes back, so that a small pool does not lock itself up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast import StaleToken
from holdfast.lockfree.idempotency.asgi import IdempotencyMiddleware as Asgi
from holdfast.lockfree.idempotency.sql import SqlLedger
from holdfast.lockfree.idempotency.wsgi import IdempotencyMiddleware as Wsgi

from .stores import SQL, Store, opened
from .test_stores import Work, as_another


class Pool:
    """A pool of one connection: whoever asks for it while it is lent would wait for ever, and is told so."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.lent = False

    def _lend(self) -> Any:
        assert not self.lent, "the pool is empty"
        self.lent = True
        return self._connection

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        connection = self._lend()
        try:
            yield connection
        finally:
            self.lent = False

    @contextlib.asynccontextmanager
    async def connection_async(self) -> AsyncIterator[Any]:
        with self.connection() as connection:
            yield connection


class Pooled:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.pool = Pool(store.mine)
        self.open = self.pool.connection_async if store.database.asynchronous else self.pool.connection

    def keys(self, **rules: Any) -> Any:
        return self.store.surface.Keys(self.open, **rules)


@pytest.fixture(scope="module", params=SQL)
def pooled(request: pytest.FixtureRequest) -> Iterator[Pooled]:
    with opened(request.param, request) as store:
        yield Pooled(store)


def test_work_without_a_transaction_holds_no_connection(pooled: Pooled) -> None:
    store, pool, key = pooled.store, pooled.pool, pooled.store.key()

    def work(run: Any) -> str:
        assert run.connection is None
        with pool.connection():
            return "done"

    def fail(run: Any) -> None:
        with pool.connection():
            raise ZeroDivisionError

    keys = pooled.keys(atomic=False, timeout=0)
    with pytest.raises(ZeroDivisionError):
        store.run(store.once(keys, key, fail))
    assert [store.run(store.once(keys, key, work)) for _ in range(2)] == ["done", "done"]
    assert not pool.lent


def test_work_in_a_transaction_writes_through_the_one_connection(pooled: Pooled) -> None:
    store, key = pooled.store, pooled.store.key()

    def work(run: Any) -> str:
        assert (run.connection, pooled.pool.lent) == (store.mine, True)
        return "done"

    assert [store.run(store.once(pooled.keys(), key, work)) for _ in range(2)] == ["done", "done"]
    assert not pooled.pool.lent


def test_whoever_waits_for_another_holds_no_connection(pooled: Pooled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other needs it to finish."""
    store, key, waits = pooled.store, pooled.store.key(), 0
    sleep = SqlLedger.wait

    async def seen(self: Any, key: str, entry: Any, seconds: float, round_: int) -> None:
        nonlocal waits
        waits += 1
        assert not pooled.pool.lent
        await sleep(self, key, entry, seconds, round_)

    monkeypatch.setattr(SqlLedger, "wait", seen)

    async def slow(run: Any) -> str:
        patient = store.once(pooled.keys(atomic=False), key, Work("of the successor"))
        assert await as_another(patient) == "of the successor"
        return "too late"

    with pytest.raises(StaleToken):
        store.run(store.once(pooled.keys(atomic=False, ttl=0.3), key, slow))
    assert waits > 0


def test_a_request_leaves_the_pool_to_its_handler(pooled: Pooled) -> None:
    store = pooled.store
    asked: list[str] = []

    async def handler(scope: Any, receive: Any, send: Any) -> None:
        async with pooled.pool.connection_async():
            asked.append("asgi")
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    def old_handler(environ: Any, start_response: Any) -> list[bytes]:
        with pooled.pool.connection():
            asked.append("wsgi")
        start_response("201 Created", [])
        return [b"done"]

    async def request(key: str) -> int:
        told: list[Any] = []

        async def send(message: Any) -> None:
            told.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", key.encode())]}
        await Asgi(handler, pooled.keys(), caller=None)(scope, receive, send)
        return int(told[0]["status"])

    def old_request(key: str) -> int:
        told: list[str] = []
        environ = {"REQUEST_METHOD": "POST", "HTTP_IDEMPOTENCY_KEY": key}
        answer = Wsgi(old_handler, pooled.keys(), caller=None)(environ, lambda status, headers: told.append(status))
        list(answer)
        return int(told[0][:3])

    for _ in range(2):
        key = f"{store.name} pool"
        status = store.run(request(key)) if store.database.asynchronous else old_request(key)
        assert status == 201
    assert len(asked) == 1
