"""What a loop that was closed has left in the middle of something is ended by the first who comes in another."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from holdfast import aio
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import boot_time
from holdfast.drivers.loops import end_what_loops_have_left, ends_with_this_loop


def test_what_was_left_in_the_middle_puts_back_what_it_had() -> None:
    driver = Asyncio()
    back: list[str] = []

    async def has(what: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            back.append(what)

    async def first() -> None:
        driver.spawn(lambda: has("a connection"), "in the background")
        waiting = asyncio.create_task(driver.shield(lambda: has("a turn")))
        await asyncio.wait({waiting}, timeout=0.01)

    async def second() -> None:
        driver.whoami()
        assert sorted(back) == ["a connection", "a turn"]
        driver.spawn(lambda: has("another"), "in the background")
        await asyncio.sleep(0)
        driver.whoami()
        driver.bury()
        assert len(back) == 2, "this loop is not over"

    loop = asyncio.new_event_loop()
    waiter = loop.run_until_complete(first())
    loop.close()
    asyncio.run(second())
    assert waiter is None


def test_an_attempt_that_is_over_is_forgotten() -> None:
    """Kept in a plain set, which another thread may copy at any moment; a WeakSet would raise there."""
    driver = Asyncio()

    async def answer() -> int:
        return 7

    async def main() -> None:
        assert await driver.shield(answer) == 7

    asyncio.run(main())
    assert not driver._attempts


class Connection:
    def __init__(self, ended: list[str], name: str) -> None:
        self.ended, self.name, self.troubles = ended, name, 1 if name == "a" else 0

    def end(self) -> None:
        if self.troubles:
            self.troubles -= 1
            raise OSError("Too many open files")
        self.ended.append(self.name)


def test_what_cannot_be_ended_now_is_ended_by_the_next() -> None:
    ended: list[str] = []
    connections = [Connection(ended, name) for name in "abc"]

    async def connect() -> None:
        for one in connections:
            ends_with_this_loop(one, Connection.end)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(connect())
    end_what_loops_have_left()
    assert not ended, "its loop is only stopped"
    loop.close()
    end_what_loops_have_left()
    assert sorted(ended) == ["b", "c"]
    end_what_loops_have_left()
    end_what_loops_have_left()
    assert sorted(ended) == ["a", "b", "c"]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # uvloop's word for what it was left with
def test_what_uvloop_is_about_to_close_is_left_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says that it is closed, closes its sockets by their numbers, and then lets Python know, in Python: another thread may
    come there, and a number that is free again may be anything by then."""
    detach, file = socket.socket.detach, tmp_path / "somebody else's"
    looks: list[os.stat_result] = []

    def detach_while_another_thread_comes(plain: socket.socket) -> int:
        number = plain.fileno()
        opened = os.open(file, os.O_CREAT | os.O_RDWR)
        if opened != number:  # which is free, but perhaps not the lowest
            os.dup2(opened, number)
            os.close(opened)
        looks.append(os.fstat(number))
        end_what_loops_have_left()
        looks.append(os.fstat(number))
        os.close(number)
        return detach(plain)

    with socket.create_server(("127.0.0.1", 0)) as server:
        loop = uvloop.new_event_loop()
        stream = loop.run_until_complete(Asyncio().connect(server.getsockname(), None, boot_time() + 5))
        monkeypatch.setattr(socket.socket, "detach", detach_while_another_thread_comes)
        loop.close()
        monkeypatch.undo()
        stream.close()
    assert len(looks) == 2
    assert looks[0].st_ino == looks[1].st_ino, "the file has become something else"


# ---- tasks that were not cancelled


async def waits(locks: aio.Locks) -> None:
    await locks.lock("x").acquire()


async def holds_and_waits(locks: aio.Locks) -> None:
    async with locks.all_of("w", "x"):
        pass


async def with_a_limit(locks: aio.Locks) -> None:
    await asyncio.wait_for(locks.lock("x").acquire(), 60)


async def keeps(locks: aio.Locks) -> None:
    async with locks.lock("x", keep=5):
        pass


async def decorated(locks: aio.Locks) -> None:
    @locks.lock("x")
    async def work() -> None: ...

    await work()


async def stands(locks: aio.Locks) -> None:
    async for _ in locks.election("x").terms():
        pass


async def next_term(locks: aio.Locks) -> None:
    await anext(locks.election("x").terms())


WAITING = [waits, holds_and_waits, with_a_limit, keeps, decorated, stands, next_term]


@pytest.mark.parametrize("wait", WAITING, ids=lambda wait: wait.__name__)
@pytest.mark.parametrize("late", [False, True], ids=["", "closed when the next had begun"])
def test_who_waited_in_a_loop_that_was_closed_is_out_of_the_line(
    wait: Callable[[aio.Locks], Coroutine[Any, Any, None]], late: bool
) -> None:
    space = f"memory://{wait.__name__}-{late}"
    waiting: list[asyncio.Task[None]] = []

    async def first(locks: aio.Locks, others: aio.Locks) -> aio.Lease:
        held = await others.lock("x", ttl=600).acquire()
        waiting.append(asyncio.create_task(wait(locks)))
        async with asyncio.timeout(10):
            while not (await others.inspect("x")).waiters:  # noqa: ASYNC110 - it is in the store
                await asyncio.sleep(0.001)
        return held

    async def in_and_out(locks: aio.Locks) -> None:
        async with locks.lock("y"):
            pass

    async def second(locks: aio.Locks, others: aio.Locks) -> None:
        await in_and_out(locks)
        async with asyncio.timeout(10):
            while (await others.inspect("x")).waiters:  # noqa: ASYNC110 - it is in the store
                await asyncio.sleep(0.001)
        started = time.monotonic()
        await locks.close()
        assert time.monotonic() - started < 2
        await others.close()

    locks, others = aio.connect(space), aio.connect(space)
    loop = asyncio.new_event_loop()
    held = loop.run_until_complete(first(locks, others))
    if not late:
        loop.close()
    with asyncio.Runner() as runner:
        if late:
            runner.run(in_and_out(locks))
            loop.close()
        runner.run(second(locks, others))
    assert held is not None


def test_who_watched_in_a_loop_that_was_closed_is_not_waited_for() -> None:
    watching: list[asyncio.Task[None]] = []

    async def watch(locks: aio.Locks) -> None:
        async for _ in locks.election("x").watch():
            pass

    async def first(locks: aio.Locks) -> None:
        watching.append(asyncio.create_task(watch(locks)))
        async with asyncio.timeout(10):
            while not locks._engine._under_way:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)

    locks = aio.connect("memory://watched")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(first(locks))
    loop.close()
    started = time.monotonic()
    asyncio.run(locks.close())
    assert time.monotonic() - started < 2
