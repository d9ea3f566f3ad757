"""The verdict: every promise with what was found against it, and the figures that say how hard it was tried."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..testing.checkers import (
    Finding,
    check_liveness,
    check_order,
    check_refusals,
    check_tokens,
    check_updates,
    overlaps,
)
from ..testing.history import ACQUIRE, CHECK, CRASHED, DONE, GRANTED, LOST, READ, STALE, WRITE, History, Operation
from .checkers import check_honesty, check_linearizability, percentile
from .nemesis import FAULT

KEPT, BROKEN, UNDECIDED = "kept", "broken", "undecided"
EXITS = {KEPT: 0, BROKEN: 1, UNDECIDED: 2}
ENOUGH = 10  # updates: with fewer, nothing has been shown

Check = Callable[[History], Iterable[Finding]]
# What is promised, in the words of the report, and who judges it by the history of one name.
PROMISES: dict[str, Check] = {
    "no stale write was accepted": check_order,
    "no acknowledged update was lost": check_updates,
    "nobody was refused without cause": check_refusals,
    "tokens rise in the order of the grants": check_tokens,
    "the register is linearizable": check_linearizability,
    "no lease said held that was over": check_honesty,
}
SERVED = "every waiter was served in time"
CLEAN = "workers ended in good order and left nothing behind"


@dataclass(slots=True)
class Judgement:
    promises: dict[str, list[Finding]]
    figures: dict[str, Any]
    undecided: list[str] = field(default_factory=list)  # why nothing can be concluded

    @property
    def verdict(self) -> str:
        if any(self.promises.values()):
            return BROKEN
        return UNDECIDED if self.undecided else KEPT

    @property
    def exit_code(self) -> int:
        return EXITS[self.verdict]

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "promises": {
                promise: {"kept": not found, "findings": [str(one) for one in found[:20]], "found": len(found)}
                for promise, found in self.promises.items()
            },
            "undecided": self.undecided,
            "figures": self.figures,
        }


def judge(history: History, about: dict[str, Any]) -> Judgement:
    """`about` is what the run knows of itself: see `running.about`."""
    by_name = list(apart(history))
    promises = {promise: [one for part in by_name for one in check(part)] for promise, check in PROMISES.items()}
    promises[SERVED] = list(check_liveness(history, about["healed"], about["bound"]))
    promises[CLEAN] = [Finding("clean", "", wrong) for wrong in about["wrong"]]
    figures = _figures(history, about, by_name)
    undecided = []
    if figures["updates"] < ENOUGH:
        undecided.append(f"only {figures['updates']} updates were made: too few to conclude anything")
    if not figures["acquired after healing"]:
        undecided.append(
            "nobody acquired anything after the faults were over: too short to tell whether waiters are served"
        )
    return Judgement(promises, figures, undecided)


def apart(history: History) -> Iterator[History]:
    """A history for each name: they have nothing to do with each other, and checkers are quick with short ones."""
    operations: dict[str, list[Operation]] = defaultdict(list)
    for one in history.operations:
        operations[one.name].append(one)
    notes = defaultdict(list)
    for note in history.notes:
        notes[note.name].append(note)
    for name, mine in operations.items():
        part = History()
        part.operations, part.notes = mine, notes[name]
        if name in history.final:
            part.final[name] = history.final[name]
        elif any(one.kind == WRITE and one.outcome == DONE for one in mine):
            part.final[name] = ()
        yield part


def _figures(history: History, about: dict[str, Any], by_name: list[History]) -> dict[str, Any]:
    acquired = [one for one in history.of(ACQUIRE) if one.outcome == GRANTED]
    waits = sorted(one.returned - one.invoked for one in acquired)
    found = [overlap for part in by_name for overlap in overlaps(part)]
    refused = [one for one in history.of(READ, WRITE) if one.outcome == STALE]
    return {
        "operations": len(history.operations),
        "acquired": len(acquired),
        "acquired after healing": sum(one.returned > about["healed"] for one in acquired),
        "not acquired": sum(one.outcome == "failed" for one in history.of(ACQUIRE)),
        "updates": sum(one.outcome == DONE for one in history.of(WRITE)),
        "refused": len(refused),
        "losses told": sum(one.outcome == LOST for one in history.of(CHECK)),
        "killed": sum(note.what == CRASHED for note in history.notes),
        "overlaps": len(found),
        "longest overlap": round(max((one.seconds for one in found), default=0.0), 3),
        "wait p50": round(percentile(waits, 0.5), 4),
        "wait p99": round(percentile(waits, 0.99), 4),
        "wait max": round(waits[-1] if waits else 0.0, 4),
        "faults": dict(Counter(note.what.removeprefix(FAULT) for note in history.notes if note.what.startswith(FAULT))),
    }
