"""Streams: the same promises in threads, in asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from holdfast.drivers import dialing
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import Driver, Stream, boot_time, finish
from holdfast.drivers.threads import Threads
from holdfast.testing.alarms import alarms

T = TypeVar("T")
SLACK = 1.5
Run = Callable[[Callable[[Driver], Coroutine[Any, Any, T]]], T]


@pytest.fixture(params=["threads", "asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    def run_it(work: Callable[[Driver], Coroutine[Any, Any, T]]) -> T:
        if request.param == "threads":
            return finish(work(Threads()))
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work(Asyncio()))

    return run_it


class Peer:
    """A server that does what it is told, one connection after the other."""

    def __init__(self, serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._serve, self._tls = serve, tls
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(plain,), daemon=True).start()

    def _one(self, plain: socket.socket) -> None:
        try:
            with self._tls.wrap_socket(plain, server_side=True) if self._tls else plain as connection:
                self._serve(connection)
        except OSError:
            return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> Peer:
        made.append(Peer(serve, tls))
        return made[-1]

    yield make
    for one in made:
        one.close()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def silent(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


async def all_of(stream: Stream, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        data += (more := await stream.receive(deadline))
        assert more
    return data


MUCH = os.urandom(3_000_000)


async def there_and_back(driver: Driver, peer: Peer, tls: ssl.SSLContext | None) -> None:
    deadline = driver.now() + 20
    stream = await driver.connect(peer.address, tls, deadline)
    await stream.send(b"hello", deadline)
    assert await all_of(stream, 5, deadline) == b"hello"
    assert not stream.is_stale()
    stream.close()


def test_bytes_go_there_and_back(run: Run[None], peer: Callable[..., Peer]) -> None:
    server = peer(echo)
    run(lambda driver: there_and_back(driver, server, None))


def test_bytes_go_over_tls(run: Run[None], peer: Callable[..., Peer], tmp_path: Path) -> None:
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = peer(echo, context)
    run(lambda driver: there_and_back(driver, server, ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))))

    async def distrust(driver: Driver) -> None:
        with pytest.raises(ssl.SSLError):
            await driver.connect(server.address, ssl.create_default_context(), driver.now() + 10)

    run(distrust)


def test_much_is_sent_and_received_whole(run: Run[None], peer: Callable[..., Peer]) -> None:
    def serve(connection: socket.socket) -> None:
        got = b""
        while len(got) < len(MUCH):
            got += connection.recv(1 << 20)
        connection.sendall(got)

    server = peer(serve)

    async def work(driver: Driver) -> None:
        deadline = driver.now() + 30
        stream = await driver.connect(server.address, None, deadline)
        await stream.send(MUCH, deadline)
        assert await all_of(stream, len(MUCH), deadline) == MUCH
        assert await stream.receive(deadline) == b""
        assert stream.is_stale()
        stream.close()

    run(work)


def test_no_answer_takes_no_longer_than_the_deadline(run: Run[None], peer: Callable[..., Peer]) -> None:
    server = peer(silent)

    async def work(driver: Driver) -> None:
        began = time.monotonic()
        stream = await driver.connect(server.address, None, driver.now() + 5)
        with pytest.raises(TimeoutError):
            await stream.receive(driver.now() + 0.2)
        assert time.monotonic() - began < 0.2 + SLACK
        stream.close()

    run(work)


def test_to_send_to_who_does_not_read_takes_no_longer_than_the_deadline(
    run: Run[None], peer: Callable[..., Peer]
) -> None:
    enough = threading.Event()
    server = peer(lambda connection: (enough.wait(20), None)[1])

    async def work(driver: Driver) -> None:
        stream = await driver.connect(server.address, None, driver.now() + 5)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await stream.send(MUCH * 10, driver.now() + 0.3)
        assert time.monotonic() - began < 0.3 + SLACK
        stream.close()

    run(work)
    enough.set()


def test_signals_do_not_make_a_wait_longer(peer: Callable[..., Peer]) -> None:
    server = peer(silent)
    with alarms(0.05) as told:
        stream = finish(Threads().connect(server.address, None, boot_time() + 5))
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            finish(stream.receive(boot_time() + 0.4))
        assert 0.3 < time.monotonic() - began < 0.4 + SLACK
        assert len(told) > 2
        stream.close()


def test_a_connection_that_the_server_closed_is_stale(run: Run[None], peer: Callable[..., Peer]) -> None:
    server = peer(lambda connection: None)

    async def work(driver: Driver) -> None:
        stream = await driver.connect(server.address, None, driver.now() + 5)
        end = time.monotonic() + 10
        while not stream.is_stale():  # without the loop's having a chance to tell
            assert time.monotonic() < end
        stream.close()

    run(work)


def test_what_nobody_asked_for_makes_it_stale(run: Run[None], peer: Callable[..., Peer]) -> None:
    gone = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.sendall(b"unasked")
        gone.wait(20)

    server = peer(serve)

    async def work(driver: Driver) -> None:
        stream = await driver.connect(server.address, None, driver.now() + 5)
        end = time.monotonic() + 10
        while not stream.is_stale():
            assert time.monotonic() < end
        stream.close()

    run(work)
    gone.set()


def test_who_is_not_there_is_told_at_once(run: Run[None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]

    async def work(driver: Driver) -> None:
        began = time.monotonic()
        with pytest.raises(OSError, match=r"."):
            await driver.connect(address, None, driver.now() + 10)
        assert time.monotonic() - began < SLACK

    run(work)


def test_to_hang_up_wakes_whoever_receives(run: Run[None], peer: Callable[..., Peer]) -> None:
    server = peer(silent)

    async def work(driver: Driver) -> None:
        stream = await driver.connect(server.address, None, driver.now() + 5)
        threading.Timer(0.1, stream.hang_up).start()
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):  # it may be told as the end, or as an error
            assert await stream.receive(driver.now() + 20) == b""
        assert time.monotonic() - began < 0.1 + SLACK
        stream.close()

    run(work)


def test_a_name_that_nobody_resolves_takes_no_longer_than_the_deadline(
    run: Run[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    plain = socket.getaddrinfo

    def hangs(*args: Any, **more: Any) -> Any:
        if more.get("flags"):
            return plain(*args, **more)
        answered.wait(20)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)

    async def work(driver: Driver) -> None:
        with pytest.raises(TimeoutError):
            await driver.connect(("never.invalid", 1), None, driver.now() + 0.2)
        with pytest.raises(TimeoutError):
            await driver.connect(("never.invalid", 1), None, driver.now() + 0.2)

    began = time.monotonic()
    before = threading.active_count()
    run(work)
    assert time.monotonic() - began < 0.4 + SLACK
    assert threading.active_count() <= before + 1, "the second was to wait for the answer to the first"
    answered.set()
    end = time.monotonic() + 10
    while dialing._lookups:
        assert time.monotonic() < end


def test_a_name_is_looked_up(run: Run[None], peer: Callable[..., Peer]) -> None:
    server = peer(echo)

    async def work(driver: Driver) -> None:
        stream = await driver.connect(("localhost", server.address[1]), None, driver.now() + 10)
        stream.close()

    run(work)


@pytest.mark.parametrize("flavour", ["asyncio", "uvloop"])
def test_a_stream_of_a_loop_that_was_closed_is_stale_and_can_be_closed(peer: Callable[..., Peer], flavour: str) -> None:
    """In an interpreter of its own: a transport that outlives its loop complains when it is collected."""
    server = peer(silent)
    script = """
