"""Locks taken and left per second against processes: all on one name, and each on a name of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import holdfast
from holdfast.verify.libraries import adapters

from ..where import started
from .found import Curve

PROCESSES = (1, 2, 4, 8, 16, 32)
SECONDS = 0.7
ONE, OWN = "one name", "own names"

# Those whose lock can stand beside ours: what they take is waited for, and no other library is asked to poll faster than it does.
PEERS: dict[str, dict[str, str]] = {
    "sqlite": {"FileLock": "filelock"},
    "redis": {"RedisPy": "redis-py", "PythonRedisLock": "python-redis-lock"},
    "etcd": {"Etcd3gw": "etcd3gw"},
    "zookeeper": {"Kazoo": "kazoo"},
    "postgresql": {"SqlalchemyDlock": "sqlalchemy-dlock"},
}
STORES = ("sqlite", "redis", "redlock", "etcd", "zookeeper", "consul", "postgresql", "mysql")


def curves(stores: tuple[str, ...], tell: Callable[[str], None]) -> Iterator[Curve]:
    found = {
        ONE: Curve("processes-one-name", "All processes want one name", "processes", "taken and left per second"),
        OWN: Curve(
            "processes-own-names", "Each process has a name of its own", "processes", "taken and left per second"
        ),
    }
    for store in stores:
        with started(store) as (url, _):
            for library, name in {"": store, **PEERS.get(store, {})}.items():
                if library and not _runs(library, url):
                    tell(f"processes: {name} does not run here")
                    continue
                tell(f"processes: {name}")
                with crew(library, url) as workers:
                    for count in PROCESSES:
                        for what, curve in found.items():
                            curve.add(name, count, rate(workers[:count], what) or 0.5)
    yield from found.values()


def _runs(library: str, url: str) -> bool:
    try:
        adapter = getattr(adapters, library)(url, 30.0)
        adapter.give(adapter.take("does it run?", 5.0))
    except Exception:
        return False
    return True


def rate(workers: list[Any], what: str) -> float:
    at = time.monotonic() + 0.1
    for number, worker in enumerate(workers):
        worker.send((f"own {number}" if what == OWN else f"one of {len(workers)}", at, SECONDS))
    return float(sum(worker.recv() for worker in workers)) / SECONDS


@contextmanager
def crew(library: str, url: str) -> Iterator[list[Any]]:
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(PROCESSES[-1])]
    processes = [context.Process(target=worker, args=(library, url, theirs), daemon=True) for _, theirs in pairs]
    for process in processes:
        process.start()
    try:
        for ours, _ in pairs:
            assert ours.recv() == "ready"
        yield [ours for ours, _ in pairs]
    finally:
        for ours, _ in pairs:
            ours.send(None)
        for process in processes:
            process.join(10)
            process.kill()


def worker(library: str, url: str, orders: Any) -> None:
    if library:
        adapter = getattr(adapters, library)(url, 30.0)

        def cycle(name: str) -> None:
            if (held := adapter.take(name, 20.0)) is not None:
                adapter.give(held)
    else:
        locks = holdfast.connect(url)

        def cycle(name: str) -> None:
            with locks.lock(name):
                pass

    orders.send("ready")
    while order := orders.recv():
        name, at, seconds = order
        cycle(name + " warm")
        time.sleep(max(0.0, at - time.monotonic()))
        count = 0
        while time.monotonic() < at + seconds:
            cycle(name)
            count += 1
        orders.send(count)
