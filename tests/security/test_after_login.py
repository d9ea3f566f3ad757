"""What answers as PostgreSQL or MySQL lets us in, and then says anything: Unavailable, in bounded time and memory.

`make soak` has the long form.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import time
from collections.abc import Callable, Sequence

import pytest

import holdfast
import holdfast.aio
from holdfast import HoldfastError, Unavailable
from holdfast.stores.mysql.connection_aio import check_description

from ..properties import examples, given, st
from .rogue import WORLDS, Answer, rogue

URLS = {
    "postgresql": "postgresql://me:pw@{}/db?timeout=0.2&sslmode=disable&gssencmode=disable",
    "mysql": "mysql://me:pw@{}/db?timeout=0.2",
}
FILE = b"/proc/self/status"


def said(kind: bytes, body: bytes) -> bytes:
    """A message of PostgreSQL's."""
    return kind + struct.pack(">I", len(body) + 4) + body


READY = said(b"Z", b"I")
SET = said(b"C", b"SET\0") + READY
COPY = struct.pack(">BH", 0, 0)
HELLO = (
    said(b"R", bytes(4)) + said(b"S", b"server_version\x0016\0") + said(b"K", struct.pack(">II", 1, 1)) + READY
)  # come in


def packets(*bodies: bytes, first: int = 1) -> bytes:
    """Of MySQL."""
    return b"".join(
        struct.pack("<I", len(body))[:3] + bytes([first + number]) + body for number, body in enumerate(bodies)
    )


FINE = b"\0\0\0\2\0\0\0"
KNOWS = 0x008AF7DF & ~0x0800  # all but TLS
GREETING = (
    b"\x0a8.0\0" + struct.pack("<I", 7) + b"abcdefgh\0" + struct.pack("<HBHH", KNOWS & 0xFFFF, 45, 2, KNOWS >> 16)
) + (b"\x15" + bytes(10) + b"ijklmnopqrst\0mysql_native_password\0")