import asyncio, sys, warnings, importlib
warnings.simplefilter("ignore")
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import boot_time
loop = importlib.import_module(sys.argv[1]).new_event_loop()
stream = loop.run_until_complete(Asyncio().connect(("127.0.0.1", int(sys.argv[2])), None, boot_time() + 5))
loop.close()
async def main():
    assert stream.is_stale()
    stream.close()
    stream.close()
asyncio.run(main())
print("fine")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, flavour, str(server.address[1])], capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "fine\n", done.stderr
    assert "Traceback" not in done.stderr, done.stderr


_SHUT_DOWN_BY_GEVENT = """
import socket, ssl
ends = [socket.socketpair() for _ in range(2)]
context = ssl.create_default_context()
tls = context.wrap_socket(ends[1][0], server_hostname="x", do_handshake_on_connect=False)
from gevent import monkey
monkey.patch_all()
from holdfast.drivers.sockets import shut_down
for mine, other in ((ends[0][0], ends[0][1]), (tls, ends[1][1])):
    shut_down(mine)
    assert other.recv(1) == b""
    mine.close()
late, other = socket.socketpair()
shut_down(late)
assert other.recv(1) == b""
print("fine")
"""


def test_what_was_connected_before_gevent_came_is_hung_up_all_the_same() -> None:
    """Else close() failed, and what it had to give back stayed taken for its ttl."""
    pytest.importorskip("gevent")
    done = subprocess.run(
        [sys.executable, "-c", _SHUT_DOWN_BY_GEVENT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "fine\n", done.stderr
