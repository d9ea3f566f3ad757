"""A host's name that no resolver answers for outlasts no call: in threads and in asyncio, on every networked store."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Unavailable, aio

URLS = [
    "redis://nobody.example",
    "redis+cluster://nobody.example",
    "redlock://one.example,two.example,three.example",
    "etcd://nobody.example",
    "consul://nobody.example",
    "zookeeper://nobody.example",
    "postgresql://postgres@nobody.example/postgres",
    "postgresql://postgres@nobody.example/postgres?mode=session",
    "mysql://root@nobody.example/holdfast",
    "mysql://root@nobody.example/holdfast?mode=session",
]
HANGS = 20.0  # seconds that the resolver would take
BUSY = 15.0  # seconds that a busy machine may take for a call of one


@pytest.fixture(autouse=True)
def _no_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    over = threading.Event()
    plain = socket.getaddrinfo

    def hangs(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host.endswith(".example") and not more.get("flags"):  # with flags: is it an address in numbers?
            over.wait(HANGS)
            raise socket.gaierror("no such name")
        return plain(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    yield
    over.set()


@pytest.mark.parametrize("url", URLS)
def test_in_threads(url: str) -> None:
    started = time.monotonic()
    locks = holdfast.connect(url)
    with pytest.raises(Unavailable):
        locks.lock("x").acquire(timeout=0.2)
    locks.close(0.2)
    assert time.monotonic() - started < BUSY


@pytest.mark.parametrize("url", URLS)
def test_in_asyncio(url: str) -> None:
    async def main() -> None:
        async with aio.connect(url) as locks:
            with pytest.raises(Unavailable):
                await locks.lock("x").acquire(timeout=0.2)
            await locks.close(0.2)

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < BUSY
