"""HTTP as Consul speaks it, and as it does not; how long a request may take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time

import pytest

from holdfast import Unavailable
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import boot_time, finish
from holdfast.drivers.threads import Threads
from holdfast.stores.consul import open_store
from holdfast.stores.consul.replies import Reader
from holdfast.stores.consul.url import parse
from holdfast.stores.consul.wire import MOST_AT_ONCE, Wire

from ..contract import Hand
from ..hands import Background, claim_of, until


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_answers_are_put_together_from_any_pieces(size: int) -> None:
    plain = b"HTTP/1.1 200 OK\r\nX-Consul-Index: 42\r\nContent-Length: 5\r\n\r\nhello"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
    for whole in (plain, chunked):
        reader = Reader()
        answers = [reader.feed(whole[at : at + size]) for at in range(0, len(whole), size)]
        found = [answer for answer in answers if answer is not None]
        assert answers[-1] is not None
        assert [answer.body for answer in found] == [b"hello"]
    with pytest.raises(ValueError, match="no answer of HTTP"):
        Reader().feed(b"SSH-2.0-OpenSSH \r\n\r\n")


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-6\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Consul-Index: -1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"80000\r\n" + b"x" * 0x80000 + b"\r\n80001\r\n",
    ],
)
def test_an_answer_of_uncertain_length_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Reader().feed(said)


def test_an_answer_ends_where_it_says() -> None:
    reader = Reader()
    answer = reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOKextra")
    assert answer is not None
    assert answer.body == b"OK"
    assert not reader.keeps_alive, "what else it said would be taken for the next answer"
    reader = Reader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}") is None
    assert reader.end().body == b"{}"
    reader = Reader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}") is None
    with pytest.raises(EOFError):
        reader.end()
    assert Reader().feed(b"HTTP/1.1 204 No Content\r\n\r\n") is not None


@pytest.mark.parametrize("world", ["threads", "asyncio"])
@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"ID":null',
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
def test_who_is_no_consul_is_named_in_time(said: bytes, world: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while connection.recv(65536):
                connection.sendall(said)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    store = Hand(open_store, f"consul://127.0.0.1:{port}", world)
    with pytest.raises(Unavailable, match=f":{port}"):
        store("claim", claim_of("x"), 0.5)
    store.close()
    listener.close()


@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_to_wait_for_a_free_connection_takes_no_longer_than_asked(world: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)  # accepts, and never answers
    target = parse(f"consul://127.0.0.1:{listener.getsockname()[1]}")
    wire = Wire(target, Asyncio() if world == "asyncio" else Threads())

    async def one_more() -> None:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="before this one"):
            await wire.ask("GET", "/x", b"", boot_time() + 0.3)
        assert time.monotonic() - began < 2

    async def in_asyncio() -> None:
        crowd = [asyncio.create_task(wire.ask("GET", "/x", b"", boot_time() + 4.0)) for _ in range(MOST_AT_ONCE)]
        await asyncio.sleep(0.1)
        await one_more()
        for one in crowd:
            one.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)

    if world == "asyncio":
        asyncio.run(in_asyncio())
    else:
        crowd = [Background(lambda: finish(wire.ask("GET", "/x", b"", boot_time() + 4.0))) for _ in range(MOST_AT_ONCE)]
        until(lambda: len(wire.pool._lent) == MOST_AT_ONCE)
        finish(one_more())
        wire.pool.close()
        for thread in crowd:
            with pytest.raises(Unavailable):
                thread.result()
    listener.close()
