"""Eight processes at one store, killed (kill -9) and stopped (SIGSTOP) at random; and what they say they have done.

A nursery imports everything once and forks the workers, so that a killed one is replaced at once. Each worker says what it has
done, line by line, in a file that survives it. Run as `python -m tests.lockfree.fire optimistic|idempotency STORE URL HOW`.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
WORKERS = 8
ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "10"))  # make soak: 200
PATIENCE = 60.0
SQL = ("sqlite", "postgresql", "mariadb")
DRIVERS = {
    "sqlite": "sqlite3",
    "postgresql": "psycopg",
    "mariadb": "pymysql",
    "redis": "redis",
    "etcd": "httpx",
    "zookeeper": "kazoo.client",
}

Say = Callable[[Any], None]
Worker = Callable[[int, Callable[[], bool], Say], None]  # its number, is it over?, where to say what was done


def burn(work: Worker, wanted: int, faults: int) -> dict[str, Any]:
    """What was said (at least `wanted` lines), and how often somebody was killed and stopped (at least `faults` times)."""
    dice = random.Random(os.urandom(8))
    said = tempfile.TemporaryFile(mode="w+b", buffering=0)  # noqa: SIM115
    numbers = iter(range(1_000_000))
    over = mmap.mmap(-1, 1)  # shared with the workers

    def spawn() -> int:
        number = next(numbers)
        pid = os.fork()
        if pid:
            return pid
        try:
            work(number, lambda: over[0] == 1, lambda what: _say(said.fileno(), what))
        except BaseException as error:
            _say(said.fileno(), {"error": repr(error)})
            os._exit(1)
        os._exit(0)

    alive = [spawn() for _ in range(WORKERS)]
    kills = stops = 0
    deadline = time.monotonic() + PATIENCE + 2 * ROUNDS
    while kills + stops < faults or _lines(said.fileno()) < wanted:
        if time.monotonic() > deadline:
            over[0] = 1
            raise SystemExit(f"only {_lines(said.fileno())} were done, {kills} killed and {stops} stopped")
        time.sleep(dice.uniform(0.01, 0.05))
        if not faults:
            continue
        victim = dice.randrange(len(alive))
        if dice.random() < 0.5:
            os.kill(alive[victim], signal.SIGKILL)
            os.waitpid(alive[victim], 0)
            alive[victim] = spawn()
            kills += 1
        else:
            os.kill(alive[victim], signal.SIGSTOP)
            time.sleep(dice.uniform(0.05, 0.25))
            os.kill(alive[victim], signal.SIGCONT)
            stops += 1
    over[0] = 1
    for pid in alive:
        _wait(pid)
    said.seek(0)
    return {"said": [json.loads(line) for line in said.read().splitlines()], "kills": kills, "stops": stops}


def sql_connection(kind: str, url: str) -> Any:
    """That commits by itself."""
    if kind == "sqlite":
        import sqlite3

        return sqlite3.connect(url, timeout=30, isolation_level=None)
    if kind == "postgresql":
        import psycopg

        return psycopg.connect(url, autocommit=True)
    import pymysql

    parts = urlsplit(url)
    return pymysql.connect(host=parts.hostname, port=parts.port or 0, user="root", database="holdfast", autocommit=True)


def _say(file: int, what: Any) -> None:
    os.write(file, json.dumps(what).encode() + b"\n")  # one write to a shared offset: whole, whatever happens after


def _lines(file: int) -> int:
    return os.pread(file, os.fstat(file).st_size, 0).count(b"\n")


def _wait(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise SystemExit("a worker did not come to its end")
        time.sleep(0.005)


def play(tool: str, store: str, url: str, how: str, wanted: int, faults: int = 0) -> dict[str, Any]:
    """One burning in a process of its own."""
    command = [sys.executable, "-m", "tests.lockfree.fire", tool, store, url, how, str(wanted), str(faults)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE + 2 * ROUNDS)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    assert not [one for one in answer["said"] if "error" in one], answer["said"]
    return answer


if __name__ == "__main__":
    from importlib import import_module

    name, kind, address, manner, lines, harm = sys.argv[1:]
    import_module(DRIVERS[kind])  # once, not in every worker
    program = import_module(f"tests.lockfree.{name}.burning")
    print(json.dumps(program.burning(kind, address, manner, int(lines), int(harm))))
