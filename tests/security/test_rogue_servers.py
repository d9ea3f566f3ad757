"""What answers in the place of a server may say anything, in both worlds: it costs bounded time and memory, and is Unavailable.

Redis has a file of its own.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from types import SimpleNamespace

import pytest
from kazoo.exceptions import ConnectionDropped

from holdfast import Unavailable
from holdfast.cli.fence import fence
from holdfast.cli.options import parse as words
from holdfast.stores.zookeeper.wire import MOST, Client

from .rogue import WORLDS, Answer, rogue

URLS = {
    "consul": "consul://{}?timeout=0.1",
    "etcd": "etcd://{}?timeout=0.1",
    "zookeeper": "zookeeper://{}?timeout=0.1",
    "postgresql": "postgresql://me:pw@{}/db?timeout=0.1",
    "mysql": "mysql://me:pw@{}/db?timeout=0.1",
}
NOISE = random.Random(7).randbytes(4096)


def endlessly(start: bytes, more: bytes = b"x" * 65536) -> Answer:
    def answer(line: socket.socket) -> None:
        line.sendall(start)
        while True:
            line.sendall(more)

    return answer


def once(said: bytes) -> Answer:
    return lambda line: line.sendall(said)


def hang_up(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
ANSWERS: dict[str, Answer] = {
    "noise": once(NOISE),
    "nothing but a goodbye": hang_up,
    "noise without an end": endlessly(NOISE),
}
BOMBS: dict[str, dict[str, Answer]] = {
    "consul": {
        "a header without an end": endlessly(b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 65530),
        "chunks without an end": endlessly(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", (b"400\r\n" + b"x" * 1024 + b"\r\n") * 64
        ),
        "lists in lists": once(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000),
    },
    "etcd": {
        "frames without an end": endlessly(SETTINGS, SETTINGS * 5000),
        "pings without an end": endlessly(SETTINGS, (b"\0\0\x08\x06\0\0\0\0\0" + b"p" * 8) * 3000),
        "a message of 4 GB": endlessly(SETTINGS + b"\0\0\5\0\0\0\0\0\1\0\xff\xff\xff\xff"),
    },
    "zookeeper": {
        "a reply of 2 GB": endlessly(struct.pack(">i", 2**31 - 1)),
        "a reply of less than nothing": once(struct.pack(">i", -5) + NOISE),
    },
    "postgresql": {
        "a login without an end": endlessly(b"R" + struct.pack(">i", 2**31 - 1)),
        "an error without an end": endlessly(b"E" + struct.pack(">i", 2**31 - 1)),
    },
    "mysql": {
        "a greeting of 16 MB after another": endlessly(b"\xff\xff\xff\0", b"\x0a" * 65536),
        "an empty greeting": once(b"\0\0\0\0"),
        "half a greeting": once(b"\x05\0\0\0\x0a8.0\0"),
    },
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("kind", "said"), [(kind, said) for kind in URLS for said in (*ANSWERS, *BOMBS[kind])])
def test_whatever_answers_is_unavailable_soon_and_costs_little(kind: str, said: str, world: str) -> None:
    answer = ANSWERS.get(said) or BOMBS[kind][said]
    with rogue(answer, speaks_first=kind == "mysql") as address:
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        error = WORLDS[world](URLS[kind].format(address))
        took = time.monotonic() - started
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # MB
    assert isinstance(error, Unavailable), repr(error)
    assert address in str(error), error
    assert "pw" not in str(error)
    assert took < 10
    assert grown < 200, f"{grown:.0f} MB"


def dribble(line: socket.socket) -> None:
    line.sendall(b"\xff\xff\xff\0")
    while True:
        line.sendall(b"\x0a")
        time.sleep(0.05)


# A greeting that never comes, that comes a letter at a time, or that is none.
GREETINGS: dict[str, Answer] = {
    "nothing": lambda line: None,
    "slowly": dribble,
    "half of one": BOMBS["mysql"]["half a greeting"],
}


def triggers(said: str) -> None:
    started = time.monotonic()
    with pytest.MonkeyPatch.context() as patched, rogue(GREETINGS[said], speaks_first=True) as address:
        patched.setattr("holdfast.cli.fence._LOGIN", 0.5)
        asked = ["fence", "install", "--table", "t", "--database", f"mysql://me:pw@{address}/db", "--apply"]
        with pytest.raises(Unavailable, match=address):
            fence(words(asked))
    assert time.monotonic() - started < 5


@pytest.mark.timeout(30)
@pytest.mark.parametrize("said", GREETINGS)
def test_who_answers_triggers_as_mysql_is_not_waited_for_for_ever(said: str) -> None:
    triggers(said)


@pytest.mark.parametrize("length", [-1, MOST + 1, 2**31 - 1])
def test_a_reply_of_zookeeper_that_no_lock_has_is_not_even_read(length: int) -> None:
    read: list[int] = []
    client = SimpleNamespace(_read_all=lambda length, timeout: read.append(length))
    with pytest.raises(ConnectionDropped, match="was announced"):
        Client._read_bounded(client, length, 1.0)  # type: ignore[arg-type]
    Client._read_bounded(client, MOST, 1.0)  # type: ignore[arg-type]
    assert read == [MOST]
