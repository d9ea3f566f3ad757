"""A host of two addresses, the first silent (a dead machine, a firewall) or closed, is reached by the second: on every store."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast import aio
from holdfast.testing import servers

from .hands import until

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform != "linux", reason="how to be silent differs from system to system"),
]
HOST = "two.example"
SILENT, SERVING = "127.0.0.2", "127.0.0.1"
KINDS = [
    "redis",
    "redlock",
    "etcd",
    "consul",
    "zookeeper",
    "postgresql",
    "postgresql session",
    "mariadb",
    "mariadb session",
]
PATIENCE = 12.0  # seconds: half of a conversation's time is enough, but the machine may be busy


class Place(NamedTuple):
    url: str
    ports: list[int]


@contextlib.contextmanager
def silent(port: int) -> Iterator[None]:
    """Somebody listens there whose line of newcomers is full: who knocks hears nothing. Afterwards, nobody does."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((SILENT, port))
        listener.listen(0)

        def is_full() -> bool:
            caller = stack.enter_context(socket.socket())
            caller.settimeout(0.05)
            try:
                caller.connect((SILENT, port))
            except TimeoutError:
                return True
            return False

        until(is_full)
        yield


@pytest.fixture(autouse=True)
def _two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = socket.getaddrinfo

    def found(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host not in (HOST, HOST.encode()):
            return plain(host, port, *rest, **more)
        if more.get("flags"):  # is it an address in numbers?
            raise socket.gaierror("no numbers")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, int(port))) for one in (SILENT, SERVING)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    kind, _, mode = request.param.partition(" ")
    count = 3 if kind == "redlock" else 1
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(servers.start("redis" if kind == "redlock" else kind)) for _ in range(count)]
        ports = [server.port for server in started]
        url = f"redlock://{','.join(f'{HOST}:{port}' for port in ports)}"
        if kind != "redlock":
            url = started[0].url.replace(SERVING, HOST) + (f"?mode={mode}" if mode else "")
        yield Place(url, ports)


def test_in_threads(place: Place) -> None:
    def attempt() -> None:
        with holdfast.connect(place.url) as locks:
            assert locks.lock("x").acquire(timeout=PATIENCE).release()

    with contextlib.ExitStack() as stack:
        for port in place.ports:
            stack.enter_context(silent(port))
        attempt()
    attempt()


def test_in_asyncio(place: Place) -> None:
    async def attempt() -> None:
        async with aio.connect(place.url) as locks:
            assert await (await locks.lock("x").acquire(timeout=PATIENCE)).release()

    with contextlib.ExitStack() as stack:
        for port in place.ports:
            stack.enter_context(silent(port))
        asyncio.run(attempt())
    asyncio.run(attempt())
