"""The work is done, and the connection breaks on which its result is to be kept: it is said again on another. Else the effect
would be had again, though nobody died."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast.lockfree.idempotency.redis import RedisLedger
from holdfast.lockfree.idempotency.sql import SqlLedger

from .stores import ALL, Store, opened
from .test_stores import Work


@pytest.fixture(scope="module", params=ALL)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with opened(request.param, request) as one:
        yield one


class Broken:
    """The first so many times that a result is to be kept, the connection breaks: before that has arrived, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ledger: Any, times: int, arrives: bool) -> None:
        self.times = 0
        real = ledger.finish

        async def finish(*args: Any) -> bool:
            self.times += 1
            if self.times <= times:
                if arrives:
                    await real(*args)
                raise ConnectionResetError("the server hung up")
            return bool(await real(*args))

        monkeypatch.setattr(ledger, "finish", finish)


def asked(store: Store, **rules: Any) -> Callable[[str, Work], Any]:
    """By what opens connections; a client of Redis does by itself."""

    @contextlib.contextmanager
    def opens() -> Iterator[Any]:
        yield store.mine

    @contextlib.asynccontextmanager
    async def opens_async() -> AsyncIterator[Any]:
        yield store.mine

    opening = opens_async if store.database.asynchronous else opens
    keys = store.keys(opening if store.sql else None, **rules)
    return lambda key, work: store.run(store.once(keys, key, work))


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "not answered"])
def test_a_result_whose_keeping_was_not_answered_is_kept_on_another_connection(
    store: Store, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(monkeypatch, SqlLedger if store.sql else RedisLedger, 2, arrives)
    key, work, ask = store.key(), Work(), asked(store, atomic=False, timeout=0)
    assert [ask(key, work), ask(key, work)] == ["done", "done"]
    assert work.times == 1
    assert broken.times == 3


def test_nobody_goes_on_when_the_run_counts_as_dead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Broken(monkeypatch, SqlLedger if store.sql else RedisLedger, 10**6, arrives=False)
    started = time.monotonic()
    with pytest.raises(ConnectionResetError):
        asked(store, atomic=False, ttl=0.3)(store.key(), Work())
    assert time.monotonic() - started < 4  # less than what is waited for a store that is away


def test_what_was_rolled_back_is_not_kept_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one transaction with the work: the next run does both."""
    if not store.sql:
        return
    broken = Broken(monkeypatch, SqlLedger, 1, arrives=False)
    key, work, ask = store.key(), Work(), asked(store)
    with pytest.raises(ConnectionResetError):
        ask(key, work)
    assert broken.times == 1
    assert ask(key, work) == "done"
    assert work.times == 2
