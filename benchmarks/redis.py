"""Redis and Redlock against their bars and their peers, all in one interleaved run. Needs the extra `bench`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import multiprocessing
import select
import socket
import statistics
import time
from collections.abc import Callable, Coroutine
from typing import Any

import holdfast
from holdfast import aio
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.redis.keys import message_pack, pack, word
from holdfast.stores.redlock import scripts as redlock
from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis

from .measure import Verdict, interleaved, report

_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
TASKS = 64
PROCESSES = 8


def main() -> bool:
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(servers.start("redis", "--appendonly", "no")) for _ in range(5)]
        verdicts = [
            *uncontended(nodes),
            *asyncio.run(concurrent(nodes[0])),
            *contended(nodes[0]),
            *renewal(nodes[0]),
        ]
    return report("Redis and Redlock", verdicts)


# ---- one thread, nobody else


def _plain_socket(redis: Redis, address: tuple[str, int] | None = None) -> socket.socket:
    plain = socket.create_connection(address or redis.address)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def floor(redis: Redis, address: tuple[str, int] | None = None) -> Callable[[], object]:
    """The least that two round trips take: a plain socket, and bytes packed beforehand."""
    plain = _plain_socket(redis, address)
    redis.execute("SCRIPT", "LOAD", _DELETE)
    nonce = "x" * 32
    take = pack("SET", "floor", nonce, "NX", "PX", 30000)
    sha = hashlib.sha1(_DELETE.encode(), usedforsecurity=False).hexdigest()
    leave = pack("EVALSHA", sha, 1, "floor", nonce)

    def cycle() -> None:
        plain.sendall(take)
        plain.recv(4096)
        plain.sendall(leave)
        plain.recv(4096)

    return cycle


def floor_of_a_majority(nodes: list[Redis]) -> Callable[[], object]:
    """The least for a Redlock: its own requests, packed beforehand, to all nodes at once, until a majority has answered.

    What comes later is read with the next answer.
    """
    sockets = {plain.fileno(): plain for plain in map(_plain_socket, nodes)}
    for plain in sockets.values():
        for script in (redlock.CLAIM, redlock.RELEASE):
            plain.sendall(script.load)
            plain.recv(4096)
    keys = b"".join(map(word, (b"2", b"hf:redlock:{floor}", b"hf:redlock:{floor}:waiting")))
    nonce, token, retention, terms = b"x" * 32, b"9" * 16, b"604800000000", message_pack(1, 1, True, b"somebody", b"")
    take, rest = redlock.CLAIM.call(keys, nonce, token, b"30000000", retention, terms, b"", b"1").split(token)
    leave = redlock.RELEASE.call(keys, nonce, retention, b"0", b"0")
    owed = dict.fromkeys(sockets, 0)
    poll = select.poll()
    for descriptor in sockets:
        poll.register(descriptor, select.POLLIN)

    def ask(request: bytes) -> None:
        for descriptor, plain in sockets.items():
            plain.sendall(request)
            owed[descriptor] += 1
        answered = 0
        while 2 * answered <= len(sockets):
            for descriptor, _ in poll.poll():
                data = sockets[descriptor].recv(4096)
                assert data[:1] == b":", data
                owed[descriptor] -= data.count(b"\n")
                answered += owed[descriptor] == 0

    def cycle() -> None:
        ask(b"%b%d%b" % (take, time.time_ns() // 1000, rest))
        ask(leave)

    return cycle


def uncontended(nodes: list[Redis]) -> list[Verdict]:
    redis = nodes[0]
    locks = holdfast.connect(redis.url)
    many = holdfast.connect("redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes))
    ours, majority = locks.lock("bench"), many.lock("bench")
    tasks: dict[str, Callable[[], object]] = {
        "floor": floor(redis),
        "floor of 5": floor_of_a_majority(nodes),
        "holdfast": lambda: ours.acquire().release(),
        "redlock": lambda: majority.acquire().release(),
    }
    peers = sync_peers(redis, nodes)
    tasks |= peers
    for task in tasks.values():
        task()
    rounds = [interleaved(tasks, rounds=1, batch=40) for _ in range(40)]

    def times(one: str, other: str) -> float:
        return statistics.median(taken[one] / taken[other] for taken in rounds)

    typical = {name: statistics.median(taken[name] for taken in rounds) * 1e6 for name in tasks}
    shown = ", ".join(f"{name} {times(name, 'floor'):.1f}x" for name in peers if name != "pottery x5")
    pottery = f"; pottery {times('pottery x5', 'pottery'):.1f}x its single" if "pottery x5" in peers else ""
    locks.close()
    many.close()
    return [
        Verdict(
            "acquire + release, one thread, against the socket floor",
            times("holdfast", "floor"),
            1.3,
            detail=f"floor {typical['floor']:.0f} µs; {shown}",
        ),
        Verdict(
            "Redlock of 5 against its requests over five plain sockets, until three have answered",
            times("redlock", "floor of 5"),
            2,
            detail=f"{typical['redlock']:.0f} µs; against single Redis {times('redlock', 'holdfast'):.1f}x, "
            f"where the plain sockets take {times('floor of 5', 'floor'):.1f}x{pottery}",
        ),
    ]


def sync_peers(redis: Redis, nodes: list[Redis]) -> dict[str, Callable[[], object]]:
    """Those that are installed and still run."""
    found: dict[str, Callable[[], object]] = {}
    client: Any = importlib.import_module("redis")
    connection = client.Redis(port=redis.port)
    lock = connection.lock("redis-py", timeout=30)
    found["redis-py"] = lambda: (lock.acquire(), lock.release())
    with contextlib.suppress(ImportError):
        other: Any = importlib.import_module("redis_lock")

        def python_redis_lock() -> None:
            one = other.Lock(connection, "python-redis-lock", expire=30)
            one.acquire()
            one.release()

        found["python-redis-lock"] = python_redis_lock
    with contextlib.suppress(ImportError):
        pottery: Any = importlib.import_module("pottery")
        single = pottery.Redlock(key="pottery", masters={connection}, auto_release_time=30)
        five = pottery.Redlock(
            key="pottery5", masters={client.Redis(port=node.port) for node in nodes}, auto_release_time=30
        )
        found["pottery"] = lambda: (single.acquire(), single.release())
        found["pottery x5"] = lambda: (five.acquire(), five.release())
    with contextlib.suppress(ImportError):
        coordination: Any = importlib.import_module("tooz.coordination")
        coordinator = coordination.get_coordinator(redis.url, b"bench")
        coordinator.start()
        tooz = coordinator.get_lock(b"tooz")
        found["tooz"] = lambda: (tooz.acquire(), tooz.release())
    with contextlib.suppress(ImportError):
        sherlock: Any = importlib.import_module("sherlock")

        def use_sherlock() -> None:
            one = sherlock.RedisLock("sherlock", client=connection, expire=30)
            one.acquire()
            one.release()

        found["sherlock"] = use_sherlock
    return found


# ---- asyncio


async def aioredlock_rate(redis: Redis, cycles: int) -> str:
    """Of one task, on one node. What keeps it from running, where it does not: it was last released in 2022."""
    try:
        library: Any = importlib.import_module("aioredlock")
        manager = library.Aioredlock([{"host": "127.0.0.1", "port": redis.port}])
        started = time.perf_counter()
        for _ in range(cycles):
            await manager.unlock(await manager.lock("aioredlock", lock_timeout=30))
        rate = cycles / (time.perf_counter() - started)
        await manager.destroy()
    except Exception as error:
        return f"does not run: {type(error).__name__}: {error!s:.80}"
    return f"{rate:.0f} cycles/s"


async def concurrent(redis: Redis) -> list[Verdict]:
    client: Any = importlib.import_module("redis.asyncio")
    peer = client.Redis(port=redis.port)

    async def theirs(number: int, cycles: int) -> None:
        lock = peer.lock(f"theirs{number}", timeout=30)
        for _ in range(cycles):
            await lock.acquire()
            await lock.release()

    async with aio.connect(redis.url) as locks:

        async def ours(number: int, cycles: int) -> None:
            lock = locks.lock(f"ours{number}")
            for _ in range(cycles):
                lease = await lock.acquire()
                await lease.release()

        async def rate(task: Callable[[int, int], Coroutine[Any, Any, None]], tasks: int, cycles: int) -> float:
            started = time.perf_counter()
            await asyncio.gather(*(task(number, cycles) for number in range(tasks)))
            return tasks * cycles / (time.perf_counter() - started)

        await rate(ours, TASKS, 2)
        await rate(theirs, TASKS, 2)
        together, alone, fastest, singly = [], [], 0.0, 0.0
        for _ in range(7):
            mine = await rate(ours, TASKS, 30)
            fastest = max(fastest, mine)
            together.append(mine / await rate(theirs, TASKS, 3))
            mine = await rate(ours, 1, 300)
            singly = max(singly, mine)
            alone.append(mine / await rate(theirs, 1, 100))
        other = await aioredlock_rate(redis, 100)
    await peer.aclose()
    return [
        Verdict(
            f"asyncio, {TASKS} tasks, against redis-py's",
            statistics.median(together),
            10,
            at_least=True,
            detail=f"{fastest:.0f} cycles/s",
        ),
        Verdict(
            "asyncio, one task, against redis-py's",
            statistics.median(alone),
            2,
            at_least=True,
            detail=f"{singly:.0f} cycles/s; aioredlock {other}",
        ),
    ]


# ---- eight processes, one name


MARGIN = 0.3  # seconds before and after what counts, in which all are at work already, or still


def _counted(cycle: Callable[[], float], seconds: float, ready: Any) -> list[float]:
    """The waits that began while everybody was at work: those who start and those who end would disturb the rest."""
    waits = []
    ready.wait()
    started = time.monotonic()
    while (since := time.monotonic() - started) < seconds + 2 * MARGIN:
        wait = cycle()
        if MARGIN <= since < seconds + MARGIN:
            waits.append(wait)
    return waits


def holdfast_worker(port: int, seconds: float, results: Any, ready: Any) -> None:
    locks = holdfast.connect(f"redis://127.0.0.1:{port}")
    lock = locks.lock("contended")

    def cycle() -> float:
        before = time.monotonic()
        lease = lock.acquire()
        waited = time.monotonic() - before
        lease.release()
        return waited

    results.put(_counted(cycle, seconds, ready))
    locks.close()


def peer_worker(port: int, seconds: float, results: Any, ready: Any) -> None:
    client: Any = importlib.import_module("redis")
    other: Any = importlib.import_module("redis_lock")
    connection = client.Redis(port=port)

    def cycle() -> float:
        before = time.monotonic()
        lock = other.Lock(connection, "contended-peer", expire=30)
        lock.acquire()
        waited = time.monotonic() - before
        lock.release()
        return waited

    results.put(_counted(cycle, seconds, ready))


def crowd(worker: Callable[..., None], port: int, seconds: float) -> list[list[float]]:
    context = multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(PROCESSES)
    processes = [context.Process(target=worker, args=(port, seconds, results, ready)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    waits = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    return waits


def contended(redis: Redis) -> list[Verdict]:
    rates, fairness, tails = [], [], []
    peers_rate = 0.0
    for _ in range(3):
        ours = crowd(holdfast_worker, redis.port, 1.5)
        counts = [len(waits) for waits in ours]
        everything = sorted(wait for waits in ours for wait in waits)
        p99 = everything[int(len(everything) * 0.99)]
        # Taken in turn, a cycle takes as long as all eight together need: the mean of a handoff, times eight.
        tails.append(p99 / (1.5 / len(everything) * PROCESSES))
        fairness.append(min(counts) / max(counts))
        theirs = sum(map(len, crowd(peer_worker, redis.port, 1.5)))
        peers_rate = max(peers_rate, theirs / 1.5)
        rates.append(sum(counts) / max(theirs, 1))
    return [
        Verdict(
            f"{PROCESSES} processes on one name, against python-redis-lock",
            statistics.median(rates),
            1.0,
            at_least=True,
            detail=f"theirs {peers_rate:.0f}/s",
        ),
        Verdict("fairness: fewest / most acquisitions", statistics.median(fairness), 0.95, unit="", at_least=True),
        Verdict("wait p99 / (mean handoff * 8)", statistics.median(tails), 1.5),
    ]


# ---- ten thousand leases


def renewal(redis: Redis) -> list[Verdict]:
    locks = holdfast.connect(redis.url, label="renewal")
    store = locks._engine.store
    grants: list[Grant] = []
    redis.execute("FLUSHALL")
    for number in range(10_000):
        grant = finish(store.claim(Claim(f"held:{number}", new_holder(), "bench", 30.0)))
        assert isinstance(grant, Grant)
        grants.append(grant)
    finish(store.renew(grants, 10.0))
    redis.execute("CONFIG", "SET", "slowlog-log-slower-than", 100)  # the commands inside a script are logged too
    redis.execute("CONFIG", "SET", "slowlog-max-len", 1000)
    redis.execute("SLOWLOG", "RESET")
    started = time.perf_counter()
    kept = finish(store.renew(grants, 10.0))
    took = time.perf_counter() - started
    assert all(kept)
    slow = redis.execute("SLOWLOG", "GET", 1000)
    assert isinstance(slow, list)
    spans = [entry[2] for entry in slow if isinstance(entry, list) and isinstance(entry[2], int)]
    scripts = [
        span
        for span, entry in zip(spans, slow, strict=True)
        if isinstance(entry, list) and isinstance(entry[3], list) and entry[3][0] == b"EVALSHA"
    ]
    locks.close()
    return [
        Verdict(
            "10,000 renewals: the longest script",
            max(scripts) / 1000,
            2.0,
            unit="ms",
            detail=f"{len(scripts)} scripts, median {statistics.median(scripts) / 1000:.2f} ms, the round {took * 1000:.0f} ms",
        )
    ]
