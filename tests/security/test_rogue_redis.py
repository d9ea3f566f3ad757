"""What answers in the place of Redis may say anything: it costs bounded time and memory, and is Unavailable."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import socket
import time
from collections.abc import Callable

import pytest

import holdfast
import holdfast.aio
from holdfast import HoldfastError, Misuse, NotAcquired, Unavailable
from holdfast.drivers.base import finish
from holdfast.stores.redis import scanning
from holdfast.stores.redis.replies import Bounds, ProtocolError
from holdfast.stores.redis.url import parse
from holdfast.stores.redis.wire import BlockingWire
from holdfast.stores.redis.wire_aio import AioWire

from ..properties import examples, given, st
from .rogue import WORLDS, Answer, rogue


def endless(line: socket.socket) -> None:
    line.sendall(b"$2000000000\r\n")
    while True:
        line.sendall(b"x" * 65536)


def endless_lists(line: socket.socket) -> None:
    line.sendall(b"*2000000000\r\n")
    while True:
        line.sendall(b":1\r\n" * 65536)


BOMBS: dict[str, Answer] = {
    "a text without an end": endless,
    "a list that no memory holds": lambda line: line.sendall(b"*2147483647\r\n"),
    "a list without an end": endless_lists,
    "lists in lists": lambda line: line.sendall(b"*1\r\n" * 100_000),
    "another protocol": lambda line: line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a number that is none": lambda line: line.sendall(b":abc\r\n"),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_unavailable_soon_and_costs_little(bomb: str, world: str) -> None:
    with rogue(BOMBS[bomb]) as address:
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        error = WORLDS[world](f"redis://{address}?timeout=1")
        assert time.monotonic() - started < 10
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 200  # MB
    assert isinstance(error, Unavailable)
    assert "127.0.0.1:" in str(error)


def test_a_walk_through_names_that_goes_round_in_circles_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = (b"*2\r\n$%d\r\n%d\r\n*0\r\n" % (len(b"%d" % number), number) for number in itertools.count(1))
    for answer, limit in (lambda _: next(scanned), 0.2), (lambda _: b"*2\r\n$1\r\n7\r\n*0\r\n", 60.0):
        monkeypatch.setattr(scanning, "LONGEST", limit)

        def converse(line: socket.socket, answer: Callable[[object], bytes] = answer) -> None:
            line.sendall(b"+PONG\r\n")
            while line.recv(65536):
                line.sendall(answer(None))

        with rogue(converse) as address, holdfast.connect(f"redis://{address}?timeout=1") as locks:
            started = time.monotonic()
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:"):
                locks.names()
            assert time.monotonic() - started < 10


def test_answers_are_short_but_those_to_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of many waiters, say. What others ask for on the same connection keeps its bound."""
    long = b"$2000000\r\n" + b"x" * 2_000_000 + b"\r\n"

    def converse(line: socket.socket) -> None:
        line.sendall(b"+PONG\r\n")
        while told := line.recv(65536):
            line.sendall(long * max(1, told.count(b"*")))

    async def ask(wire: BlockingWire | AioWire) -> None:
        assert [len(reply) for reply in await wire.ask_all([b"*1\r\n$4\r\nLOOK\r\n"], 3.0)] == [2_000_000]
        with pytest.raises(Unavailable, match="more than 1048576 bytes"):
            await wire.ask(b"*1\r\n$3\r\nASK\r\n", 1.0)
        await wire.close()

    async def in_a_loop(url: str) -> None:
        await ask(AioWire(parse(url)))

    with rogue(converse) as address:
        url = f"redis://{address}?timeout=1"
        finish(ask(BlockingWire(parse(url))))
        asyncio.run(in_a_loop(url))


def test_a_reply_has_a_bound_and_the_next_one_has_it_anew() -> None:
    bounds = Bounds()
    bounds.check(b"x" * 90, 100)
    bounds.whole()
    bounds.check(b"x" * 90, 100)
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        bounds.check(b"x" * 20, 100)


@pytest.mark.parametrize("at", range(12))
def test_a_long_list_is_seen_in_whatever_pieces_it_is_told(at: int) -> None:
    told, bounds = b":1\r\n*10000000\r\n", Bounds()
    with pytest.raises(ProtocolError, match="million"):
        for piece in (told[:at], told[at:]):
            bounds.check(piece)
    Bounds().check(b"*999999\r\n")


REPLIES = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
        st.binary(max_size=40).map(lambda text: b"$%d\r\n%b\r\n" % (len(text), text)),
        st.sampled_from(
            [b"+OK\r\n", b"$-1\r\n", b"*-1\r\n", b"-ERR no\r\n", b"-NOSCRIPT no\r\n", b":1\r\n", b"*0\r\n"]
        ),
        st.binary(min_size=1, max_size=30),
    ),
    lambda inner: st.lists(inner, max_size=4).map(lambda parts: b"*%d\r\n" % len(parts) + b"".join(parts)),
    max_leaves=6,
)


def _claim(locks: holdfast.Locks) -> None:
    with contextlib.suppress(NotAcquired):
        locks.lock("x").acquire(timeout=0)


ASKED: dict[str, Callable[[holdfast.Locks], object]] = {
    "claim": _claim,
    "inspect": lambda locks: locks.inspect("x"),
    "evict": lambda locks: locks.force_release("x", token=5),
}


@pytest.mark.filterwarnings("ignore")
@examples(25)
@given(reply=REPLIES, asked=st.sampled_from(sorted(ASKED)))
def test_whatever_is_answered_nothing_but_our_own_errors_is_raised(reply: bytes, asked: str) -> None:
    """A first answer, to the greeting, that is in order; then this one, to everything."""

    def answer(line: socket.socket) -> None:
        line.sendall(reply)

    greeted: set[int] = set()

    def polite(line: socket.socket) -> None:
        if line.fileno() in greeted:
            answer(line)
        else:
            greeted.add(line.fileno())
            line.sendall(b"+PONG\r\n" + reply)

    with rogue(polite) as address:
        locks = holdfast.connect(f"redis://{address}?timeout=0.05")
        with contextlib.suppress(Unavailable, Misuse):
            ASKED[asked](locks)
        with contextlib.suppress(HoldfastError):
            locks.close(timeout=0)
