"""Seed after seed, until one fails: `python -m holdfast.testing.simulation --seeds 10000`, or `--minutes 5`."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .chaos import TROUBLE
from .files import sqlite_files
from .workload import Opener, Plan, Report, memory_behind_network, run

PLANS: dict[str, Plan] = {
    "memory": Plan(),
    "sqlite": Plan(same_machine=True, trouble=TROUBLE._replace(partition=0.0, server_pause=0.0)),
}


@contextmanager
def opener_of(store: str) -> Iterator[Opener]:
    if store == "sqlite":
        with sqlite_files() as opener:
            yield opener
    else:
        yield memory_behind_network


def soak(
    store: str, first: int, seeds: int | None, seconds: float | None, say: Callable[[str], object]
) -> Report | None:
    """The report of the first seed that fails, if one does before the seeds or the time are used up."""
    started = time.monotonic()
    numbers = itertools.count(first) if seeds is None else range(first, first + seeds)
    done = overlaps = 0
    with opener_of(store) as opener:
        for seed in numbers:
            report = run(seed, PLANS[store], opener)
            if not report.ok:
                return report
            done += 1
            overlaps += report.overlaps
            spent = time.monotonic() - started
            if seconds is not None and spent > seconds:
                break
            if done % 1000 == 0:
                say(f"{store}: {done} seeds, {done / spent:.0f} a second")
    say(
        f"{store}: {done} seeds passed from {first} on; {overlaps} times two believed to hold a lock, and none did harm"
    )
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.simulation", description=__doc__)
    parser.add_argument("--store", choices=[*PLANS, "all"], default="all")
    parser.add_argument("--first", type=int, default=0, help="the first seed; with --seeds 1, to see one again")
    parser.add_argument("--seeds", type=int, help="how many; without it, as many as the time allows")
    parser.add_argument("--minutes", type=float, help="in all")
    parser.add_argument("--seconds", type=float, help="the same, in seconds")
    options = parser.parse_args(arguments)
    stores = list(PLANS) if options.store == "all" else [options.store]
    seconds = options.seconds if options.minutes is None else options.minutes * 60
    if options.seeds is None and seconds is None:
        seconds = 60.0
    for store in stores:
        failed = soak(store, options.first, options.seeds, seconds and seconds / len(stores), _say)
        if failed is not None:
            _say(f"{failed}\n\nTo see it again: {parser.prog} --store {store} --first {failed.seed} --seeds 1")
            return 1
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
