"""etcd against its bars and its peers, all in one interleaved run on one cluster. Needs the extra `bench`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import holdfast
from holdfast import aio
from holdfast.drivers.base import boot_time, finish
from holdfast.drivers.threads import Threads
from holdfast.stores.etcd.replies import read_lease
from holdfast.stores.etcd.requests import (
    CREATE,
    EQUAL,
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    TXN,
    compare,
    lease_grant,
    op_delete,
    op_put,
    txn,
)
from holdfast.stores.etcd.store import EtcdStore
from holdfast.stores.etcd.url import parse
from holdfast.stores.etcd.wire import Wire
from holdfast.testing import servers
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

from .measure import Verdict, interleaved, report

TASKS = 64
LINES = (2, 32, 256)
HANDOFFS = 20
ROUNDS = 5
MANY = 1000


def main() -> bool:
    with servers.cluster("etcd", 3) as cluster:
        verdicts = [
            *uncontended(cluster),
            *asyncio.run(concurrent(cluster)),
            *asyncio.run(handoff(cluster)),
            asyncio.run(renewal(cluster)),
        ]
    return report("etcd", verdicts)


# ---- one thread, nobody else


def floor(cluster: Cluster[Etcd]) -> Callable[[], object]:
    """Two raw transactions through the same client: create if absent, on a lease; delete."""
    wire = Wire(parse(cluster.members[0].url), Threads())
    lease = read_lease(finish(wire.ask(LEASE_GRANT, lease_grant(600, 0), boot_time() + 3))).lease
    key, value = b"floor/@in/bench\0w" + b"0" * 32, b"x" * 130
    take = txn([compare(key, CREATE, EQUAL, 0)], [op_put(key, value, lease)])
    leave = txn([], [op_delete(key)])

    def cycle() -> None:
        finish(wire.transact("", take, boot_time() + 3))
        finish(wire.transact("", leave, boot_time() + 3))

    return cycle


def uncontended(cluster: Cluster[Etcd]) -> list[Verdict]:
    member = cluster.members[0]
    locks = holdfast.connect(member.url)
    ours = locks.lock("bench")
    peers = sync_peers(member)
    tasks: dict[str, Callable[[], object]] = {
        "floor": floor(cluster),
        "holdfast": lambda: ours.acquire().release(),
        **peers,
    }
    for task in tasks.values():
        task()
    rounds = [interleaved(tasks, rounds=1, batch=5) for _ in range(30)]

    def times(one: str) -> float:
        return statistics.median(taken[one] / taken["floor"] for taken in rounds)

    typical = statistics.median(taken["floor"] for taken in rounds) * 1e3
    shown = ", ".join(f"{name} {times(name):.1f}x" for name in peers)
    command = f"; etcdctl lock {etcdctl(member) / typical * 1e3:.1f}x" if shutil.which("etcdctl") else ""
    locks.close()
    return [
        Verdict(
            "acquire + release, one thread, against two raw transactions",
            times("holdfast"),
            1.15,
            detail=f"floor {typical:.1f} ms; {shown}{command}",
        )
    ]


def sync_peers(member: Etcd) -> dict[str, Callable[[], object]]:
    """Those that are installed and still run. (etcd3 0.12 no longer imports beside a present protobuf.)"""
    found: dict[str, Callable[[], object]] = {}
    with contextlib.suppress(ImportError):
        etcd3gw: Any = importlib.import_module("etcd3gw")
        client = etcd3gw.client(host="127.0.0.1", port=member.port, api_path="/v3/")

        def gateway() -> None:
            lock = client.lock("peer", ttl=30)
            lock.acquire()
            lock.release()

        found["etcd3gw"] = gateway
    return found


def etcdctl(member: Etcd) -> float:
    """A command that takes the lock and does nothing: most of it is the start of two processes."""
    started = time.perf_counter()
    for _ in range(5):
        subprocess.run(["etcdctl", f"--endpoints=127.0.0.1:{member.port}", "lock", "ctl", "true"], check=True)
    return (time.perf_counter() - started) / 5


# ---- many tasks, many names


async def concurrent(cluster: Cluster[Etcd]) -> list[Verdict]:
    """Pairs of acquire and release a second, by 64 tasks that do not meet."""
    url = cluster.members[0].url
    async with aio.connect(url) as locks, contextlib.AsyncExitStack() as stack:

        async def ours(number: int) -> None:
            async with locks.lock(f"bench-{number}"):
                pass

        runs: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {"holdfast": ours}
        runs |= await async_peers(cluster.members[0], stack)
        rates: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(4):
            for name, run in runs.items():
                rates[name].append(await rate(run))
    typical = {name: statistics.median(some) for name, some in rates.items()}
    best = max((rate for name, rate in typical.items() if name != "holdfast"), default=0.0)
    shown = ", ".join(f"{name} {rate:.0f}/s" for name, rate in typical.items())
    if not best:
        return [Verdict("64 tasks: no peer is installed", typical["holdfast"], 0.0, "/s", at_least=True, detail=shown)]
    return [
        Verdict(
            "64 tasks on names of their own, against the best peer",
            typical["holdfast"] / best,
            5.0,
            at_least=True,
            detail=shown,
        )
    ]


async def rate(run: Callable[[int], Awaitable[None]]) -> float:
    done = 0
    end = time.perf_counter() + 1.0

    async def worker(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await run(number)
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(worker(number) for number in range(TASKS)))
    return done / (time.perf_counter() - started)


async def async_peers(
    member: Etcd, stack: contextlib.AsyncExitStack
) -> dict[str, Callable[[int], Coroutine[Any, Any, None]]]:
    found: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {}
    with contextlib.suppress(ImportError):
        aetcd: Any = importlib.import_module("aetcd")
        client = await stack.enter_async_context(aetcd.Client(host="127.0.0.1", port=member.port))

        async def use_aetcd(number: int) -> None:
            async with client.lock(f"peer-{number}".encode(), ttl=30):
                pass

        found["aetcd"] = use_aetcd
    with contextlib.suppress(ImportError):
        etcd3gw: Any = importlib.import_module("etcd3gw")
        local = etcd3gw.client(host="127.0.0.1", port=member.port, api_path="/v3/")

        def gateway(number: int) -> None:
            lock = local.lock(f"gw-{number}", ttl=30)
            lock.acquire()
            lock.release()

        async def use_gateway(number: int) -> None:
            await asyncio.to_thread(gateway, number)

        found["etcd3gw in threads"] = use_gateway
    return found


# ---- handing over


async def handoff(cluster: Cluster[Etcd]) -> list[Verdict]:
    """From the call of release to the return of the next one's acquire; and what that takes in requests."""
    # In turns: what else the machine does meanwhile is then no matter of how long the line is.
    rounds = [{line: await handed_over(cluster.members[0].url, line) for line in LINES} for _ in range(ROUNDS)]
    latency = {line: statistics.median(one[line][0] for one in rounds) for line in LINES}
    requests = {line: statistics.median(one[line][1] for one in rounds) for line in LINES}
    first, *_, last = LINES
    longer = statistics.median(one[last][0] / one[first][0] for one in rounds)
    shown = ", ".join(f"{line}: {latency[line] * 1e3:.1f} ms, {requests[line]:.1f} requests" for line in LINES)
    return [
        Verdict(f"handoff with {last} in line against {first}: latency", longer, 1.25, detail=shown),
        Verdict(f"handoff with {last} in line against {first}: requests", requests[last] / requests[first], 1.1),
    ]


