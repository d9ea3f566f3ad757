"""How much `holdfast run x -- true` costs, beside `python -c "import sqlite3"`, the bare price of the embedded store."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
import time

ROUNDS = 30
BAR = 3.0


def once(command: list[str]) -> float:
    started = time.perf_counter()
    os.waitpid(os.posix_spawn(command[0], command, os.environ), 0)
    return time.perf_counter() - started


def main() -> bool:
    folder = tempfile.mkdtemp(prefix="holdfast-startup-")
    os.environ["HOLDFAST_URL"] = f"sqlite://{folder}/locks.db"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    holdfast = os.path.join(sysconfig.get_path("scripts"), "holdfast")
    commands = {
        "import sqlite3": [sys.executable, "-c", "import sqlite3"],
        "holdfast run": [holdfast, "run", "x", "--", "true"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    try:
        for _ in range(ROUNDS + 1):  # in turns, so that a change of load hits both; the first is for the caches
            for name, command in commands.items():
                taken[name].append(once(command))
    finally:
        shutil.rmtree(folder)
    times = {name: sorted(all_of[1:]) for name, all_of in taken.items()}
    for name, sample in times.items():
        print(f"{name:16} fastest {sample[0] * 1000:6.1f} ms   median {sample[ROUNDS // 2] * 1000:6.1f} ms")
    base, ours = times["import sqlite3"], times["holdfast run"]
    ratio = ours[ROUNDS // 2] / base[ROUNDS // 2]
    print(f"ratio            fastest {ours[0] / base[0]:6.2f}      median {ratio:6.2f}      bar {BAR:g}")
    return ratio <= BAR
