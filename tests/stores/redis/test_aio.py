"""The shared connection of asyncio: cancellation, order, loss, bells for many."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Misuse, Unavailable, aio
from holdfast.drivers.aio import Asyncio
from holdfast.stores.redis import open_shared
from holdfast.stores.redis.keys import pack
from holdfast.stores.redis.scripts import ALL
from holdfast.stores.redis.store import RedisStore
from holdfast.stores.redis.url import parse
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

from ..hops import check_the_way

pytestmark = pytest.mark.server


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(bounded())


@asynccontextmanager
async def opened(where: str | tuple[str, int], options: str = "") -> AsyncIterator[aio.Locks]:
    url = where if isinstance(where, str) else f"redis://{where[0]}:{where[1]}"
    async with aio.connect(url + options) as locks:
        yield locks


async def eventually(condition: Callable[[], Coroutine[Any, Any, object]]) -> None:
    while not await condition():  # noqa: ASYNC110 - what is waited for is in the server
        await asyncio.sleep(0.005)


def connected(redis: Redis) -> int:
    clients = redis.execute("CLIENT", "LIST")
    assert isinstance(clients, bytes)
    return clients.count(b"\n") - 1  # the one that asks


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what that loop has left open
def test_who_was_connecting_in_a_loop_that_is_over_keeps_nobody_out(redis: Redis, proxy: Proxy) -> None:
    """Closed in the middle of it, and nothing was cancelled: whoever was about to connect never comes back."""
    wire = open_shared(parse(f"redis://{proxy.address[0]}:{proxy.address[1]}?timeout=60"), Asyncio())
    proxy.to_client.hold()
    loop = asyncio.new_event_loop()
    left = loop.create_task(wire.ask_once(pack("PING"), 60.0))
    loop.run_until_complete(asyncio.wait([left], timeout=0.2))
    assert not left.done()
    left._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    proxy.flow()

    async def main() -> None:
        async with asyncio.timeout(20):
            assert await wire.ask_once(pack("PING"), 60.0) == b"PONG"
        await wire.close()

    run(main)
    del left
    gc.collect()


def test_a_cancelled_request_leaves_its_reply_to_nobody(redis: Redis, proxy: Proxy) -> None:
    async def main() -> None:
        async with opened(proxy.address) as locks:
            await (await locks.lock("warm").acquire()).release()
            for turns in range(8):
                tasks = [asyncio.create_task(locks.lock(f"n{i}").try_acquire()) for i in range(20)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                done = await asyncio.gather(*tasks, return_exceptions=True)
                for index, lease in enumerate(done):
                    if isinstance(lease, aio.Lease):
                        assert lease.name == f"n{index}"
                        assert await lease.release()
                assert await locks.names() == []

    run(main)


def test_a_hundred_waiters_need_three_connections_and_are_served_in_order(redis: Redis) -> None:
    async def main() -> None:
        async with opened(redis.url) as locks:
            served: list[int] = []

            async def stand_in_line(number: int) -> None:
                async with locks.lock("x"):
                    served.append(number)

            lease = await locks.lock("x").acquire()
            tasks = []
            for number in range(100):
                tasks.append(asyncio.create_task(stand_in_line(number)))
                snapshot = await locks.inspect("x")
                while len(snapshot.waiters) <= number:
                    await asyncio.sleep(0)
                    snapshot = await locks.inspect("x")
            assert connected(redis) <= 3
            await lease.release()
            await asyncio.gather(*tasks)
            assert served == list(range(100))

    run(main)


def test_commands_per_handoff_do_not_grow_with_the_line(redis: Redis) -> None:
    async def count(waiters: int) -> float:
        async with opened(redis.url) as locks:
            lease = await locks.lock("x").acquire()

            async def once() -> None:
                async with locks.lock("x"):
                    pass

            tasks = [asyncio.create_task(once()) for _ in range(waiters)]
            await eventually(lambda: _line(locks, waiters))
            redis.execute("CONFIG", "RESETSTAT")
            await lease.release()
            await asyncio.gather(*tasks)
            stats = redis.execute("INFO", "commandstats")
            assert isinstance(stats, bytes)
            line = next(line for line in stats.split(b"\r\n") if line.startswith(b"cmdstat_evalsha:"))
            return int(line.split(b"calls=")[1].split(b",")[0]) / waiters

    async def main() -> None:
        few, many = await count(5), await count(60)
        assert few <= 2.5  # a claim and a release each, and the first release
        assert many <= 2.2

    run(main)


async def _line(locks: aio.Locks, length: int) -> bool:
    return len((await locks.inspect("x")).waiters) == length


def test_what_was_under_way_on_a_connection_that_breaks_is_asked_again_on_a_new_one(redis: Redis, proxy: Proxy) -> None:
    async def main() -> None:
        async with opened(proxy.address, "?timeout=1") as locks:
            await (await locks.lock("warm").acquire()).release()
            store = locks._engine.store
            assert isinstance(store, RedisStore)
            proxy.to_client.hold()
            tasks = [asyncio.create_task(store.names()) for _ in range(10)]
            await asyncio.sleep(0.05)
            proxy.cut(reset=True)
            proxy.flow()
            assert await asyncio.gather(*tasks) == [[]] * 10
            assert await locks.names() == []

    run(main)


def test_a_silent_server_is_given_up_after_the_timeout(redis: Redis, proxy: Proxy) -> None:
    async def main() -> None:
        async with opened(proxy.address, "?timeout=0.2") as locks:
            await (await locks.lock("warm").acquire()).release()
            proxy.to_client.hold()
            started = time.monotonic()
            with pytest.raises(Unavailable, match=r"within 0\.2 s"):
                await locks.names()
            assert 0.15 < time.monotonic() - started < 2
            proxy.flow()
            assert await locks.names() == []

    run(main)


def test_a_waiter_whose_ear_was_cut_is_let_in_all_the_same(redis: Redis) -> None:
    async def main() -> None:
        async with opened(redis.url) as locks, opened(redis.url) as others:
            held = await others.lock("x").acquire()

            async def take() -> aio.Lease:
                return await locks.lock("x", timeout=30).acquire()

            waiting = asyncio.create_task(take())
            await eventually(lambda: _line(others, 1))
            redis.execute("CLIENT", "KILL", "TYPE", "pubsub")
            await held.release()
            started = time.monotonic()
            assert (await waiting).token > held.token
            assert time.monotonic() - started < 5

    run(main)


def test_an_ear_that_was_lost_as_it_was_confirmed_is_listened_to_by_nobody() -> None:
    """What follows the confirmation ends the connection before it is the ear's. Once, somebody pinged it for ever."""
    bell = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"

    over: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.current_task())
        try:
            while said := await reader.read(65536):
                writer.write(bell + b"nonsense\r\n" if b"SUBSCRIBE" in said else b"+OK\r\n" * said.count(b"*"))
        except ConnectionError:
            pass  # it hangs up without a word
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        wire = open_shared(parse(f"redis://127.0.0.1:{port}?timeout=0.5"), Asyncio())
        with pytest.raises(Unavailable):
            await wire.ear.open(0.2)
        assert not wire.ear.is_open
        await wire.close()
        await eventually(_nobody_listens)
        server.close()
        await asyncio.wait([task for task in over if task is not None])  # its sockets are not left to the next test

    run(main)


