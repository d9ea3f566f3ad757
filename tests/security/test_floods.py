"""What answers as PostgreSQL, or as etcd, talks without an end: it is cut off all the same, and not all of it is kept."""

from __future__ import annotations

import asyncio
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from psycopg import pq

import holdfast
from holdfast import Unavailable
from holdfast.drivers.base import boot_time
from holdfast.stores.etcd.channel import END_HEADERS, HEADERS, SETTINGS, Channel, frame
from holdfast.stores.etcd.headers import KNOWN_AT_MOST
from holdfast.stores.postgresql.connection import FEW, BlockingConnection, Broken
from holdfast.stores.postgresql.lane import Lane
from holdfast.stores.postgresql.url import parse

from .rogue import WORLDS, rogue
from .test_after_login import HELLO, URLS, said

ROW = said(b"D", struct.pack(">HI", 1, 8) + bytes(8))
FLOODS = {
    "notices": said(b"N", b"SNOTICE\0C00000\0Mx\0\0"),
    "settings": said(b"S", b"abc\0def\0"),
    "bells": said(b"A", struct.pack(">I", 1) + b"channel\0x\0"),
    "answers": said(b"C", b"SELECT 1\0"),
    "rows": ROW,
}
TABLE = said(b"T", b"\0\1a\0" + struct.pack(">IHIhih", 0, 0, 20, -1, -1, 1))


class Flood:
    """Lets somebody in, or does not come to an end of that; then it talks until it is cut off."""

    def __init__(self, what: str, *, at_login: bool = False) -> None:
        self.what, self.at_login = FLOODS[what], at_login
        self.first = TABLE if what == "rows" else b""
        self.cut = threading.Event()

    def __call__(self, line: socket.socket) -> None:
        line.recv(65536)
        if self.at_login:
            line.sendall(HELLO[:9])
        else:
            line.sendall(HELLO)
            line.recv(65536)
        try:
            line.sendall(self.first)
            while True:
                line.sendall(self.what * 1000)
        except OSError:
            self.cut.set()


@pytest.fixture
def costs() -> Iterator[None]:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    yield
    assert time.monotonic() - started < 15
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 400  # MB


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("at_login", [False, True])
@pytest.mark.parametrize("what", FLOODS)
def test_who_talks_without_an_end_is_cut_off_in_time(what: str, at_login: bool, world: str) -> None:
    flood = Flood(what, at_login=at_login)
    with rogue(flood, speaks_first=True) as address:
        assert isinstance(WORLDS[world](URLS["postgresql"].format(address)), Unavailable)
        assert flood.cut.wait(10)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize("whose", ["advisory", "shedlock"])
