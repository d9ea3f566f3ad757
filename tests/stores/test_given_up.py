"""A request that was not answered in time is taken back from the system too, which would go on sending it after an outage."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

import holdfast
from holdfast import Unavailable, aio
from holdfast.testing import servers
from holdfast.testing.closing import Closes
from holdfast.testing.servers.base import Server

from .hands import SOON, until

pytestmark = pytest.mark.server
KINDS = ["redis", "postgresql", "mariadb", "etcd", "consul"]


class Way(Closes):
    """To a server. While it is `silent` it takes what it is sent, hands nothing on, and notes how its clients hang up."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.silent = threading.Event()
        self.ends: list[str] = []
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._pairs += [client, server]
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client, server:
            while True:
                for one in select.select([client, server], [], [])[0]:
                    try:
                        data = one.recv(65536)
                    except ConnectionResetError:
                        data, end = b"", "reset"
                    else:
                        end = "closed" if data or not _is_reset(one) else "reset"
                    if not data:
                        if one is client and self.silent.is_set():
                            self.ends.append(end)
                        return
                    if not self.silent.is_set():
                        (server if one is client else client).sendall(data)

    def close(self) -> None:
        self._listener.close()
        for one in self._pairs:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _is_reset(end: socket.socket) -> bool:
    """Or will it be, now that it has hung up: what it still had to send is gone then."""
    found = select.poll()
    found.register(end, 0)
    return bool(found.poll(1000))


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with servers.start(request.param, *(("--appendonly", "no") if request.param == "redis" else ())) as started:
        yield started


@pytest.fixture
def way(server: Server) -> Iterator[Way]:
    with Way(server.address) as between:
        yield between


def url_of(server: Server, way: Way) -> str:
    return server.url.replace(f":{server.port}", f":{way.port}") + "?timeout=0.5"


def test_in_threads(server: Server, way: Way) -> None:
    with holdfast.connect(url_of(server, way)) as locks:
        locks.lock("x").acquire().release()
        way.silent.set()
        with pytest.raises(Unavailable):
            locks.lock("x").acquire(timeout=0)
        until(lambda: way.ends)
        assert way.ends[0] == "reset", "the system still has the claim, and sends it when it can"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_in_a_loop(server: Server, way: Way, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with aio.connect(url_of(server, way)) as locks:
            await (await locks.lock("x").acquire()).release()
            way.silent.set()
            with pytest.raises(Unavailable):
                await locks.lock("x").acquire(timeout=0)
            await asyncio.to_thread(until, lambda: way.ends)
            assert way.ends[0] == "reset", "the system still has the claim, and sends it when it can"

    started = time.monotonic()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert time.monotonic() - started < SOON
