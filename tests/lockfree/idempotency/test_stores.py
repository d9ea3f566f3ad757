"""Idempotency keys in every store, over every driver, on real servers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import InFlight, KeyReused, Misuse, StaleToken, Unstorable
from holdfast.lockfree import idempotency
from holdfast.lockfree.idempotency import aio

from .stores import ALL, FEW, Store, opened

SHORT = 0.1  # the shortest ttl there is: long enough for a test that wants it to pass


on_every_store = pytest.mark.parametrize("store", ALL, indirect=True, scope="module")


@pytest.fixture(scope="module", params=FEW)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with opened(request.param, request) as store:
        yield store


class Work:
    """Counts how often it was done."""

    def __init__(self, result: Any = "done") -> None:
        self.times = 0
        self.result = result

    def __call__(self, run: Any) -> Any:
        self.times += 1
        return self.result


@on_every_store
def test_the_first_runs_and_all_others_get_its_result(store: Store) -> None:
    key, work = store.key(), Work({"receipt": 7, "lines": [1, None, "ü"]})
    results = [store.do(key, work), store.do(key, work), store.do(key, work, connection=store.other)]
    assert results == [work.result] * 3
    assert work.times == 1


@pytest.mark.parametrize("result", [None, False, 0, "", [], {"a": {}}, "x" * 100_000])
def test_any_plain_result_comes_back_as_it_was(store: Store, result: Any) -> None:
    key, work = store.key(), Work(result)
    assert [store.do(key, work) for _ in range(2)] == [result, result]
    assert work.times == 1


def test_all_get_the_same_even_if_json_changes_it(store: Store) -> None:
    key, work = store.key(), Work((1, 2))
    assert [store.do(key, work) for _ in range(2)] == [[1, 2], [1, 2]]


@on_every_store
def test_keys_are_told_apart_whatever_they_are_made_of(store: Store) -> None:
    base = store.key()
    keys = [base + more for more in ("", " ", "A", "a", "ä", "Ä", "'", '"', "%s", ":name", "\\", "{tag}", "💶", "\n")]
    assert [store.do(key, Work(number)) for number, key in enumerate(keys)] == list(range(len(keys)))
    assert [store.do(key, Work()) for key in keys] == list(range(len(keys)))


@on_every_store
def test_an_error_gives_the_key_free_again(store: Store) -> None:
    key = store.key()

    def fail(run: Any) -> None:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            store.do(key, fail)
    assert store.do(key, Work("at last"), timeout=0) == "at last"


@on_every_store
def test_whoever_comes_while_it_runs_is_told_or_waits(store: Store) -> None:
    if "sqlite" in store.name:
        pytest.skip("atomic on SQLite keeps all other writers out, see below")
    key = store.key()

    async def work(run: Any) -> str:
        with pytest.raises(InFlight, match="at work under the key") as caught:
            await store.once(store.keys(store.other, timeout=0), key, Work())
        assert 0 < caught.value.left <= 30
        with pytest.raises(InFlight):
            await store.once(store.keys(store.other, timeout=0.05), key, Work())
        return "mine"

    # The inner call stands for another process: it must not be taken for a recursion.
    assert store.do(key, lambda run: as_another(work(run))) == "mine"


@on_every_store
def test_whoever_comes_while_it_runs_without_a_transaction_is_told(store: Store) -> None:
    key = store.key()

    async def work(run: Any) -> str:
        with pytest.raises(InFlight):
            await store.once(store.keys(store.other, timeout=0), key, Work())
        return "mine"

    assert store.do(key, lambda run: as_another(work(run)), atomic=False) == "mine"


@on_every_store
def test_a_dead_run_is_taken_over_after_its_ttl_and_its_late_result_is_refused(store: Store) -> None:
    key, successor = store.key(), Work("of the successor")

    async def slow(run: Any) -> str:
        # Waits for the claim of the dead one to run out, by the store's clock.
        assert await store.once(store.keys(store.other), key, successor) == "of the successor"
        return "too late"

    with pytest.raises(StaleToken, match="taken over") as caught:
        store.do(key, lambda run: as_another(slow(run)), ttl=SHORT, atomic=False)
    assert caught.value.seen > caught.value.presented
    assert store.do(key, Work("again")) == "of the successor"
    assert successor.times == 1


@on_every_store
def test_a_late_failure_does_not_free_the_key_of_the_successor(store: Store) -> None:
    key = store.key()

    async def slow(run: Any) -> None:
        await store.once(store.keys(store.other), key, Work("of the successor"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.do(key, lambda run: as_another(slow(run)), ttl=SHORT, atomic=False)
    assert store.do(key, Work("again")) == "of the successor"


def test_a_result_is_forgotten_after_its_time(store: Store) -> None:
    key, work = store.key(), Work()
    store.do(key, work, keep=0.001)
    deadline = time.monotonic() + 30
    while work.times == 1:
        assert time.monotonic() < deadline, "it is still remembered"
        with contextlib.suppress(KeyReused):
            store.do(key, work, payload="another payload, since the first is forgotten too")
    assert work.times == 2


def test_another_payload_under_the_same_key_is_refused(store: Store) -> None:
    key, work = store.key(), Work()
    store.do(key, work, payload={"amount": 1, "to": "bob"})
    store.do(key, work, payload={"to": "bob", "amount": 1})
    others: list[object] = [{"amount": 2, "to": "bob"}, None, b"{}", []]
    for other in others:
        with pytest.raises(KeyReused, match="another payload"):
            store.do(key, work, payload=other)
    assert work.times == 1
    with pytest.raises(Misuse, match="plain data"):
        store.do(key, work, payload=object())


def test_what_a_dead_run_has_begun_another_payload_does_not_finish(store: Store) -> None:
    key = store.key()

    async def slow(run: Any) -> str:
        keys = store.keys(store.other)
        with pytest.raises(KeyReused):
            await store.once(keys, key, Work(), payload="b")
        await store.once(keys, key, Work("of the successor"), payload="a")
        with pytest.raises(KeyReused):
            await store.once(keys, key, Work(), payload="b")
        return "too late"

    with pytest.raises(StaleToken):
        store.run(store.once(store.keys(ttl=SHORT, atomic=False), key, lambda run: as_another(slow(run)), payload="a"))


def test_work_that_asks_for_its_own_key_is_refused(store: Store) -> None:
    key = store.key()

    async def recurse(run: Any) -> Any:
        return await store.once(store.keys(store.other), key, Work())

    with pytest.raises(Misuse, match="wait for itself"):
        store.do(key, recurse)
    assert store.do(key, Work("after all"), timeout=0) == "after all"


@pytest.mark.parametrize("bad", [object(), {1, 2}, float("nan"), b"bytes", "x" * 2000, {"k": object()}])
def test_a_result_that_cannot_be_kept_is_told_and_the_work_is_not_done_twice(store: Store, bad: Any) -> None:
    key, work = store.key(), Work(bad)
    with pytest.raises(Unstorable) as caught:
        store.do(key, work, limit=1000, atomic=False)
    assert caught.value.result is bad, "nothing is lost"
    with pytest.raises(Unstorable, match="was done, and is not done again"):
        store.do(key, work, limit=1000, atomic=False)
    assert work.times == 1


def test_a_codec_of_ones_own(store: Store) -> None:
    class Reversed:
        def dumps(self, result: str) -> bytes:
            return result.encode()[::-1]

        def loads(self, kept: bytes) -> str:
            return kept[::-1].decode()

    class Broken(Reversed):
        def dumps(self, result: str) -> bytes:
            return 7  # type: ignore[return-value]

    key = store.key()
    assert [store.do(key, Work("\x00 abc"), codec=Reversed()) for _ in range(2)] == ["\x00 abc"] * 2
    with pytest.raises(Unstorable, match="str or bytes"):
        store.do(store.key(), Work("abc"), codec=Broken())


@on_every_store
def test_bytes_of_all_kinds_are_kept_whole(store: Store) -> None:
    from holdfast.lockfree.idempotency.codec import RAW

    key, everything = store.key(), bytes(range(256)) * 3
    assert [store.do(key, Work(everything), codec=RAW) for _ in range(2)] == [everything] * 2
    assert [store.do(f"{key} empty", Work(b""), codec=RAW) for _ in range(2)] == [b"", b""]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0},
        {"ttl": "1"},
        {"keep": 0},
        {"keep": float("inf")},
        {"timeout": -1},
        {"limit": 0},
        {"limit": 1.5},
        {"codec": object()},
    ],
)
def test_rules_that_cannot_be_are_refused_at_once(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        store.keys(**wrong)


@pytest.mark.parametrize("key", ["", "x" * 513, 7, None, "a\0b", "\ud800"])
def test_a_key_that_cannot_be_one_is_refused_at_once(store: Store, key: Any) -> None:
    with pytest.raises(Misuse, match="idempotency key"):
        store.keys().once(key)


@on_every_store
def test_a_connection_of_the_other_world_is_told_where_to_go(store: Store) -> None:
    surface: Any = idempotency if store.database.asynchronous else aio
    with pytest.raises(Misuse, match=r"holdfast\.lockfree\.idempotency"):
        surface.Keys(store.mine)


async def as_another(coroutine: Any) -> Any:
    """As if in another process: a fresh context knows of no run."""
    from holdfast.lockfree.idempotency.core import _running

    token = _running.set(frozenset())
    try:
        return await coroutine
    finally:
        _running.reset(token)


@on_every_store
def test_a_claim_that_comes_second_gets_nothing_even_if_it_did_not_look(store: Store) -> None:
    from holdfast.drivers.threads import Threads
    from holdfast.lockfree.idempotency.opening import ledger_for

    key = store.key()

    async def work() -> None:
        mine = ledger_for(Threads(), store.database.driver.world, store.mine)
        other = ledger_for(Threads(), store.database.driver.world, store.other)
        first = await mine.claim(key, None, "a" * 32, 30, 30)
        second = await other.claim(key, None, "b" * 32, 30, 30)
        again = await mine.claim(key, None, "a" * 32, 30, 30)
        assert [one.runner for one in (first, second, again)] == ["a" * 32] * 3
        assert first.token == second.token == again.token, "a claim that is repeated is the same claim"
        assert not await other.finish(key, first._replace(token=first.token - 1), b"1", None, 30)
        assert await mine.finish(key, first, b"1", None, 30)
        assert (await other.claim(key, None, "b" * 32, 30, 30)).result == b"1"

    store.run(work())
