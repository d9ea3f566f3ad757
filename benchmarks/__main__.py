"""Run all benchmarks, or those named. Exits non-zero if a bar is missed, or if something has become slower."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from . import against, curves, progress
from .measure import kept

# How many seconds each takes on two cores, for the bar that shows how far it is.
ALL = {
    "foundation": 30,
    "redis": 60,
    "keep": 90,
    "etcd": 60,
    "zookeeper": 45,
    "consul": 45,
    "postgresql": 60,
    "mysql": 60,
    "fenced": 40,
    "lockfree": 60,
    "observe": 10,
    "dashboard": 30,
    "scale": 60,
    "costs": 60,
    "curves": 420,
}
ASIDE = {"parts": 40}  # only when it is named


def words() -> argparse.ArgumentParser:
    asked = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    asked.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ALL | ASIDE)}; with --against, stores")
    asked.add_argument(
        "--against", metavar="REVISION", help="compare this checkout with that commit, or folder, in turns"
    )
    asked.add_argument("--pairs", type=int, default=against.PAIRS, help="of processes, with --against (%(default)s)")
    asked.add_argument("--json", metavar="FILE", type=Path, help="keep the results there")
    asked.add_argument("--stores", type=lambda text: text.split(","), default=[], help="with curves: only of these")
    asked.add_argument(
        "--only", type=lambda text: text.split(","), default=[], help=f"with curves: of {', '.join(curves.FAMILIES)}"
    )
    asked.add_argument("--into", type=Path, default=curves.INTO, help="with curves: a folder (%(default)s)")
    return asked


def main() -> bool:
    given = words().parse_args()
    if given.against:
        return against.main(given.names, given.against, given.json, given.pairs)
    if given.names == ["curves"]:
        return curves.main(given.stores, given.only, given.into)
    met = []
    for name in progress.through({name: (ALL | ASIDE)[name] for name in given.names or ALL}):
        met.append(import_module(f"benchmarks.{name}").main())
        if given.json:
            kept(given.json)
    return all(met)


if __name__ == "__main__":
    sys.exit(not main())
