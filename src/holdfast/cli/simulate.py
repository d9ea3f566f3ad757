"""`holdfast simulate`: seed after seed in virtual time, told while it runs; then a table, and of a failure the shortest story."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import exits
from .options import Options, Usage
from .terminal import Paint, padded

if TYPE_CHECKING:
    from ..testing.simulation import Report
    from ..testing.simulation.searching import Tally
    from ..testing.simulation.story import Story

_SEEDS = 200
_EVERY = 5.0  # seconds between lines where no terminal is there to write one line over and over
_HEADS = ("STORE", "SEEDS", "SEEDS/S", "ACQUIRED", "FAULTS", "OVERLAPS", "REFUSED", "VIRTUAL TIME", "VERDICT")


def simulate(options: Options) -> int:
    from ..testing.simulation import searching, swarm

    asked = options.name or "all"
    if asked not in (*swarm.STORES, "all"):
        raise Usage(
            f"there is no simulation of {asked!r}: there are {', '.join(swarm.STORES)}, and all of them", "simulate"
        )
    stores = swarm.STORES if asked == "all" else (asked,)
    faults = options.get("faults")
    named = None if faults is None else [one for one in faults.split(",") if one not in ("", "none")]
    seed = options.get("seed")
    if seed is not None:
        if asked == "all":
            raise Usage("a seed is a story of one store: say which", "simulate")
        return _one(options, asked, seed, swarm.chosen(asked, named))
    count = _Count(options.get("count"))
    seconds = options.get("seconds")
    seeds = options.get("seeds") or (_SEEDS if seconds is None else None)
    share = None if seconds is None else seconds / len(stores)
    tallies = []
    for store in stores:
        live = _Live(seeds)
        first = options.get("first")
        try:
            first = count.next_seed(store) if first is None else first
            tally = searching.search(store, first, seeds, share, swarm.chosen(store, named), live.show)
        finally:
            live.over()
        tallies.append(tally)
        count.add(tally)
        if tally.failed is not None:
            break
    _tell(options, tallies)
    if (failed := tallies[-1].failed) is None:
        return exits.OK
    if not options.flag("json"):
        store, only = tallies[-1].store, swarm.chosen(tallies[-1].store, named)
        print(
            f"\nSeed {failed.seed} broke a promise. Its shortest story, as far as it could be made simpler:\n",
            flush=True,
        )
        shortest = searching.shrunk(store, failed, only)
        story = searching.story_of(store, shortest)
        print(story.about(shortest.findings[0].name))
        again = _again(options, store, failed.seed)
        print(f"\nThe whole of it: {again}")
        _draw(options, shortest, story, again)
    return exits.NO


def _one(options: Options, store: str, seed: int, only: frozenset[str] | None) -> int:
    from ..testing.simulation import searching

    tally = searching.search(store, seed, 1, None, only, lambda _: None, keep=True)
    assert tally.last is not None
    story = searching.story_of(store, tally.last)
    _draw(options, tally.last, story, _again(options, store, seed))
    if options.flag("json"):
        print(json.dumps(story.as_json(), indent=1))
    elif options.get("html") is None:
        print(story)
        print(f"\n{len(story.events)} events in {story.seconds:.1f} s of virtual time; {tally.overlaps} overlaps.")
    return exits.OK if tally.last.ok else exits.NO  # too tangled for one checker is not broken


def _again(options: Options, store: str, seed: int) -> str:
    faults = options.get("faults")
    return f"holdfast simulate {store} --seed {seed}{f' --faults {faults}' if faults else ''}"


def _draw(options: Options, report: Report, story: Story, again: str) -> None:
    path = options.get("html")
    if path is not None:
        from ..testing.simulation.page import page

        Path(path).write_text(page(report, story, again), encoding="utf-8")
        print(f"The story of seed {story.seed} is drawn in {path}", file=sys.stderr)


class _Live:
    """One line on standard error that is written over and over; without a terminal, one every few seconds."""

    def __init__(self, seeds: int | None) -> None:
        self._seeds = seeds
        self._terminal = sys.stderr.isatty()
        self._next = 0.0 if self._terminal else time.monotonic() + _EVERY

    def show(self, tally: Tally) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.2 if self._terminal else _EVERY)
        of = f" of {self._seeds}" if self._seeds else ""
        bar = Paint(sys.stderr).bar(tally.seeds / self._seeds) + " " if self._seeds else ""
        text = (
            f"{bar}{tally.store}: {tally.seeds}{of} seeds · {tally.a_second:.0f}/s · {tally.overlaps} overlaps so far"
        )
        start, end = ("\r\x1b[2K", "") if self._terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)

    def over(self) -> None:
        if self._terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


class _Count:
    """How many seeds were run so far, in a file: the next run goes on where this one stops."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._kept: dict[str, Any] = {}
        if self._path is not None and self._path.exists():
            self._kept = json.loads(self._path.read_text())

    def next_seed(self, store: str) -> int:
        return int(self._kept.get(store, {}).get("seeds", 0))

    def add(self, tally: Tally) -> None:
        if self._path is None or tally.failed is not None or tally.first != self.next_seed(tally.store):
            return
        before = self._kept.get(tally.store, {"seeds": 0, "cpu hours": 0.0, "overlaps": 0})
        self._kept[tally.store] = {
            "seeds": before["seeds"] + tally.seeds,
            "cpu hours": round(before["cpu hours"] + tally.cpu / 3600, 3),
            "overlaps": before["overlaps"] + tally.overlaps,
        }
        self._path.write_text(json.dumps(self._kept, indent=1) + "\n")


def _tell(options: Options, tallies: list[Tally]) -> None:
    if options.flag("json"):
        print(json.dumps([_plain(tally) for tally in tallies], indent=1))
        return
    rows = [_HEADS, *(_row(tally) for tally in tallies)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    paint = Paint(sys.stdout)
    for number, row in enumerate(rows):
        text = "  ".join(padded(cell, widths[at], right=0 < at < len(row) - 1) for at, cell in enumerate(row)).rstrip()
        print(paint("dim", text) if number == 0 else text)
    print("\nOverlap: two believed that they hold a lock. Refused: the storage turned away the one who was overtaken.")


def _row(tally: Tally) -> tuple[str, ...]:
    verdict = "all kept" if tally.failed is None else f"broken by seed {tally.failed.seed}"
    if tally.undecided:
        verdict += f", {tally.undecided} too tangled for a verdict on linearizability"
    figures = (tally.acquired, sum(tally.faults.values()), tally.overlaps, tally.refused)
    return (
        tally.store,
        str(tally.seeds),
        f"{tally.a_second:.0f}",
        *map(str, figures),
        f"{tally.virtual / 60:.0f} min",
        verdict,
    )


def _plain(tally: Tally) -> dict[str, Any]:
    findings = [] if tally.failed is None else [str(finding) for finding in tally.failed.findings]
    return {
        "store": tally.store,
        "first": tally.first,
        "seeds": tally.seeds,
        "acquired": tally.acquired,
        "overlaps": tally.overlaps,
        "refused": tally.refused,
        "undecided": tally.undecided,
        "virtual seconds": round(tally.virtual, 1),
        "cpu seconds": round(tally.cpu, 2),
        "faults": dict(tally.faults.most_common()),
        "failed": None if tally.failed is None else {"seed": tally.failed.seed, "findings": findings},
    }
