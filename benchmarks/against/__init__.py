"""`python -m benchmarks redis --against main`: this checkout and another one, in turns, on one server; with a verdict.

Each has a process of its own, which sees only the public words of holdfast, so that any two commits can be compared. They work in
short bursts, one after the other, in an order that changes: whatever else the machine does slows both alike. Two processes of the
same code differ by some per cent for as long as they live (where their memory lies, on which core they were put), so there are
several pairs of them. A verdict counts only if the interval, 95 % of what the same pairs drawn again would give, leaves no doubt.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

from ..where import STORES, started

HERE = Path(__file__).parents[2]
ALLOWED = 1.05  # as much slower may a change make it
PAIRS = 10
ROUNDS = 8  # of each pair
BURST = 0.03  # seconds, about
WHATS = ("one thread", "one task", "64 tasks")


class Compared(NamedTuple):
    """How many times the other's time ours takes: the median over the rounds, and between what and what it lies."""

    store: str
    what: str
    times: float
    low: float
    high: float
    ours: float  # seconds per lock taken and left
    theirs: float

    @property
    def too_slow(self) -> bool:
        return self.low > ALLOWED

    @property
    def verdict(self) -> str:
        if self.too_slow:
            return "SLOWER"
        if self.low > 1:
            return "slower, within 5 %" if self.times <= ALLOWED else "slower, perhaps by more than 5 %"
        return "faster" if self.high < 1 else "no difference seen"


class Side:
    """A process that takes locks with the holdfast of one checkout."""

    def __init__(self, source: Path, url: str) -> None:
        environ = {**os.environ, "PYTHONPATH": str(source / "src")}
        worker = [sys.executable, str(Path(__file__).with_name("worker.py")), url]
        self._process = subprocess.Popen(worker, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def burst(self, what: str, cycles: int) -> tuple[float, float]:
        """Seconds per cycle: by the clock, and of this process's processor time."""
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        to.write(json.dumps([what, cycles]) + "\n")
        to.flush()
        return self._answer(answers)

    def _answer(self, answers: IO[str]) -> tuple[float, float]:
        line = answers.readline()
        if not line:
            raise SystemExit(f"the other process ended: {self._process.wait()}")
        passed, worked = json.loads(line)
        return passed, worked

    def close(self) -> None:
        self._process.communicate(timeout=30)


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A folder that is one already, or the source of a commit, unpacked for as long as it is needed."""
    if Path(revision, "src", "holdfast").is_dir():
        yield Path(revision).resolve()
        return
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=HERE, capture_output=True)
    if packed.returncode:
        raise SystemExit(f"--against {revision}: neither a checkout nor a commit ({packed.stderr.decode().strip()})")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def interval(pairs: Sequence[Sequence[float]], draws: int = 2000) -> tuple[float, float]:
    """95 % of the medians that the same pairs of processes, drawn again, would give."""
    draw = random.Random(1)
    each = [statistics.median(pair) for pair in pairs]
    medians = sorted(statistics.median(draw.choices(each, k=len(each))) for _ in range(draws))
    return medians[int(draws * 0.025)], medians[int(draws * 0.975)]


Bursts = dict[str, list[list[tuple[float, float]]]]  # of what: for each pair of processes, ours and theirs


def compare(store: str, other: Path, pairs: int = PAIRS) -> Iterator[Compared]:
    passed: Bursts = {what: [] for what in WHATS}
    worked: Bursts = {what: [] for what in WHATS}
    with started(store) as (url, _):
        for number in range(pairs):
            with ExitStack() as stack:
                sources = (HERE, other) if number % 2 else (other, HERE)
                sides = {source: Side(source, url) for source in sources}
                for side in sides.values():
                    stack.callback(side.close)
                for what in WHATS:
                    warm = max(side.burst(what, 2)[0] for side in sides.values() for _ in range(2))
                    cycles = max(2, int(BURST / warm))
                    passed[what].append([])
                    worked[what].append([])
                    for turn in range(ROUNDS):
                        taken = {one: sides[one].burst(what, cycles) for one in (sources, sources[::-1])[turn % 2]}
                        passed[what][-1].append((taken[HERE][0], taken[other][0]))
                        worked[what][-1].append((taken[HERE][1], taken[other][1]))
    for what in WHATS:
        yield _compared(store, what, passed[what])
        yield _compared(store, f"{what}: processor time", worked[what])


def _compared(store: str, what: str, pairs: Sequence[Sequence[tuple[float, float]]]) -> Compared:
    ratios = [[ours / theirs for ours, theirs in pair] for pair in pairs]
    ours, theirs = (statistics.median(side) for side in zip(*(one for pair in pairs for one in pair), strict=True))
    times = statistics.median(statistics.median(pair) for pair in ratios)
    return Compared(store, what, times, *interval(ratios), ours, theirs)


def main(stores: Sequence[str], revision: str, file: Path | None, pairs: int = PAIRS) -> bool:
    """True if nothing has become slower than it may."""
    unknown = [store for store in stores if store not in STORES]
    if unknown:
        raise SystemExit(f"--against compares stores: {', '.join(STORES)}; not {', '.join(unknown)}")
    found: list[Compared] = []
    with checkout(revision) as other:
        print(f"this checkout against {revision}: how many times as long one lock takes to be taken and left")
        for store in stores or STORES:
            for one in compare(store, other, pairs):
                found.append(one)
                spread = f"({one.low:.3f} to {one.high:.3f})"
                cost = f"{one.ours * 1e6:8.1f} µs against {one.theirs * 1e6:8.1f}"
                print(f"  {store:<10} {one.what:<27} {one.times:6.3f}x {spread:<18} {cost}  {one.verdict}", flush=True)
    if file:
        file.write_text(json.dumps([{**one._asdict(), "verdict": one.verdict} for one in found], indent=1))
    return not any(one.too_slow for one in found)
