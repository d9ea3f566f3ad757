"""Consul against its floor and its peers, and what a handoff costs with 2, 32 and 256 in line."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import json
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast import aio
from holdfast.stores.base import Store
from holdfast.stores.consul.replies import Answer, Reader
from holdfast.stores.consul.store import ConsulStore
from holdfast.testing import servers
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.consul import Consul

from .measure import Verdict, interleaved, report

HANDOFFS = 40
HELD = 1000


def main() -> bool:
    with servers.cluster("consul", 3) as cluster:
        verdicts = [*uncontended(cluster), *asyncio.run(handoffs(cluster)), *asyncio.run(renewal(cluster))]
        print_cli(cluster)
    return report("Consul, three servers", verdicts)


# ---- one thread, nobody else


class Floor:
    """A bare socket: a transaction that takes a key for a session, and one that deletes it. Nothing else can be less."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps({"TTL": "60s", "LockDelay": "0s", "Behavior": "delete", "Checks": [], "NodeChecks": []})
        self._session = json.loads(self.ask("PUT", "/v1/session/create", body))["ID"]

    def ask(self, method: str, path: str, body: str) -> bytes:
        self._socket.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        reader = Reader()
        while (answer := reader.feed(self._socket.recv(65536))) is None:
            pass
        return answer.body

    def cycle(self) -> None:
        value = base64.b64encode(b"x" * 150).decode()
        take = [{"KV": {"Verb": "lock", "Key": "floor", "Session": self._session, "Value": value}}]
        self.ask("PUT", "/v1/txn", json.dumps(take))
        self.ask("PUT", "/v1/txn", json.dumps([{"KV": {"Verb": "delete", "Key": "floor"}}]))


def uncontended(cluster: Cluster[Consul]) -> list[Verdict]:
    locks = holdfast.connect(cluster.url)
    ours = locks.lock("bench")
    tasks: dict[str, Callable[[], object]] = {
        "floor": Floor(cluster.members[0].address).cycle,
        "holdfast": lambda: ours.acquire().release(),
        **peers(cluster.members[0]),
    }
    for task in tasks.values():
        task()
    rounds = [interleaved(tasks, rounds=1, batch=5) for _ in range(15)]

    def times(one: str) -> float:
        return statistics.median(taken[one] / taken["floor"] for taken in rounds)

    floor = statistics.median(taken["floor"] for taken in rounds)
    shown = ", ".join(f"{name} {times(name):.2f}x" for name in tasks if name not in ("floor", "holdfast"))
    locks.close()
    what = "acquire + release, one thread, against two bare transactions"
    return [Verdict(what, times("holdfast"), 1.3, detail=f"floor {floor * 1000:.1f} ms; {shown}")]


def peers(server: Consul) -> dict[str, Callable[[], object]]:
    """py-consul has no lock of its own: the recipe of its documentation, a session and KV acquire."""
    found: dict[str, Callable[[], object]] = {}
    with contextlib.suppress(ImportError):
        consul: Any = importlib.import_module("consul")
        client = consul.Consul(host="127.0.0.1", port=server.port)
        session = client.session.create(ttl=60, lock_delay=0)

        def py_consul() -> None:
            client.kv.put("py-consul", "x", acquire=session)
            client.kv.put("py-consul", "x", release=session)

        found["py-consul"] = py_consul
    return found


def print_cli(cluster: Cluster[Consul]) -> None:
    """For the record: whole commands are not to be compared with calls."""
    server = cluster.members[0]
    start = time.perf_counter()
    command = [server.program, "lock", f"-http-addr=127.0.0.1:{server.port}", "cli", "true"]
    subprocess.run(command, check=True, capture_output=True)
    print(f"  (`consul lock cli true`, a whole command: {(time.perf_counter() - start) * 1000:.0f} ms)")


# ---- handoff


class Counting:
    """How often a store asks its server."""

    def __init__(self, store: Store) -> None:
        assert isinstance(store, ConsulStore)  # so that mypy tells when the wire has other words
        self.count = 0
        ask = store.wire.ask

        async def counted(
            method: str, path: str, body: bytes, deadline: float, *, apart: bool = False, waits: bool = False
        ) -> Answer:
            self.count += 1
            return await ask(method, path, body, deadline, apart=apart, waits=waits)

        store.wire.ask = counted  # type: ignore[method-assign]


async def handoffs(cluster: Cluster[Consul]) -> list[Verdict]:
    """In turns, so that a slow moment of the machine falls on all alike."""
    sizes = (2, 32, 256)
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    asked: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(3):
        for size in sizes:
            seconds, each = await line_of(cluster.url, size, HANDOFFS)
            taken[size] += seconds
            asked[size].append(each)
    latency = {size: statistics.median(taken[size]) for size in sizes}
    requests = {size: statistics.median(asked[size]) for size in sizes}
    told = ", ".join(f"{size}: {latency[size] * 1000:.1f} ms and {requests[size]:.1f} requests" for size in sizes)
    return [
        Verdict("handoff latency, 256 in line against 2", latency[256] / latency[2], 1.25, detail=told),
        Verdict("requests per handoff, 256 in line against 2", requests[256] / requests[2], 1.1),
    ]


async def line_of(url: str, size: int, count: int) -> tuple[list[float], float]:
    """Release to the next one's entry, with always `size` in line; and the requests that each took."""
    async with aio.connect(url, label="bench") as locks:
        left_at = 0.0
        taken: list[float] = []
        done, settled = asyncio.Event(), asyncio.Event()

        async def come_and_go() -> None:
            nonlocal left_at
            while True:
                lease = await locks.lock("line", ttl=300).acquire(timeout=120)
                taken.append(time.perf_counter() - left_at)
                if len(taken) > count:
                    done.set()
                else:
                    await settled.wait()
                left_at = time.perf_counter()
                await lease.release()
                if done.is_set():
                    return

        first = await locks.lock("line", ttl=300).acquire(timeout=60)
        tasks = [asyncio.ensure_future(come_and_go()) for _ in range(size)]
        await all_in_line(locks, size)
        settled.set()
        counting = Counting(locks._engine.store)
        left_at = time.perf_counter()
        await first.release()
        await done.wait()
        requests = counting.count / len(taken)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return taken[3:], requests


async def all_in_line(locks: aio.Locks, size: int) -> None:
    for _ in range(2000):
        if len((await locks.inspect("line")).waiters) >= size:
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"not all of {size} came into the line")


# ---- a thousand at once


async def renewal(cluster: Cluster[Consul]) -> list[Verdict]:
    async with aio.connect(cluster.url) as locks:
        leases: list[aio.Lease] = []
        for start in range(0, HELD, 50):
            some = range(start, start + 50)
            leases += await asyncio.gather(*(locks.lock(f"held:{n}", ttl=300).acquire() for n in some))
        grants = [lease._grant for lease in leases]
        store = locks._engine.store
        counting = Counting(store)
        began = time.perf_counter()
        answers = await store.renew(grants, 30)
        took = (time.perf_counter() - began) * 1000
        assert all(answers)
        requests = counting.count
    detail = f"{took:.0f} ms for all"
    return [Verdict(f"requests to renew {HELD} locks of one process", requests, 2, unit="", detail=detail)]