async def handed_over(url: str, line: int) -> tuple[float, float]:
    async with contextlib.AsyncExitStack() as stack:
        crew = [await stack.enter_async_context(aio.connect(url)) for _ in range(2)]
        counts = [count_requests(locks) for locks in crew]
        taken: list[float] = []
        left_at = 0.0
        over = asyncio.Event()

        async def member(locks: aio.Locks) -> None:
            nonlocal left_at
            while not over.is_set():
                lease = await locks.lock("handoff").acquire(timeout=60)
                if left_at:
                    taken.append(time.perf_counter() - left_at)
                if len(taken) >= HANDOFFS:
                    over.set()
                    left_at = 0.0
                else:
                    await asyncio.sleep(0.005)  # so that the next in line has settled
                    left_at = time.perf_counter()
                await lease.release()

        tasks = [asyncio.create_task(member(crew[number % 2])) for number in range(line + 1)]
        while len((await crew[0].inspect("handoff")).waiters) < line - 1:  # noqa: ASYNC110 - until they stand in line
            await asyncio.sleep(0.01)
        taken.clear()
        for count in counts:
            count[0] = 0
        await over.wait()
        asked = sum(count[0] for count in counts)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return statistics.median(taken), asked / HANDOFFS


def count_requests(locks: aio.Locks) -> list[int]:
    """Every transaction, before any are gathered into one."""
    store = locks._engine.store
    assert isinstance(store, EtcdStore)
    count = [0]
    transact = store._wire.transact

    async def counted(name: str, transaction: bytes, deadline: float) -> Any:
        count[0] += 1
        return await transact(name, transaction, deadline)

    store._wire.transact = counted  # type: ignore[method-assign]
    return count


# ---- keeping


async def renewal(cluster: Cluster[Etcd]) -> Verdict:
    """Keep-alives in one round of renewals of a thousand locks."""
    rounds: list[list[bytes]] = []
    async with aio.connect(cluster.url) as locks:
        store = locks._engine.store
        assert isinstance(store, EtcdStore)
        ask_apart = store._wire.ask_apart

        async def counted(calls: Any, deadline: float) -> list[bytes | Exception]:
            rounds.append([path for path, _ in calls])
            return await ask_apart(calls, deadline)

        leases = [await locks.lock("one", ttl=3).acquire()]
        leases += await asyncio.gather(*(locks.lock(f"many-{n}", ttl=3).acquire() for n in range(MANY - 1)))
        await locks._engine.store.renew([lease._grant for lease in leases], 3)
        store._wire.ask_apart = counted  # type: ignore[method-assign]
        await locks._engine.store.renew([lease._grant for lease in leases], 3)
        await asyncio.gather(*(lease.release() for lease in leases))
    last = rounds[0]
    return Verdict(
        f"keep-alives to renew {MANY} locks",
        last.count(LEASE_KEEP_ALIVE),
        1,
        "",
        detail=f"and {last.count(TXN)} transactions that see that every key is there",
    )
