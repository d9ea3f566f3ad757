"""PostgreSQL against its bars and its peer, all in one interleaved run. Needs the extra `bench` (sqlalchemy-dlock)."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

import holdfast
from holdfast import aio
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.postgresql import schema
from holdfast.testing import servers
from holdfast.testing.servers.postgresql import PostgreSQL

from .measure import Verdict, interleaved, report

TASKS = 64
PROCESSES = 8
SECONDS = 3.0  # long enough that one acquisition more or less is no unfairness
ROUNDS = 2
# Seconds inside, and elsewhere. In a tight loop a poller that asks again at once passes the lock to itself all the time,
# unopposed, while the others sleep: many cycles, and nobody else gets a turn. With something to do elsewhere it cannot.
TIGHT, SPARSE = (0.0, 0.0), (0.001, 0.02)


def main() -> bool:
    with servers.start("postgresql") as server:
        server.query(schema(server.url))
        verdicts = [
            *uncontended(server),
            *asyncio.run(concurrent(server)),
            *contended(server),
            *renewal(server),
            *bloat(server),
        ]
    return report("PostgreSQL", verdicts)


# ---- one thread, nobody else


def updates(server: PostgreSQL, table: str, commit: str) -> Callable[[], object]:
    """The floor: two UPDATEs of one row through psycopg, which prepares them by itself."""
    connection = psycopg.connect(server.url, autocommit=True)
    connection.execute(f"SET synchronous_commit = {commit}")
    connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int) WITH (fillfactor = 50)")
    connection.execute(f"INSERT INTO {table} VALUES (1, 0)")  # noqa: S608
    update = f"UPDATE {table} SET v = v + 1 WHERE id = %s"  # noqa: S608

    def cycle() -> None:
        connection.execute(update, (1,))
        connection.execute(update, (1,))

    return cycle


def uncontended(server: PostgreSQL) -> list[Verdict]:
    durable, relaxed = holdfast.connect(server.url), holdfast.connect(server.url + "?durability=relaxed")

    session = holdfast.connect(server.url + "?mode=session")
    volatile = holdfast.connect(server.url + "?mode=session&durability=relaxed")
    one, two, three = durable.lock("bench"), relaxed.lock("bench-relaxed"), session.lock("bench-session")
    four = volatile.lock("bench-session-relaxed")
    tasks: dict[str, Callable[[], object]] = {
        "two durable updates": updates(server, "durable", "on"),
        "holdfast": lambda: one.acquire().release(),
        "two relaxed updates": updates(server, "relaxed", "off"),
        "relaxed": lambda: two.acquire().release(),
        "session": lambda: three.acquire().release(),
        "session, relaxed": lambda: four.acquire().release(),
        **peer(server),
    }
    for task in tasks.values():
        for _ in range(10):
            task()
    rounds = [interleaved(tasks, rounds=1, batch=15) for _ in range(30)]

    def times(ours: str, floor: str) -> float:
        return statistics.median(taken[ours] / taken[floor] for taken in rounds)

    def shown(*names: str) -> str:
        return ", ".join(f"{name} {statistics.median(taken[name] for taken in rounds) * 1e6:.0f} µs" for name in names)

    for locks in (durable, relaxed, session, volatile):
        locks.close()
    return [
        Verdict(
            "acquire + release, durable, against two durable UPDATEs",
            times("holdfast", "two durable updates"),
            0.9,
            detail=shown("two durable updates", "holdfast", "session", *peer(server)),
        ),
        Verdict(
            "acquire + release, relaxed, against two relaxed UPDATEs",
            times("relaxed", "two relaxed updates"),
            1.3,
            detail=shown("two relaxed updates", "relaxed"),
        ),
        *(
            # Its lock has no token. Ours has one; relaxed, it waits for no disk either.
            Verdict(
                f"session locks, relaxed, against {name}",
                times("session, relaxed", name),
                1.1,
                detail=shown("session, relaxed", "session", name),
            )
            for name in tasks
            if name.startswith("sqlalchemy")
        ),
    ]


def peer(server: PostgreSQL) -> dict[str, Callable[[], object]]:
    """sqlalchemy-dlock: an advisory lock on a connection that the caller brings."""
    try:
        dlock: Any = importlib.import_module("sqlalchemy_dlock")
        sqlalchemy: Any = importlib.import_module("sqlalchemy")
    except ImportError:
        return {}
    engine = sqlalchemy.create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"))
    connection = engine.connect()

    def cycle() -> None:
        with dlock.create_sadlock(connection, "bench"):
            pass

    return {"sqlalchemy-dlock": cycle}


# ---- asyncio


async def concurrent(server: PostgreSQL) -> list[Verdict]:
    async with aio.connect(server.url) as locks:

        async def one(number: int, cycles: int) -> None:
            lock = locks.lock(f"task{number}")
            for _ in range(cycles):
                lease = await lock.acquire()
                await lease.release()

        async def rate(tasks: int, cycles: int) -> float:
            started = time.perf_counter()
            await asyncio.gather(*(one(number, cycles) for number in range(tasks)))
            return tasks * cycles / (time.perf_counter() - started)

        await rate(TASKS, 2)
        ratios, fastest = [], 0.0
        for _ in range(7):
            together = await rate(TASKS, 10)
            fastest = max(fastest, together)
            ratios.append(together / await rate(1, 100))
    detail = f"{fastest:.0f} cycles/s"
    return [Verdict(f"asyncio, {TASKS} tasks against one", statistics.median(ratios), 3, at_least=True, detail=detail)]


# ---- eight processes, one name


Work = tuple[float, float]


def holdfast_worker(url: str, work: Work, seconds: float, results: Any, ready: Any) -> None:
    locks = holdfast.connect(url)
    lock = locks.lock("contended")
    lock.acquire().release()

    def cycle() -> bool:
        lease = lock.acquire()
        _pass(work[0])
        return lease.release()

    _count(cycle, work, seconds, results, ready)
    locks.close()


def peer_worker(url: str, work: Work, seconds: float, results: Any, ready: Any) -> None:
    dlock: Any = importlib.import_module("sqlalchemy_dlock")
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    connection = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).connect()

    def cycle() -> bool:
        lock = dlock.create_sadlock(connection, "contended")
        if not lock.acquire(timeout=seconds):
            return False
        _pass(work[0])
        lock.release()
        return True

    _count(cycle, work, seconds, results, ready)


def _count(cycle: Callable[[], bool], work: Work, seconds: float, results: Any, ready: Any) -> None:
    count = 0
    ready.wait()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        count += cycle()
        _pass(work[1])
    results.put(count)


def _pass(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def crowd(worker: Callable[..., None], url: str, work: Work) -> list[int]:
    context = multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(PROCESSES)
    processes = [context.Process(target=worker, args=(url, work, SECONDS, results, ready)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    counts = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    return counts


def contended(server: PostgreSQL) -> list[Verdict]:
    """Throughput and fairness belong together: see TIGHT."""
    there = bool(peer(server))
    rows: dict[str, tuple[str, Work]] = {
        "a tight loop": ("", TIGHT),
        "a tight loop, ?mode=session": ("?mode=session", TIGHT),
        "a tight loop, ?mode=session&durability=relaxed": ("?mode=session&durability=relaxed", TIGHT),
        "1 ms inside, 20 ms elsewhere": ("", SPARSE),
    }
    ours: dict[str, list[list[int]]] = {what: [] for what in rows}
    theirs: dict[Work, list[list[int]]] = {TIGHT: [], SPARSE: []}
    for _ in range(ROUNDS):
        for work in theirs:
            if there:
                theirs[work].append(crowd(peer_worker, server.url, work))
            for what, (options, same) in rows.items():
                if same == work:
                    ours[what].append(crowd(holdfast_worker, server.url + options, work))
    verdicts = [against_parts(server, ours["a tight loop"])]
    for what, (_, work) in rows.items():
        peers = theirs[work]
        times = [sum(one) / max(sum(other), 1) for one, other in zip(ours[what], peers, strict=False)]
        said = f"{_rate(ours[what])}; sqlalchemy-dlock {_rate(peers)}" if there else "sqlalchemy-dlock is not installed"
        verdicts += [
            Verdict(
                f"{PROCESSES} processes, one name, {what}: against sqlalchemy-dlock with a timeout",
                statistics.median(times) if times else float("nan"),
                3,
                at_least=True,
                detail=said,
            ),
            Verdict("  fairness there: fewest / most acquisitions", _fairness(ours[what]), 0.95, "", at_least=True),
        ]
    return verdicts


def against_parts(server: PostgreSQL, rounds: list[list[int]]) -> Verdict:
    """A handoff cannot be quicker than a NOTIFY that is heard and a claim that is on the disk."""
    with (
        holdfast.connect(server.url) as locks,
        psycopg.connect(server.url, autocommit=True) as ringing,
        psycopg.connect(server.url, autocommit=True) as hearing,
    ):
        hearing.execute("LISTEN parts")

        def bell() -> None:
            ringing.execute("NOTIFY parts")
            assert list(hearing.notifies(timeout=10, stop_after=1))

        bells, claims = [], []
        lock = locks.lock("parts")
        for _ in range(200):
            started = time.perf_counter()
            bell()
            heard = time.perf_counter()
            lease = lock.acquire()
            bells.append(heard - started)
            claims.append(time.perf_counter() - heard)
            lease.release()
    rung, claimed = statistics.median(bells), statistics.median(claims)
    handoff = statistics.median(SECONDS / sum(counts) for counts in rounds)
    parts = rung + claimed
    told = f"NOTIFY {rung * 1e6:.0f} µs, claim {claimed * 1e6:.0f} µs, handoff {handoff * 1e6:.0f} µs"
    what = f"{PROCESSES} processes, one name, a tight loop: a handoff against a NOTIFY and a claim, alone"
    return Verdict(what, handoff / parts, 1.3, detail=told)


def _fairness(rounds: list[list[int]]) -> float:
    return statistics.median(min(counts) / max(counts) for counts in rounds)


def _rate(rounds: list[list[int]]) -> str:
    rate = statistics.median(sum(counts) / SECONDS for counts in rounds)
    return f"{rate:.0f}/s, fairness {_fairness(rounds):.2f}"


# ---- ten thousand leases


def cpu_of(pids: list[str]) -> float:
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / 100


def renewal(server: PostgreSQL) -> list[Verdict]:
    locks = holdfast.connect(server.url + "?durability=relaxed", label="renewal")
    store = locks._engine.store
    grants: list[Grant] = []
    for number in range(10_000):
        grant = finish(store.claim(Claim(f"held:{number}", new_holder(), "bench", 30.0)))
        assert isinstance(grant, Grant)
        grants.append(grant)
    finish(store.renew(grants, 10.0))
    # All of this process's connections: only one of them has anything to do.
    ours_there = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'holdfast%'"
    pids = [pid for (pid,) in server.query(ours_there)]
    assert pids
    rounds = 5
    ours, theirs, started = resource.getrusage(resource.RUSAGE_SELF), cpu_of(pids), time.perf_counter()
    for _ in range(rounds):
        assert all(finish(store.renew(grants, 10.0)))
    took = (time.perf_counter() - started) / rounds
    now = resource.getrusage(resource.RUSAGE_SELF)
    client = (now.ru_utime + now.ru_stime - ours.ru_utime - ours.ru_stime) / rounds
    backend = (cpu_of(pids) - theirs) / rounds
    locks.close()
    each = f"client {client * 1000:.0f} ms, server {backend * 1000:.0f} ms, the round {took * 1000:.0f} ms"
    # Renewed every 10 s, a third of the default ttl.
    return [Verdict("10,000 leases renewed: of a core, on either side", max(client, backend) * 10, 5, "%", detail=each)]


# ---- what is left behind


def bloat(server: PostgreSQL, cycles: int = 20_000) -> list[Verdict]:
    """Table and index after many cycles, with autovacuum off: pages are kept tidy by the updates themselves."""
    server.query("TRUNCATE holdfast.locks")
    server.query("ALTER TABLE holdfast.locks SET (autovacuum_enabled = off)")
    locks = holdfast.connect(server.url + "?durability=relaxed")
    some = [locks.lock(f"bloat:{number}") for number in range(100)]
    for number in range(cycles):
        some[number % 100].acquire().release()
    locks.close()
    ((table, index),) = server.query("SELECT pg_relation_size('holdfast.locks'), pg_indexes_size('holdfast.locks')")
    detail = f"100 names, {cycles} cycles, autovacuum off: table {int(table) // 1024} kB, index {int(index) // 1024} kB"
    return [Verdict("bloat: kB left behind", (int(table) + int(index)) / 1024, 400, "kB", detail=detail)]
