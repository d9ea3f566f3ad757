"""Signatures and gates, without a server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.errors import Misuse, StaleToken, Unavailable
from holdfast.fenced.http import BadSignature, Signer
from holdfast.fenced.http.gate import AsyncGate, ThreadGate
from holdfast.fenced.mark import Mark

OLD, NEW = b"o" * 32, b"n" * 32


def test_keys_are_rotated_without_a_gap() -> None:
    mark = Mark("r", 1)
    before, during, after = Signer({"a": OLD}), Signer({"a": OLD, "b": NEW}), Signer({"b": NEW})
    during.verify(mark, before.sign(mark))
    during.verify(mark, during.sign(mark))
    after.verify(mark, during.sign(mark))
    assert Signer({"a": OLD, "b": NEW}, current="a").sign(mark).startswith("a;")
    with pytest.raises(BadSignature, match="known key"):
        after.verify(mark, before.sign(mark))


def test_a_signature_is_for_one_resource_one_token_and_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer({"a": OLD})
    good = signer.sign(("r", 1), ttl=60)
    signer.verify(Mark("r", 1), good)
    key, expiry, digest = good.split(";")
    bad = [
        (Mark("r", 2), good),
        (Mark("q", 1), good),
        (Mark("r", 1), f"{key};{int(expiry) + 1};{digest}"),
        (Mark("r", 1), f"b;{expiry};{digest}"),
        (Mark("r", 1), f"{key};{expiry};{digest[:-1]}{'0' if digest[-1] != '0' else '1'}"),
        (Mark("r", 1), ""),
        (Mark("r", 1), good + "\n"),
        (Mark("r", 1), good.upper()),
    ]
    for mark, signature in bad:
        with pytest.raises(BadSignature):
            signer.verify(mark, signature)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 62)
    with pytest.raises(BadSignature, match="out of date"):
        signer.verify(Mark("r", 1), good)


def test_an_unknown_key_is_not_the_key_of_zeros() -> None:
    forger = Signer({"x": bytes(32)})
    with pytest.raises(BadSignature):
        Signer({"a": OLD}).verify(Mark("r", 1), forger.sign(("r", 1)))


@pytest.mark.parametrize("keys", [{}, {"a": b"short"}, {"a;b": OLD}, {"": OLD}, {"a": "text" * 10}])
def test_keys_that_cannot_be_are_refused(keys: Any) -> None:
    with pytest.raises(Misuse):
        Signer(keys)


def test_a_signer_signs_with_a_key_it_has_and_for_a_time_that_ends() -> None:
    with pytest.raises(Misuse):
        Signer({"a": OLD}, current="b")
    for ttl in (0, -1, float("inf"), float("nan")):
        with pytest.raises(Misuse):
            Signer({"a": OLD}).sign(("r", 1), ttl)


# ---- gates


def test_requests_of_one_holder_are_served_at_once() -> None:
    gate = ThreadGate(patience=0.05)
    first, second = gate.acquire(Mark("r", 1)), gate.acquire(Mark("r", 1))
    with pytest.raises(Unavailable):
        gate.acquire(Mark("r", 2))
    first()
    first()  # closing twice is no second leaving
    with pytest.raises(Unavailable):
        gate.acquire(Mark("r", 2))
    second()
    gate.acquire(Mark("r", 2))()


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def work() -> None:
        gate = AsyncGate()
        assert gate.enter(Mark("r", 1))
        assert not gate.enter(Mark("r", 2))
        waiting = asyncio.ensure_future(gate.wait(Mark("r", 2)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.left(Mark("r", 1))
        assert gate.enter(Mark("r", 3))

    asyncio.run(work())


def test_an_overtaken_waiter_is_refused() -> None:
    async def work() -> None:
        gate = AsyncGate()
        gate.enter(Mark("r", 1))
        gate.enter(Mark("r", 2))
        waiting = asyncio.ensure_future(gate.wait(Mark("r", 2)))
        await asyncio.sleep(0)
        gate.enter(Mark("r", 3))
        gate.left(Mark("r", 1))
        with pytest.raises(StaleToken):
            await waiting

    asyncio.run(work())
