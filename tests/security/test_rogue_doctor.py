"""The doctor asks in ways of its own, too: whoever answers a letter at a time, or never, does not keep it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from holdfast import Unavailable
from holdfast.doctor.network import http_time
from holdfast.doctor.postgresql import PostgresWard
from holdfast.doctor.zookeeper import _word
from holdfast.stores.postgresql.url import parse as postgresql
from holdfast.stores.zookeeper.url import parse as zookeeper

from .rogue import Answer, rogue
from .test_after_login import HELLO


def saying(begins: bytes, letter: bytes, pause: float = 0.05) -> Answer:
    def answer(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(begins)
        ends = time.monotonic() + 4  # so that a test that fails comes to an end
        while time.monotonic() < ends:
            line.sendall(letter)
            time.sleep(pause)
        line.shutdown(socket.SHUT_RDWR)

    return answer


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


ASKED: dict[str, Callable[[str], object]] = {
    "the time, of etcd or Consul": lambda address: http_time(place(address), None, "/version", 0.5),
    "a word, of ZooKeeper": lambda address: _word(
        zookeeper(f"zookeeper://{address}?timeout=0.5"), place(address), b"srvr"
    ),
}
SAID: dict[str, Answer] = {
    "headers": saying(b"HTTP/1.1 200 OK\r\nServer: ", b"x"),
    "much": saying(b"", b"x: y\r\n" * 10_000, 0.0),
}


def kept(whom: str, said: str) -> None:
    with rogue(SAID[said], speaks_first=True) as address:
        began = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT011 - a TimeoutError, or what the other end makes of our hanging up
            ASKED[whom](address)
        assert time.monotonic() - began < 3


@pytest.mark.timeout(60)
@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("whom", ASKED)
def test_who_comes_to_no_end_is_not_listened_to_for_ever(whom: str, said: str) -> None:
    kept(whom, said)


def lets_in(line: socket.socket) -> None:
    line.recv(65536)
    line.sendall(HELLO)
    line.settimeout(8)
    while line.recv(65536):
        pass


def never_answered() -> None:
    with rogue(lets_in, speaks_first=True) as address:
        ward = PostgresWard(postgresql(f"postgresql://me:pw@{address}/db?sslmode=disable&gssencmode=disable&timeout=1"))
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no answer within"):
            ward.setting("fsync")
        assert time.monotonic() - began < 7
        ward.close()


@pytest.mark.timeout(60)
def test_a_postgresql_that_lets_the_doctor_in_and_says_nothing_is_not_waited_for() -> None:
    never_answered()


def test_the_time_is_that_of_the_answer() -> None:
    said = b"HTTP/1.1 500 No\r\nX: y\r\nDATE: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"

    def answer(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(said[:20])
        line.sendall(said[20:])

    with rogue(answer, speaks_first=True) as address:
        assert http_time(place(address), None, "/", 5.0) == 784111777
