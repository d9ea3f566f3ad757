"""What answers as ZooKeeper lets us in, and then says what was not asked for."""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from holdfast import Unavailable
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
