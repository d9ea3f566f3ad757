"""Seed after seed: what was found, how much of what happened, and how fast."""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..history import ACQUIRE, GRANTED, STALE
from .files import sqlite_files
from .machines import on_machines
from .story import SIGNALS, Story, told
from .swarm import plan_of
from .workload import Opener, Plan, Report, memory_behind_network, run


@contextmanager
def opener_of(store: str) -> Iterator[Opener]:
    if store == "sqlite":
        with sqlite_files() as opener:
            yield opener
    else:
        yield memory_behind_network if store == "memory" else on_machines


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """A world is garbage as a whole when it is over, and until then nearly none of it is."""
    before = gc.get_threshold()
    gc.set_threshold(5000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass
class Tally:
    """Of one store, so far."""

    store: str
    first: int
    seeds: int = 0
    acquired: int = 0
    refused: int = 0  # by the storage
    overlaps: int = 0
    undecided: int = 0  # too tangled to be judged whole
    steps: int = 0
    virtual: float = 0.0  # seconds
    cpu: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failed: Report | None = None
    last: Report | None = None  # if it is to be kept

    @property
    def a_second(self) -> float:
        return self.seeds / self.cpu if self.cpu else 0.0

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.overlaps += report.overlaps
        self.undecided += report.undecided
        self.steps += report.steps
        self.virtual += report.seconds
        self.acquired += sum(one.kind == ACQUIRE and one.outcome == GRANTED for one in report.history.operations)
        self.refused += sum(one.outcome == STALE for one in report.history.operations)
        self.faults.update(note.what for note in report.history.notes if note.what not in SIGNALS)


def story_of(store: str, report: Report) -> Story:
    findings = [str(finding) for finding in report.findings]
    return told(store, report.seed, report.history, findings, report.seconds)


def search(
    store: str,
    first: int = 0,
    seeds: int | None = None,
    seconds: float | None = None,
    only: Collection[str] | None = None,
    say: Callable[[Tally], object] = lambda _: None,
    *,
    keep: bool = False,
) -> Tally:
    """Until one fails, or the seeds or the time are used up. `say` is called after each."""
    tally = Tally(store, first)
    numbers = itertools.count(first) if seeds is None else range(first, first + seeds)
    started, used = time.monotonic(), time.process_time()
    with opener_of(store) as opener, _seldom_collecting():
        for seed in numbers:
            report = run(seed, plan_of(store, seed, only), opener)
            tally.add(report)
            if keep:
                tally.last = report
            tally.cpu = time.process_time() - used
            if not report.ok:
                tally.failed = report
                break
            say(tally)
            if seconds is not None and time.monotonic() - started > seconds:
                break
    return tally


# ---- the shortest story of a failure

TRIES = 25  # seeds that a simpler plan is given


def shrunk(store: str, failed: Report, only: Collection[str] | None = None, tries: int = TRIES) -> Report:
    """A simpler plan in which the same checker finds something, and of its seeds the one with the fewest events.

    Another plan makes other histories of the same seed, so each simpler one is given a few seeds.
    """
    checker = failed.findings[0].checker
    plan = plan_of(store, failed.seed, only)
    best = failed
    with opener_of(store) as opener:
        simpler = True
        while simpler:
            simpler = False
            for candidate in _simpler(plan):
                found = _shortest(checker, candidate, opener, failed.seed, tries)
                if found is not None and len(found.history.operations) <= len(best.history.operations):
                    plan, best, simpler = candidate, found, True
                    break
    return best


def _shortest(checker: str, plan: Plan, opener: Opener, seed: int, tries: int) -> Report | None:
    reports = (run(number, plan, opener) for number in (seed, *range(tries)))
    found = [report for report in reports if any(finding.checker == checker for finding in report.findings)]
    return min(found, key=lambda report: len(report.history.operations), default=None)


def _simpler(plan: Plan) -> Iterator[Plan]:
    """Every plan that lacks one thing."""
    if len(set(plan.kinds)) > 1:
        yield from (plan._replace(kinds=(kind,)) for kind in sorted(set(plan.kinds)))
    if plan.processes > 2:
        yield plan._replace(processes=2)
        yield plan._replace(processes=plan.processes - 1)
    if plan.rounds > 1:
        yield plan._replace(rounds=max(1, plan.rounds // 2))
    if plan.calm_rounds:
        yield plan._replace(calm_rounds=plan.calm_rounds - 1)
    for name in plan.trouble._fields:
        if getattr(plan.trouble, name):
            yield plan._replace(trouble=plan.trouble._replace(**_without(name)))
    for name in ("slow", "lose_request", "lose_reply", "duplicate", "reset"):
        if getattr(plan.faults, name):
            yield plan._replace(faults=plan.faults._replace(**_without(name)))
    streams = plan.machinery.streams
    for name in ("slow", "split", "cut"):
        if getattr(streams, name):
            yield plan._replace(machinery=plan.machinery._replace(streams=streams._replace(**_without(name))))
    if plan.drop:
        yield plan._replace(drop=0.0)
    if plan.chaos > 4.0:
        yield plan._replace(chaos=plan.chaos / 2)


def _without(name: str) -> dict[str, Any]:
    return {name: 0.0}