@pytest.mark.parametrize("what", ["notices", "bells", "answers"])
def test_the_thread_that_asks_for_the_old_lock_comes_back_too(what: str, whose: str) -> None:
    flood = Flood(what)
    with rogue(flood, speaks_first=True) as address:
        also = f"{whose}+postgresql://me:pw@{address}/db?sslmode=disable&gssencmode=disable"
        locks = holdfast.connect("memory://", also=also)
        with pytest.raises(Unavailable):
            locks.lock("42").acquire(timeout=0)
        assert flood.cut.wait(20)
        locks.close(timeout=0)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("what", [b"+OK\r\n", b"$-1\r\n", b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"])
def test_a_redis_that_answers_without_being_asked_is_no_redis(what: bytes, world: str) -> None:
    cut = threading.Event()

    def answers(line: socket.socket) -> None:
        line.recv(65536)
        try:
            while True:
                line.sendall(what * 1000)
        except OSError:
            cut.set()

    with rogue(answers, speaks_first=True) as address:
        started = time.monotonic()
        assert isinstance(WORLDS[world](f"redis://:pw@{address}?timeout=0.5"), holdfast.HoldfastError)
        assert time.monotonic() - started < 5
        assert cut.wait(10)


def test_what_a_redis_says_beyond_the_login_is_not_passed_over() -> None:
    """Here a thread went on reading for as long as there was more, whatever the time."""

    def says_more(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(b"+OK\r\n" * 10)

    with rogue(says_more, speaks_first=True) as address:
        assert "what nobody has asked" in str(WORLDS["threads"](f"redis://:pw@{address}?timeout=0.5"))


def connected(address: str, kind: type[BlockingConnection] | type[Lane]) -> BlockingConnection | Lane:
    connection = kind.begin(parse(URLS["postgresql"].format(address)))
    while (what := connection.step()) is not None:
        poll = select.poll()
        poll.register(connection.fileno(), what)
        assert poll.poll(10_000)
    connection.start()
    return connection


def test_a_conversation_ends_at_its_deadline_whatever_is_said_meanwhile() -> None:
    with rogue(Flood("notices"), speaks_first=True) as address:
        connection = connected(address, BlockingConnection)
        assert isinstance(connection, BlockingConnection)
        told: list[BaseException] = []

        def ask() -> None:
            try:
                connection._converse(boot_time() + 0.1, connection.say, "SELECT 1")
            except Unavailable as error:
                told.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(5)
        in_time = not asking.is_alive()
        connection.hang_up()
        asking.join(10)
        connection.close()
    assert in_time
    assert "did not answer within" in str(told[0])


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize("what", ["rows", "notices", "bells"])
def test_who_waits_in_line_without_a_deadline_does_not_read_for_ever(what: str) -> None:
    """As of a session lock, in threads."""
    with rogue(Flood(what), speaks_first=True) as address:
        connection = connected(address, BlockingConnection)
        assert isinstance(connection, BlockingConnection)
        connection.most_pieces = FEW
        connection.say("SELECT pg_advisory_lock(1)")
        found: list[pq.abc.PGresult] = []
        with pytest.raises(Broken, match="without an end"):
            for _ in range(5 * FEW):
                assert connection.is_ready(select.POLLIN, boot_time() + 10)
                connection.rows(found, take=True)
        connection.close()


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("costs")
@pytest.mark.parametrize("what", ["notices", "bells"])
def test_what_nobody_asked_for_is_not_read_for_ever_by_an_idle_connection(what: str) -> None:
    def talks(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(HELLO)
        while True:
            line.sendall(FLOODS[what] * 1000)

    async def main(address: str) -> None:
        lane = connected(address, Lane)
        assert isinstance(lane, Lane)
        async with asyncio.timeout(20):
            while lane.open:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.01)

    with rogue(talks, speaks_first=True) as address:
        asyncio.run(main(address))


def test_who_listens_loses_no_bell_while_an_answer_is_on_its_way() -> None:
    """What is heard between a question and its answer is kept for who listens, and for nobody else."""

    def rings(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(HELLO)
        line.recv(65536)
        line.sendall(FLOODS["bells"])

    with rogue(rings, speaks_first=True) as address:
        for listens in (True, False):
            connection = connected(address, BlockingConnection)
            assert isinstance(connection, BlockingConnection)
            connection.listens = listens
            connection.say("")
            assert connection.is_ready(select.POLLIN, boot_time() + 10)
            assert connection.rows([], take=True) is None
            assert len(connection.bells()) == listens
            connection.close()


def test_headers_that_are_never_the_same_are_not_all_remembered() -> None:
    """Of etcd: on a connection that listens for as long as the process lives."""
    channel = Channel("x", tls=False)
    number = channel.call(b"/etcdserverpb.Watch/Watch", b"", (), end=False)
    channel.feed(frame(SETTINGS, 0, 0))
    for one in range(10 * KNOWN_AT_MOST):  # in the numbers of HTTP/2's own table
        channel.feed(
            frame(
                HEADERS, END_HEADERS, number, bytes((0xA0, 0xA0 + one % 16, 0xA0 + one // 16 % 16)) * (1 + one // 256)
            )
        )
        assert len(channel._reader.known) <= KNOWN_AT_MOST
