"""A server that is not running: whoever asks is told at once, has left nothing anywhere, and waits for nobody when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

import pytest

import holdfast
from holdfast import Unavailable, aio, events
from holdfast.engine import Engine
from holdfast.events import Event
from holdfast.testing import servers

URLS = {
    "redis": "redis://{0}",
    "redis cluster": "redis+cluster://{0}",
    "redis sentinel": "redis+sentinel://{0}/main",
    "redlock": "redlock://{0},{1},{2}",
    "postgresql": "postgresql://somebody@{0}/app",
    "postgresql session": "postgresql://somebody@{0}/app?mode=session",
    "mysql": "mysql://somebody@{0}/app",
    "mysql session": "mysql://somebody@{0}/app?mode=session",
    "etcd": "etcd://{0}",
    "consul": "consul://{0}",
    "zookeeper": "zookeeper://{0}?timeout=0.2",
    "also": "redis://{0}?also",
}
HARDLY = 30.0  # seconds: for a machine that is busy


@pytest.fixture
def refusing() -> Iterator[list[str]]:
    """Addresses at which nobody listens, and nobody else can."""
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in range(3)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        yield ["{}:{}".format(*one.getsockname()) for one in bound]


def left_behind(engine: Engine) -> list[object]:
    return [*engine.leaving._owed, *engine.leaving._under_way, *engine._under_way]


@pytest.mark.parametrize("kind", URLS)
def test_a_thread_that_reached_nobody_has_nothing_to_take_back(kind: str, refusing: list[str]) -> None:
    url, _, _ = URLS[kind].format(*refusing).partition("?also")
    locks = holdfast.connect(url, also=f"redis-py+redis://{refusing[1]}" if kind == "also" else None)
    failed: list[Event] = []
    locks.subscribe(failed.append, [events.RELEASE_FAILED])
    for timeout in (0, 5):
        with pytest.raises(Unavailable):
            locks.lock("x").acquire(timeout=timeout)
        assert not left_behind(locks._engine)
    locks.close()
    assert not failed


@pytest.mark.parametrize("kind", [kind for kind in URLS if kind != "also"])
def test_a_task_that_reached_nobody_has_nothing_to_take_back(kind: str, refusing: list[str]) -> None:
    async def main() -> None:
        async with aio.connect(URLS[kind].format(*refusing)) as locks:
            for timeout in (0, 5):
                with pytest.raises(Unavailable):
                    await locks.lock("x").acquire(timeout=timeout)
                assert not left_behind(locks._engine)

    asyncio.run(asyncio.wait_for(main(), HARDLY))


PROGRAMS = {
    "threads": """
import sys, holdfast
locks = holdfast.connect(sys.argv[1])
try:
    locks.lock("x").acquire()
except holdfast.Unavailable:
    print("nobody there")
""",
    "asyncio": """
import asyncio, sys, holdfast
from holdfast import aio
locks = aio.connect(sys.argv[1])
async def main():
    try:
        await locks.lock("x").acquire()
    except holdfast.Unavailable:
        print("nobody there")
asyncio.run(main())
""",
}


@pytest.mark.parametrize("surface", PROGRAMS)
def test_a_process_that_reached_nobody_ends_without_a_last_word(surface: str, refusing: list[str]) -> None:
    """It used to try for four seconds and a half to take back what it had never sent, and then to say so."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAMS[surface], f"redis://{refusing[0]}"],
        capture_output=True,
        text=True,
        timeout=HARDLY,
        check=True,
    )
    assert (ended.stdout, ended.stderr) == ("nobody there\n", "")


NODES: dict[str, tuple[servers.RedisKind | Literal["etcd", "postgresql", "mariadb"], int]] = {
    "redis": ("redis", 1),
    "redlock": ("redis", 3),
    "etcd": ("etcd", 1),
    "postgresql": ("postgresql", 1),
    "mariadb": ("mariadb", 1),
}


@pytest.mark.server
@pytest.mark.parametrize("kind", NODES)
def test_who_was_let_in_once_takes_back_what_it_asked_for(kind: str) -> None:
    """Even if nobody is there any more: what was sent before may have arrived."""
    what, count = NODES[kind]
    failed: list[Event] = []
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(servers.start(what)) for _ in range(count)]
        url = nodes[0].url if count == 1 else "redlock://" + ",".join("{}:{}".format(*one.address) for one in nodes)
        locks = holdfast.connect(url)
        locks.subscribe(failed.append, [events.RELEASE_FAILED])
        with locks.lock("before"):
            pass
        for node in nodes:
            node.kill()
        with pytest.raises(Unavailable):
            locks.lock("x").acquire(timeout=0.5)
        assert left_behind(locks._engine)
        locks.close(timeout=0.5)
    assert [event.name for event in failed] == ["x"]
