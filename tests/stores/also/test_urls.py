"""What `also=` understands, and what it refuses."""

from __future__ import annotations

import socket
import struct
import threading
import traceback

import psycopg
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import holdfast
from holdfast.stores.also import nodes
from holdfast.stores.also.sql import open_database
from holdfast.testing import servers

from ...security.rogue import rogue as silent
from ...security.test_postgresql import rogue
from ...security.test_secrets import chain, everything_told


@pytest.mark.parametrize(
    ("also", "sign"),
    [
        ("redis-py+postgresql://localhost/x", "the locks of redis-py are at redis"),
        ("redis-py+redis://localhost?as=fixed", "write {name}"),
        ("advisory+postgresql://localhost/x?hash=md5", "there are hashtext"),
        ("kazoo+zookeeper://localhost?ca=x.pem", "zookeepers://"),
        ("shedlock+postgresql://localhost/x?schema=mine", "schema is an option of the store"),
        ("nonsense+redis://localhost", "no store is known"),
        ("redispy+redis://localhost", r"did you mean redis-py\+redis://…\?"),
        ("redis-py://localhost", r"did you mean redis-py\+redis://…\?"),
        ("shedlock://localhost", r"did you mean shedlock\+postgresql://…\?"),
        (7, "must be a str"),
    ],
)
def test_what_makes_no_sense_is_refused(also: str, sign: str) -> None:
    with pytest.raises(holdfast.Misuse, match=sign):
        holdfast.connect("memory://", also=also)


def test_a_name_that_is_no_id_is_refused_with_what_to_do() -> None:
    with holdfast.connect("memory://", also="advisory+postgresql://localhost/x") as locks:
        with pytest.raises(holdfast.Misuse, match="hash=hashtext"):
            locks.lock("report").acquire(timeout=0)
        assert not locks.names()


def test_what_the_old_lock_cannot_be_is_refused() -> None:
    locks = holdfast.connect("memory://", also="redis-py+redis://localhost")
    with locks, pytest.raises(holdfast.Unsupported, match="let in one at a time"):
        locks.semaphore("gpu", 4).acquire(timeout=0)


def test_another_store_of_ours_knows_every_kind() -> None:
    locks, old = holdfast.connect("memory://", also="memory://before"), holdfast.connect("memory://before")
    with locks, old, locks.semaphore("gpu", 4).acquire(units=2):
        assert old.inspect("gpu").used == 2


