"""Redis may be silent for a moment, and mean it: writes are paused, for a failover say. What it tells newcomers meanwhile is no
sign that those whom it has let in are stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import holdfast
from holdfast import aio
from holdfast.stores.redis.replies import rights
from holdfast.stores.redis.url import parse
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server
PAUSE = 1200  # ms: longer than one waits without a doubt
Meanwhile = Callable[[], None]


def in_a_thread(url: str, meanwhile: Meanwhile) -> list[str]:
    repeated: list[str] = []
    with holdfast.connect(url) as locks:
        locks.lock("x").acquire(timeout=5).release()
        locks._engine.store.tell_repeats_to(repeated.append)  # type: ignore[attr-defined]
        meanwhile()
        locks.lock("x").acquire(timeout=5).release()
    return repeated


def in_a_loop(url: str, meanwhile: Meanwhile) -> list[str]:
    repeated: list[str] = []

    async def main() -> None:
        async with aio.connect(url) as locks:
            await (await locks.lock("x").acquire(timeout=5)).release()
            locks._engine.store.tell_repeats_to(repeated.append)  # type: ignore[attr-defined]
            meanwhile()
            await (await locks.lock("x").acquire(timeout=5)).release()

    asyncio.run(main())
    return repeated


@pytest.mark.parametrize(
    ("locking", "case"),
    [
        (in_a_thread, "least rights"),
        (in_a_loop, "least rights"),
        (in_a_thread, "no room"),
        (in_a_loop, "another password"),
    ],
)
def test_what_newcomers_are_told_while_writes_are_paused_says_nothing(
    own_redis: Redis, locking: Callable[[str, Meanwhile], list[str]], case: str
) -> None:
    url, execute = own_redis.url, own_redis.execute
    if case != "no room":  # there without a login, so that the first that a newcomer is told is that
        url = f"redis://locker:pw@127.0.0.1:{own_redis.port}"
        execute("ACL", "SETUSER", "locker", "reset", "on", ">pw", *rights(parse(url)).split())
        execute("ACL", "SETUSER", "default", "-@all", "+acl", "+client")

    def meanwhile() -> None:
        execute("CLIENT", "PAUSE", PAUSE, "WRITE")
        if case == "no room":
            execute("CONFIG", "SET", "maxclients", 1)
        if case == "another password":
            execute("ACL", "SETUSER", "locker", "resetpass", ">another")

    assert locking(url, meanwhile) == []
