"""`confirm=False` against the same confirmed and against the floor: beside the server, and as far from it as users are.

Names differ from cycle to cycle, as they do where `confirm=False` is of use: who takes the same name again waits for its release.
Where the disk decides there is a pause between two cycles, as there is in use. Without one, the next claim waits for the disk
behind the release before it: raw transactions whose second nobody waits for take 0.77x of the floor, too.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import holdfast
from holdfast import Locks
from holdfast.stores.postgresql import schema
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import Redis

from . import etcd, postgresql
from .measure import Verdict, interleaved
from .redis import floor

AWAY = 0.0005  # seconds each way, as between two machines of one data centre
PAUSE = 0.01  # seconds, not counted: until what was left behind is done
_NAMES = 64
Cycle = Callable[[], object]


def on_redis(redis: Redis) -> list[Verdict]:
    """One thread."""
    with _far(redis.address) as far:
        return [
            *_against_two_round_trips("Redis beside us", redis, redis.address, 40),
            *_against_two_round_trips(f"Redis {AWAY * 1e3:g} ms away", redis, far, 10),
        ]


def _against_two_round_trips(where: str, redis: Redis, address: tuple[str, int], batch: int) -> list[Verdict]:
    with holdfast.connect("redis://{}:{}".format(*address)) as locks:
        tasks = {"floor": floor(redis, address), "confirmed": cycle(locks, True), "confirm=False": cycle(locks, False)}
        times, shown = in_turns(tasks, batch)
    return [
        Verdict(f"{where}: confirm=False against the same, confirmed", times("confirm=False", "confirmed"), 0.65),
        Verdict(
            f"{where}: confirm=False against two raw round trips", times("confirm=False", "floor"), 1.0, detail=shown
        ),
    ]


def on_disk() -> list[Verdict]:
    """Where a claim is on disk before it is answered. The servers' folders must be on one: TMPDIR says where they are."""
    with servers.cluster("etcd", 3) as cluster, holdfast.connect(cluster.members[0].url) as locks:
        verdicts = [_against_two_transactions("etcd", etcd.floor(cluster), locks)]
    with servers.start("postgresql") as server:
        server.query(schema(server.url))
        with holdfast.connect(server.url) as locks:
            floor_there = postgresql.updates(server, "durable", "on")
            verdicts.append(_against_two_transactions("PostgreSQL", floor_there, locks))
    return verdicts


def _against_two_transactions(where: str, floor_there: Cycle, locks: Locks) -> Verdict:
    tasks = {"floor": floor_there, "confirmed": cycle(locks, True), "confirm=False": cycle(locks, False)}
    times, shown = in_turns(tasks, 1, PAUSE)
    return Verdict(
        f"{where}: confirm=False against two raw transactions", times("confirm=False", "floor"), 0.7, detail=shown
    )


def cycle(locks: Locks, confirm: bool) -> Cycle:
    some = itertools.cycle([locks.lock(f"{confirm} {number}", confirm=confirm) for number in range(_NAMES)])
    return lambda: next(some).acquire().release()


def in_turns(tasks: dict[str, Cycle], batch: int, pause: float = 0.0) -> tuple[Callable[[str, str], float], str]:
    """How one compares with another, and all of them in words."""

    def burst(one: str) -> float:
        time.sleep(pause)
        return interleaved({one: tasks[one]}, rounds=1, batch=batch)[one]

    for task in tasks.values():
        for _ in range(_NAMES):
            task()
    rounds = [{one: burst(one) for one in tasks} for _ in range(40)]
    shown = ", ".join(f"{one} {statistics.median(taken[one] for taken in rounds) * 1e6:.0f} µs" for one in tasks)
    return lambda one, other: statistics.median(taken[one] / taken[other] for taken in rounds), shown


@contextmanager
def _far(address: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """The same server, so far away. The way there is a process of its own: ours is what is measured."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_way, args=(address, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("over")
        process.join(30)


def _way(address: tuple[str, int], pipe: Any) -> None:
    with Proxy(address) as proxy:
        proxy.to_server.delay(AWAY)
        proxy.to_client.delay(AWAY)
        pipe.send(proxy.address)
        pipe.recv()
