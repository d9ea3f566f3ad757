"""ZooKeeper against its bars and kazoo's own Lock, on one ensemble of three that writes to disk, all in one run."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from kazoo.client import KazooClient

import holdfast
from holdfast import aio
from holdfast.claim import Claim, Grant, new_holder
from holdfast.stores.zookeeper.sessions import Sessions
from holdfast.stores.zookeeper.store import ZooKeeperStore
from holdfast.stores.zookeeper.wire import Reply
from holdfast.testing import servers
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.zookeeper import ZooKeeper

from .measure import Verdict, interleaved, report

WAITERS = (2, 32, 256)
HANDOFFS = 25  # a round
ROUNDS = 4
LOCKS = 1000


def main() -> bool:
    with servers.cluster("zookeeper", 3, "maxSessionTimeout=100000") as ensemble:
        verdicts = [*uncontended(ensemble), *asyncio.run(handoffs(ensemble)), *asyncio.run(renewal(ensemble))]
    return report("ZooKeeper", verdicts)


def uncontended(ensemble: Cluster[ZooKeeper]) -> list[Verdict]:
    """Everybody talks to the same member: some are leaders, and nearer to the disk."""
    host = f"127.0.0.1:{ensemble.leader().port}"
    client = KazooClient(host, timeout=40)
    client.start()
    client.ensure_path("/floor")
    theirs = client.Lock("/kazoo")
    with holdfast.connect(f"zookeeper://{host}/ours") as locks:
        lock = locks.lock("bench")

        def floor() -> None:
            node = client.create("/floor/lock-", b"", ephemeral=True, sequence=True)
            client.get_children("/floor")
            client.delete(node)

        def ours() -> None:
            lock.acquire().release()

        def kazoo() -> None:
            theirs.acquire()
            theirs.release()

        taken = interleaved({"floor": floor, "ours": ours, "kazoo": kazoo}, rounds=20, batch=10)
    client.stop()
    client.close()
    detail = ", ".join(f"{name} {seconds * 1000:.2f} ms" for name, seconds in taken.items())
    return [
        Verdict(
            "acquire + release, times create + get_children + delete",
            taken["ours"] / taken["floor"],
            1.2,
            detail=detail,
        ),
        Verdict("kazoo's Lock, times ours", taken["kazoo"] / taken["ours"], 1.0, at_least=True),
    ]


def opened(locks: aio.Locks) -> Sessions:
    store = locks._engine.store
    assert isinstance(store, ZooKeeperStore)  # so that mypy tells when a store has other words
    return store._sessions


@contextmanager
def counted(locks: aio.Locks) -> Iterator[list[object]]:
    """What is sent meanwhile, over all sessions of a connection."""
    sent: list[object] = []
    (session,) = opened(locks)._open.values()
    call = session.client.call

    def count(request: Any, reply: Reply) -> None:
        sent.append(request)
        call(request, reply)

    session.client.call = count  # type: ignore[method-assign]
    yield sent
    session.client.call = call  # type: ignore[method-assign]


def in_line(locks: aio.Locks) -> int:
    return sum(record.watching is not None for record in list(opened(locks).records.values()))


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.002)


async def handoff(locks: aio.Locks, waiters: int) -> tuple[list[float], float]:
    """Seconds from a release to the next one's grant, and requests, with so many always in line."""
    taken: list[float] = []
    released = 0.0
    left = HANDOFFS
    entered = asyncio.Event()
    lock = partial(locks.lock, f"handoff-{waiters}", ttl=60)

    def whole() -> bool:
        return left <= 0 or in_line(locks) >= waiters

    async def work() -> None:
        nonlocal released, left
        while left > 0:
            lease = await lock().acquire()
            taken.append(time.perf_counter() - released)
            entered.set()
            left -= 1
            # The line is whole again before it moves on: what is measured is the handoff, not the joining.
            await until(whole)
            entered.clear()
            released = time.perf_counter()
            await lease.release()
            if left > 0:
                await entered.wait()  # all are in one process: joining again would take the next one's time

    first = await lock().acquire()
    tasks = [asyncio.create_task(work()) for _ in range(waiters + 1)]
    await until(lambda: in_line(locks) > waiters)
    with counted(locks) as sent:
        released = time.perf_counter()
        await first.release()
        await until(lambda: left <= 0)
        requests = len(sent)
    await asyncio.gather(*tasks)
    return taken[:HANDOFFS], requests / HANDOFFS


async def handoffs(ensemble: Cluster[ZooKeeper]) -> list[Verdict]:
    measured: dict[int, tuple[float, float]] = {}
    async with aio.connect(f"zookeeper://127.0.0.1:{ensemble.leader().port}/handoff") as locks:
        await handoff(locks, 4)  # warm
        rounds = [[await handoff(locks, waiters) for waiters in WAITERS] for _ in range(ROUNDS)]
    for waiters, some in zip(WAITERS, zip(*rounds, strict=True), strict=True):
        every = [seconds for taken, _ in some for seconds in taken]
        measured[waiters] = statistics.median(every), statistics.median(requests for _, requests in some)
    few, many = measured[WAITERS[0]], measured[WAITERS[-1]]
    latencies = [seconds for seconds, _ in measured.values()]
    detail = ", ".join(f"{waiters}: {seconds * 1000:.2f} ms" for waiters, (seconds, _) in measured.items())
    requests = ", ".join(f"{waiters}: {count:.1f}" for waiters, (_, count) in measured.items())
    return [
        Verdict(
            "handoff, the slowest length of line, times the fastest",
            max(latencies) / min(latencies),
            1.25,
            detail=detail,
        ),
        Verdict("requests a handoff with 256 waiters, times those with 2", many[1] / few[1], 1.25, detail=requests),
    ]


async def renewal(ensemble: Cluster[ZooKeeper]) -> list[Verdict]:
    async with aio.connect(f"zookeeper://127.0.0.1:{ensemble.leader().port}/renewal") as locks:
        store: Any = locks._engine.store
        claims = [Claim(f"x{number}", new_holder(), "bench", 60.0) for number in range(LOCKS)]
        grants: list[Grant] = []
        for at in range(0, LOCKS, 100):
            grants += await asyncio.gather(*map(store.claim, claims[at : at + 100]))
        with counted(locks) as sent:
            started = time.perf_counter()
            assert await store.renew(grants, 10.0) == grants
            seconds = time.perf_counter() - started
        await asyncio.gather(*map(store.release, claims))
    detail = f"{seconds * 1000:.0f} ms"
    return [Verdict(f"requests that keep {LOCKS} locks", float(len(sent)), 1, unit="", detail=detail)]


if __name__ == "__main__":
    main()
