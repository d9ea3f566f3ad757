"""Interleaved measuring, and a table of verdicts."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Verdict(NamedTuple):
    what: str
    measured: float
    bar: float
    unit: str = "x"
    at_least: bool = False
    detail: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.bar if self.at_least else self.measured <= self.bar


def interleaved(tasks: Mapping[str, Callable[[], object]], *, rounds: int = 60, batch: int = 200) -> dict[str, float]:
    """Seconds a call: each task in short bursts, in turns; the median of its bursts, which one hiccup does not move."""
    bursts: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            for _ in range(batch):
                task()
            bursts[name].append((time.perf_counter() - start) / batch)
    return {name: statistics.median(taken) for name, taken in bursts.items()}


def ratio(
    tasks: Mapping[str, Callable[[], object]], ours: str, floor: str, *, rounds: int = 60, batch: int = 200
) -> float:
    """How many times the floor we take: the median over the rounds of the ratio within a round."""
    ratios = []
    for _ in range(rounds):
        taken = interleaved(tasks, rounds=1, batch=batch)
        ratios.append(taken[ours] / taken[floor])
    return statistics.median(ratios)


def commands(tasks: Mapping[str, Sequence[str]], *, rounds: int = 25) -> dict[str, float]:
    """The same for whole commands: seconds a run."""
    runs: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, command in tasks.items():
            start = time.perf_counter()
            subprocess.run(command, check=True)
            runs[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in runs.items()}


def import_time(modules: str, *, rounds: int = 25) -> float:
    """Seconds that `import modules` takes in a fresh interpreter: the median."""
    script = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
    taken = [
        float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)
        for _ in range(rounds)
    ]
    return statistics.median(taken)


_REPORTED: dict[str, Sequence[Verdict]] = {}


def kept(file: Path) -> None:
    """All that was reported so far, as JSON."""
    everything = {
        title: [{**verdict._asdict(), "met": verdict.met} for verdict in verdicts]
        for title, verdicts in _REPORTED.items()
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(everything, indent=1, ensure_ascii=False))


def report(title: str, verdicts: Sequence[Verdict]) -> bool:
    """Print the table; True if every bar is met."""
    _REPORTED[title] = verdicts
    print(f"\n{title}")
    width = max(len(verdict.what) for verdict in verdicts)
    for verdict in verdicts:
        sign = "≥" if verdict.at_least else "≤"
        mark = "met " if verdict.met else "MISSED"
        line = f"{verdict.measured:8.2f} {verdict.unit:<3} (bar {sign} {verdict.bar:g})"
        print(f"  {verdict.what:<{width}} {line}  {mark}  {verdict.detail}")
    return all(verdict.met for verdict in verdicts)
