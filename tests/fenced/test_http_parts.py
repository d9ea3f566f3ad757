"""Signatures and gates, without a server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.errors import Misuse, StaleToken, Unavailable
from holdfast.fenced.http import BadSignature, Signer, TooFar
from holdfast.fenced.http.gate import AsyncGate, ThreadGate
from holdfast.fenced.http.request import refuse_repeated
from holdfast.fenced.mark import Mark

OLD, NEW = b"o" * 32, b"n" * 32


def test_keys_are_rotated_without_a_gap() -> None:
    mark = Mark("r", 1)
    before, during, after = Signer({"a": OLD}), Signer({"a": OLD, "b": NEW}), Signer({"b": NEW})
    during.verify(mark, before.sign(mark, "PUT", "/x"), "PUT", "/x")
    during.verify(mark, during.sign(mark, "PUT", "/x"), "PUT", "/x")
    after.verify(mark, during.sign(mark, "PUT", "/x"), "PUT", "/x")
    assert Signer({"a": OLD, "b": NEW}, current="a").sign(mark, "PUT", "/x").startswith("a;")
    with pytest.raises(BadSignature, match="known key"):
        after.verify(mark, before.sign(mark, "PUT", "/x"), "PUT", "/x")


def test_a_signature_is_for_one_resource_one_token_and_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer({"a": OLD})
    good = signer.sign(("r", 1), "PUT", "/x", ttl=60)
    signer.verify(Mark("r", 1), good, "PUT", "/x")
    key, expiry, method, path, digest = good.split(";")
    bad = [
        (Mark("r", 2), good),
        (Mark("q", 1), good),
        (Mark("r", 1), f"{key};{int(expiry) + 1};{method};{path};{digest}"),
        (Mark("r", 1), f"b;{expiry};{method};{path};{digest}"),
        (Mark("r", 1), f"{key};{expiry};{method};{path};{digest[:-1]}{'0' if digest[-1] != '0' else '1'}"),
        (Mark("r", 1), f"{key};{expiry};*;{path};{digest}"),
        (Mark("r", 1), f"{key};{expiry};{method};*;{digest}"),
        (Mark("r", 1), ""),
        (Mark("r", 1), good + "\n"),
        (Mark("r", 1), good.upper()),
    ]
    for mark, signature in bad:
        with pytest.raises(BadSignature):
            signer.verify(mark, signature, "PUT", "/x")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 62)
    with pytest.raises(BadSignature, match="out of date"):
        signer.verify(Mark("r", 1), good, "PUT", "/x")


@pytest.mark.parametrize(
    ("signed", "asked", "good"),
    [
        (("PUT", "/invoices/42"), ("PUT", "/invoices/42"), True),
        (("put", "/invoices/42"), ("PUT", "/invoices/42"), True),
        (("PUT", "/invoices/42"), ("DELETE", "/invoices/42"), False),
        (("PUT", "/invoices/42"), ("PUT", "/invoices/4"), False),
        (("PUT", "/invoices/42"), ("PUT", "/invoices/42/"), False),
        (("PUT", "/invoices/42"), ("PUT", "/admin"), False),
        (("*", "/invoices/42"), ("DELETE", "/invoices/42"), True),
        (("PUT", "/invoices/*"), ("PUT", "/invoices/42"), True),
        (("PUT", "/invoices/*"), ("PUT", "/admin"), False),
        (("PUT", "/invoices/*"), ("PUT", "/invoices/../admin"), False),
        (("*", "*"), ("PUT", "/admin"), True),
        (("PUT", "/straße;1"), ("PUT", "/straße;1"), True),
        (("PUT", "/straße;1"), ("PUT", "/straße"), False),
        (("PUT", "/\ufffd"), ("PUT", "/\ufffd"), False),  # what was no UTF-8: /%ff or /%fe
        (("PUT", "/*"), ("PUT", "/\ufffd"), False),
        (("PUT", "/*"), ("PUT", f"/{chr(0xD800)}"), False),
        (("PUT", "/invoices/*"), ("PUT", "/invoices/%2E%2e/admin"), False),  # for whoever decodes once more
        (("PUT", "/invoices/*"), ("PUT", "/invoices/.%2e/admin"), False),
        (("PUT", "/invoices/*"), ("PUT", "/invoices/x%2F..%2f..%2fadmin"), False),
        (("PUT", "/invoices/*"), ("PUT", "/invoices/x\\..\\..\\admin"), False),  # where a backslash is a slash
        (("PUT", "/invoices/*"), ("PUT", "/invoices/x%5c..%5C..%5cadmin"), False),
        (("PUT", "/invoices/*"), ("PUT", "/invoices/x..y"), True),
    ],
)
def test_a_signature_is_for_one_method_and_path(signed: tuple[str, str], asked: tuple[str, str], good: bool) -> None:
    signer = Signer({"a": OLD})
    signature = signer.sign(("r", 1), *signed)
    if good:
        signer.verify(Mark("r", 1), signature, *asked)
        return
    with pytest.raises(BadSignature, match="another method or path"):
        signer.verify(Mark("r", 1), signature, *asked)


@pytest.mark.parametrize(("method", "path"), [("P T", "/"), ("", "/"), ("PUT", ""), ("PUT", "/" + "x" * 5000)])
def test_what_a_signature_cannot_be_for_is_refused(method: str, path: str) -> None:
    with pytest.raises(Misuse):
        Signer({"a": OLD}).sign(("r", 1), method, path)


def test_an_unknown_key_is_not_the_key_of_zeros() -> None:
    forger = Signer({"x": bytes(32)})
    with pytest.raises(BadSignature):
        Signer({"a": OLD}).verify(Mark("r", 1), forger.sign(("r", 1), "PUT", "/x"), "PUT", "/x")


@pytest.mark.parametrize("keys", [{}, {"a": b"short"}, {"a;b": OLD}, {"": OLD}, {"a": "text" * 10}])
def test_keys_that_cannot_be_are_refused(keys: Any) -> None:
    with pytest.raises(Misuse):
        Signer(keys)


def test_a_signer_signs_with_a_key_it_has_and_for_a_time_that_ends() -> None:
    with pytest.raises(Misuse):
        Signer({"a": OLD}, current="b")
    for ttl in (0, -1, float("inf"), float("nan")):
        with pytest.raises(Misuse):
            Signer({"a": OLD}).sign(("r", 1), "PUT", "/x", ttl)


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


def test_who_has_waited_in_vain_is_forgotten() -> None:
    """Also while the one before is being served, which may have no end."""

    async def main() -> None:
        gate = AsyncGate(patience=0.01)
        assert gate.enter(Mark("r", 1))
        for _ in range(5):
            assert not gate.enter(Mark("r", 2))
            with pytest.raises(Unavailable):
                await gate.wait(Mark("r", 2))
        assert not gate._waiting["r"]

    asyncio.run(main())


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


def test_many_headers_are_looked_at_in_one_pass() -> None:
    """A stranger sends as many as the server takes, and each of them would stop all other requests for longer."""
    compared = 0

    class Name(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return bytes.__eq__(self, other)

        __hash__ = bytes.__hash__

    names: list[bytes] = [Name(b"fencing-%d" % number) for number in range(300)]
    refuse_repeated(names)
    with pytest.raises(Misuse):
        refuse_repeated([*names, Name(b"fencing-7")])
    assert compared < 2 * len(names)


def test_marks_are_bounded_and_old_ones_make_room() -> None:
    gate = ThreadGate(most=10, keep=3600)
    for number in range(10):
        gate.acquire(Mark(f"n{number}", 1))()
    with pytest.raises(Unavailable, match="no room"):
        gate.acquire(Mark("one too many", 1))
    gate.acquire(Mark("n3", 2))()  # those that are known are served as ever
    assert len(gate._resources) == 10

    forgetful = ThreadGate(most=10, keep=0.0)
    held = forgetful.acquire(Mark("held", 7))
    for number in range(1000):
        forgetful.acquire(Mark(f"n{number}", 1))()
    assert len(forgetful._resources) == 10
    assert forgetful.seen("held") == 7, "what is being served must not be forgotten"
    held()


def test_a_token_that_nobody_signed_is_not_ahead_of_the_clock() -> None:
    gate = ThreadGate(max_jump=100)
    for token in (2**53 - 1, 2**62, int((time.time() + 2 * 86_400) * 1e6)):
        with pytest.raises(TooFar, match="clock"):
            gate.acquire(Mark("invoice", token), vouched=False)
        assert gate.seen("invoice") == 0
        assert not gate._resources, "who is refused takes no room"
    now = int(time.time() * 1e6)
    gate.acquire(Mark("invoice", now), vouched=False)()
    gate.acquire(Mark("signed", 2**62))()
    with pytest.raises(TooFar, match="more than 100 ahead"):
        gate.acquire(Mark("invoice", now + 101), vouched=False)