def postgresql(heard: list[bytes], polite: int, answers: Sequence[bytes]) -> Answer:
    def converse(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(HELLO)
        _answer(line, heard, [SET] * polite, answers)

    return converse


def mysql(heard: list[bytes], polite: int, answers: Sequence[bytes]) -> Answer:
    def converse(line: socket.socket) -> None:
        line.sendall(packets(GREETING, first=0))
        line.recv(65536)
        line.sendall(packets(FINE, first=2))
        _answer(line, heard, [packets(FINE)] * polite, answers)

    return converse


def _answer(line: socket.socket, heard: list[bytes], first: Sequence[bytes], then: Sequence[bytes]) -> None:
    """The last one again and again."""
    number = 0
    every = [*first, *then]
    while told := line.recv(65536):
        heard.append(told)
        line.sendall(every[min(number, len(every) - 1)])
        number += 1


SERVERS: dict[str, Callable[[list[bytes], int, Sequence[bytes]], Answer]] = {"postgresql": postgresql, "mysql": mysql}
TRICKS = {
    "a table to copy from us": ("postgresql", said(b"G", COPY)),
    "a table to copy to us": ("postgresql", said(b"H", COPY)),
    "a table to copy both ways": ("postgresql", said(b"W", COPY)),
    "a file of ours is wanted": ("mysql", packets(b"\xfb" + FILE)),
    "a column with a name of 3 GB": (
        "mysql",
        packets(b"\1", b"\xfe" + struct.pack("<Q", 3 << 30) + bytes(20), b"\xfe\0\0\2\0"),
    ),
    "answers without an end": ("mysql", packets(*[b"\0\0\0\x0a\0\0\0"] * 200)),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("polite", [0, 1])
@pytest.mark.parametrize("trick", TRICKS)
def test_whoever_lets_us_in_gets_nothing_more_and_costs_little(trick: str, polite: int, world: str) -> None:
    kind, answer = TRICKS[trick]
    heard: list[bytes] = []
    with rogue(SERVERS[kind](heard, polite, [answer]), speaks_first=True) as address:
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        error = WORLDS[world](URLS[kind].format(address))
        assert time.monotonic() - started < 10
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 100  # MB
    assert isinstance(error, Unavailable), repr(error)
    assert address in str(error)
    assert heard, "it was not asked at all"
    assert not any(b"VmPeak" in one for one in heard)


LONG = (b"\xfc\x06\0column", b"\xfd\x06\0\0column", b"\xfe\x06\0\0\0\0\0\0\0column")


@pytest.mark.parametrize("one", [b"\0", b"\xfb", b"\6column", *LONG])
def test_a_column_is_described_within_its_packet(one: bytes) -> None:
    """asyncmy does not look: it copies whatever is in memory behind it, or the process ends."""
    whole = one * 6 + bytes(13)
    check_description(whole)
    for length in range(len(whole)):
        with pytest.raises((ValueError, IndexError)):
            check_description(whole[:length])
    for said_length in (b"\xfc\xff\xff", b"\xfd\xff\xff\xff", b"\xfe" + b"\xff" * 8, b"\xfa"):
        with pytest.raises((ValueError, IndexError)):
            check_description(one * 5 + said_length + bytes(40))


noise = st.binary(max_size=20)
of_postgresql = st.one_of(
    st.sampled_from([READY, said(b"Z", b"T"), said(b"C", b"SELECT 1\0"), said(b"I", b""), said(b"s", b"")]),
    st.sampled_from([said(kind, COPY) for kind in (b"G", b"H", b"W")]),
    st.sampled_from([b"57P01", b"42501", b"57014", b""]).map(
        lambda code: said(b"E", b"SERROR\0C" + code + b"\0Mx\0\0")
    ),
    st.sampled_from([(20, 1), (25, 0), (17, 7)]).map(
        lambda one: said(b"T", b"\0\1a\0" + struct.pack(">IHIhih", 0, 0, one[0], -1, -1, one[1]))
    ),
    noise.map(lambda value: said(b"D", struct.pack(">HI", 1, len(value)) + value)),
    noise.map(lambda word: said(b"A", struct.pack(">I", 1) + word.replace(b"\0", b"") + b"\0x\0")),
    st.builds(said, st.binary(min_size=1, max_size=1), noise),
)
COLUMN = b"\3def\0\0\0\1a\1a\x0c" + struct.pack("<HIBHB", 63, 100, 253, 0, 0) + b"\0\0"
END = b"\xfe\0\0\2\0"
of_mysql = st.one_of(
    st.lists(noise, min_size=1, max_size=4),
    st.sampled_from([b"\0", b"\xff", b"\xfe", b"\xfb", b"\xfc\xff", b"\1"]).flatmap(
        lambda first: noise.map(lambda rest: [first + rest])
    ),
    noise.map(lambda value: [b"\1", COLUMN, END, bytes([len(value)]) + value, END]),
    st.integers(1, len(COLUMN)).map(lambda length: [b"\1", COLUMN[:length], END]),
    st.lists(st.just(b"\0\0\0\x0a\0\0\0"), min_size=1, max_size=5),
).map(lambda bodies: packets(*bodies))
SPOKEN = {"postgresql": st.lists(of_postgresql, min_size=1, max_size=4).map(b"".join), "mysql": of_mysql}


def looked(url: str, asked: int) -> None:
    locks = holdfast.connect(url)
    try:
        (lambda: locks.inspect("x"), locks.names, lambda: locks.force_release("x", token=5))[asked]()
    except HoldfastError:
        pass
    finally:
        locks.close(timeout=0)


async def looked_a(url: str, asked: int) -> None:
    locks = holdfast.aio.connect(url)
    try:
        await (lambda: locks.inspect("x"), locks.names, lambda: locks.force_release("x", token=5))[asked]()
    except HoldfastError:
        pass
    finally:
        await locks.close(timeout=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SERVERS)
@examples(15)
@given(data=st.data())
def test_whatever_is_said_after_the_login_is_an_error_of_ours_in_time(kind: str, data: st.DataObject) -> None:
    answers = data.draw(st.lists(SPOKEN[kind], min_size=1, max_size=3))
    polite, asked = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 2))
    with rogue(SERVERS[kind]([], polite, answers), speaks_first=True) as address:
        started = time.monotonic()
        url = URLS[kind].format(address)
        looked(url, asked)
        asyncio.run(looked_a(url, asked))
        assert time.monotonic() - started < 10