@pytest.mark.parametrize(
    "whose", ["redis-py+redis", "kazoo+zookeeper", "advisory+postgresql", "shedlock+postgresql", "shedlock+mysql"]
)
@pytest.mark.parametrize(
    "login", ["u:hunter2", "u:x?hunter2", "u:x/hunter2", "u:hunter2%zz", "u:x@hunter2", "u:hunter2#x", "u:x[hunter2"]
)
def test_no_password_is_shown_whatever_is_wrong_with_the_url(
    whose: str, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_PATIENCE", 0.05)
    with pytest.raises(holdfast.HoldfastError) as found:
        _ask(f"{whose}://{login}@127.0.0.1:1/7")
    assert "hunter2" not in everything_told(found.value)
    for error in chain(found.value):
        for frame, _ in traceback.walk_tb(error.__traceback__):  # those of psycopg and kazoo, too
            if frame.f_code.co_filename != __file__:
                assert "hunter2" not in repr(frame.f_locals), frame


def _ask(also: str) -> None:
    try:
        with holdfast.connect("memory://", also=also) as locks:
            locks.lock("42").acquire(timeout=0)
    finally:
        for thread in threading.enumerate():
            if thread.name == "holdfast-also":
                thread.join(30)


@pytest.mark.skipif(psycopg.pq.version() < 160000, reason="an older libpq cannot be told")
@pytest.mark.parametrize("whose", ["advisory", "shedlock"])
def test_a_password_is_not_sent_in_clear_text_to_whoever_asks_for_it(whose: str) -> None:
    got: list[bytes] = []
    with rogue(got) as port, pytest.raises(holdfast.Unavailable, match="cleartext"):
        _ask(f"{whose}+postgresql://u:hunter2@127.0.0.1:{port}/db")
    assert got
    assert not any(b"hunter2" in one for one in got)


def test_what_a_server_says_is_one_line() -> None:
    def answer(line: socket.socket) -> None:
        said = b"SFATAL\0C28000\0Mno\nroot logged in\x1b[2J\0\0"
        line.sendall(b"E" + struct.pack(">I", 4 + len(said)) + said)

    with silent(answer) as address, pytest.raises(holdfast.Unavailable, match="root logged in") as found:
        _ask(f"advisory+postgresql://u@{address}/db?sslmode=disable")
    assert str(found.value).isprintable()


def _greeted(line: socket.socket, answer: bytes) -> None:
    """As MySQL greets; and then this is what it says to the login."""
    greeting = b"\x0a8.0.30\0" + bytes(4) + b"12345678\0" + b"\xff\xf7\x21\x02\0\xff\xc1\x15" + bytes(10)
    _packet(line, 0, greeting + b"123456789012\0mysql_native_password\0")
    line.recv(4096)
    _packet(line, 2, answer)
    line.recv(4096)


def _packet(line: socket.socket, number: int, content: bytes) -> None:
    line.sendall(struct.pack("<I", len(content))[:3] + bytes([number]) + content)


def test_a_rogue_mysql_is_given_no_password_and_no_frame_holds_it() -> None:
    def answer(line: socket.socket) -> None:
        _greeted(line, b"\xfemysql_clear_password\0")

    with silent(answer, speaks_first=True) as address, pytest.raises(holdfast.Misuse, match="in clear text") as found:
        open_database(f"mysql://u:hunter2@{address}/db").connect()
    no_frame_shows_it(found.value)


def no_frame_shows_it(found: BaseException) -> None:
    for error in chain(found):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            assert frame.f_code.co_filename == __file__ or "hunter2" not in repr(frame.f_locals), frame


@pytest.mark.parametrize("said", [b"\0\0\0\0", b"\5\0\0\0\x0a8.0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_whatever_answers_the_old_lock_as_mysql_no_frame_holds_the_password(said: bytes) -> None:
    refused = pytest.raises(holdfast.Unavailable, match="cannot connect to MySQL")
    with silent(lambda line: line.sendall(said), speaks_first=True) as address, refused as found:
        open_database(f"mysql://u:hunter2@{address}/db").connect()
    no_frame_shows_it(found.value)


def test_an_answer_of_a_rogue_mysql_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.mysql.connection.MOST", 1 << 20)

    def answer(line: socket.socket) -> None:
        _greeted(line, b"\0\0\0\2\0\0\0")
        _packet(line, 1, b"\1" + bytes(2 << 20))

    with silent(answer, speaks_first=True) as address, pytest.raises(holdfast.Unavailable, match="more than 1 MB"):
        open_database(f"mysql://u:hunter2@{address}/db").connect()


@pytest.mark.parametrize("whose", ["kazoo", "curator"])
@pytest.mark.parametrize("name", ["../x", "a/../b", "..", ".", "/", "//", "a//b", "a/", "a\x01b", "x/y0000000000"])
def test_a_name_makes_no_node_in_the_place_of_another(whose: str, name: str) -> None:
    """In the line of another lock it would stand for ever: nobody removes it, and old code and new would wait for it."""
    with holdfast.connect("memory://", also=f"{whose}+zookeeper://127.0.0.1:1?as=/jobs/{{name}}") as locks:
        with pytest.raises(holdfast.Misuse, match=r"no part of it|must not end"):
            locks.lock(name).acquire(timeout=0)
        assert not locks.names()


@pytest.mark.server
def test_a_login_to_zookeeper_has_nodes_of_its_own() -> None:
    with servers.start("zookeeper") as server:
        hosts = f"127.0.0.1:{server.port}"
        with holdfast.connect("memory://", also=f"kazoo+zookeeper://app:pw@{hosts}/jobs") as locks, locks.lock("/x"):
            stranger = KazooClient(hosts)
            stranger.start(timeout=30)
            try:
                with pytest.raises(NoAuthError):
                    stranger.get_children("/jobs/x")
            finally:
                stranger.stop()
                stranger.close()