async def _nobody_listens() -> bool:
    return not [task for task in asyncio.all_tasks() if "_ping" in repr(task.get_coro())]


def test_one_claim_takes_no_more_files_and_hops_than_the_page_says(redis: Redis) -> None:
    check_the_way("Redis", redis.url)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the first loop ended with it open
def test_one_connected_object_serves_one_loop_after_another(redis: Redis) -> None:
    locks = None

    async def first() -> None:
        nonlocal locks
        locks = aio.connect(redis.url)
        lease = await locks.lock("x").acquire()
        await lease.release()

    async def second() -> None:
        assert locks is not None
        lease = await locks.lock("x").acquire()
        await lease.release()
        await locks.close()

    asyncio.run(first())
    asyncio.run(second())
    gc.collect()


def test_a_refused_login_is_misuse_here_too(own_redis: Redis) -> None:
    own_redis.execute("CONFIG", "SET", "requirepass", "hush")

    async def main() -> None:
        async with opened(own_redis.url) as locks:
            with pytest.raises(Misuse, match="user:password"):
                await locks.lock("x").acquire(timeout=0)

    run(main)


def test_thousands_who_come_together_tell_a_new_server_its_scripts_a_few_times_only(own_redis: Redis) -> None:
    """Here it broke: ten thousand tasks said them ten thousand times, a hundred megabytes, and were told that nobody answered."""

    async def main() -> None:
        async with aio.connect(own_redis.url + "?timeout=30") as locks:
            leases = await asyncio.gather(*(locks.lock(f"x{number}").acquire() for number in range(3000)))
            assert len({lease.name for lease in leases}) == 3000

    own_redis.execute("SCRIPT", "FLUSH")
    asyncio.run(main())
    found = re.search(rb"cmdstat_script\|load:calls=(\d+)", own_redis.execute("INFO", "commandstats"))  # type: ignore[arg-type]
    assert found is not None
    assert int(found[1]) <= 10 * len(ALL)


def test_a_second_loop_at_the_same_time_is_refused_by_name(redis: Redis) -> None:
    """Bells would be heard in one of them only, and whoever waits in the other would look again after ten seconds."""

    async def in_and_out(locks: aio.Locks) -> None:
        async with locks.lock("y"):
            pass

    async def main() -> None:
        async with aio.connect(redis.url) as locks, locks.lock("x"):
            with pytest.raises(Misuse, match=r"in use by another event loop.*: aio\.connect\(\) in each loop"):
                await asyncio.to_thread(asyncio.run, in_and_out(locks))
            await in_and_out(locks)

    run(main)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the thread's loop ended with it open
def test_a_connection_that_another_loop_has_replaced_is_ended_in_its_own(redis: Redis) -> None:
    """Left to the collector, which comes in any thread, it made uvloop hang for ever when the loop was closed."""

    async def main() -> None:
        async with aio.connect(redis.url) as locks:
            lease = await locks.lock("x").acquire()
            first = locks._engine.store._wire._shared  # type: ignore[attr-defined]
            assert first.is_good()
            assert await asyncio.to_thread(asyncio.run, lease.release())
            assert locks._engine.store._wire._shared is not first  # type: ignore[attr-defined]
            assert not first.open
            await eventually(lambda: _closing(first))

    async def _closing(pipe: Any) -> bool:
        return bool(pipe._transport.is_closing())

    run(main)
    gc.collect()
