"""What answers as ZooKeeper lets us in, and then says what was not asked for."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from holdfast import Unavailable
from holdfast.drivers.base import finish
from holdfast.stores.zookeeper.looking import Looking
from holdfast.stores.zookeeper.url import parse
from holdfast.stores.zookeeper.wire import Client

from .rogue import WORLDS, Answer, rogue

PING, AUTH = -2, -4


def said(xid: int) -> bytes:
    return struct.pack(">iiqi", 16, xid, 1, 0)


LONG_WORD = struct.pack(">i", 1 << 25)


def lets_in(first: bytes, more: bytes, pause: float = 0.0) -> Answer:
    def converse(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(struct.pack(">iiiqi", 36, 0, 10_000, 77, 16) + bytes(16) + first)
        while True:
            line.sendall(more)
            time.sleep(pause)

    return converse


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("xid", [PING, AUTH])
def test_what_nobody_asked_for_is_no_answer_to_what_was_asked(xid: int, world: str) -> None:
    with rogue(lets_in(b"", said(xid) * 100, 0.001), speaks_first=True) as address:
        error = WORLDS[world](f"zookeeper://{address}/x?timeout=0.5")
    assert isinstance(error, Unavailable), repr(error)


@pytest.mark.parametrize(("first", "more", "pause"), [(b"", said(PING) * 100, 0.0), (LONG_WORD, b"\0", 0.02)])
def test_who_talks_on_does_not_keep_our_thread_after_the_end(first: bytes, more: bytes, pause: float) -> None:
    there = threading.Event()
    with rogue(lets_in(first, more, pause), speaks_first=True) as address:
        client = Client(parse(f"zookeeper://{address}"), 1.0, lambda *_: there.set())
        client.start_async()
        assert there.wait(10)
        ending = threading.Thread(target=lambda: client.end(keep=False), daemon=True)
        ending.start()
        ending.join(15)
        assert not ending.is_alive()
        assert client._connection.connection_stopped.is_set()


def many_names() -> None:
    """Each answer comes just in time."""
    passed = itertools.count(0, 3)
    asked: list[int] = []

    async def ask(requests: Sequence[object], *_: object) -> list[object]:
        if len(requests) == 2 and not asked:  # the barrier, and who is there
            asked.append(0)
            return [None, [f"n{number}" for number in range(100_000)]]
        asked.append(len(requests))
        return [SimpleNamespace(numChildren=1)] * len(requests)

    async def any_session(_: float) -> object:
        return SimpleNamespace(ask=ask, barrier=None)

    driver = SimpleNamespace(now=lambda: float(next(passed)))
    target = SimpleNamespace(root="/r", timeout=3.0, shown=lambda: "here")
    looking = Looking(target, driver, SimpleNamespace(any=any_session), str)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="too many names"):
        finish(looking.names(""))
    assert len(asked) < 60


def test_a_walk_through_names_ends_in_time_though_each_answer_does() -> None:
    many_names()


def test_who_greets_a_letter_at_a_time_does_not_keep_us_from_the_other_hosts() -> None:
    """kazoo waits for each letter anew."""
    came, there = threading.Event(), threading.Event()

    def dribble(line: socket.socket) -> None:
        came.set()
        for letter in struct.pack(">i", 1 << 16) + bytes(1 << 16):
            line.sendall(bytes([letter]))
            time.sleep(0.05)

    with rogue(dribble) as slow, rogue(lets_in(b"", said(PING), 0.5), speaks_first=True) as other:
        client = Client(parse(f"zookeeper://{slow},{other}/x?timeout=0.5"), 2.0, lambda *_: there.set())
        client.randomize_hosts = False  # the slow one first
        client.start_async()
        try:
            assert came.wait(10)
            assert there.wait(10)
        finally:
            client.end(keep=True)
