"""The verdict: every promise with what was found against it, and the figures that say how hard it was tried."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from ..testing.history import (
    ACQUIRE,
    CHECK,
    CRASHED,
    DONE,
    FAILED,
    GRANTED,
    LOST,
    READ,
    STALE,
    WRITE,
    History,
    Operation,
)
from .checkers import check_honesty, check_linearizability, handoffs, percentile
from .nemesis import FAULT
from .record import Record

KEPT, BROKEN, UNDECIDED = "kept", "broken", "undecided"
EXITS = {KEPT: 0, BROKEN: 1, UNDECIDED: 2}
REFUSALS = 200  # that are told one by one
TOLD = 20  # findings of a promise
ENOUGH = 10  # updates: with fewer, nothing has been shown

Check = Callable[[History], Iterable[Finding]]
LOST_UPDATE = "no acknowledged update was lost"
# What is promised, in the words of the report, and who judges it by the history of one name.
PROMISES: dict[str, Check] = {
    "no stale write was accepted": check_order,
    LOST_UPDATE: check_updates,
    "nobody was refused without cause": check_refusals,
    "tokens rise in the order of the grants": check_tokens,
    "the register is linearizable": check_linearizability,
    "no lease said held that was over": check_honesty,
}
# Of others is known when they were asked and what they answered, and nothing of what they ask their servers.
OF_OTHERS = {promise: check for promise, check in PROMISES.items() if check not in (check_tokens, check_honesty)}
SERVED = "every waiter was served in time"
CLEAN = "workers ended in good order and left nothing behind"


class Found(list[Finding]):
    """What speaks against a promise: the first findings, and how many there were."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        super().__init__()
        self.total = 0
        self.take(findings)

    def take(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.total += 1
            if len(self) < TOLD:
                self.append(finding)


@dataclass(slots=True)
class Judgement:
    promises: dict[str, Found]
    figures: dict[str, Any]
    undecided: list[str]  # why nothing can be concluded
    tally: Tally

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
                promise: {"kept": not found, "findings": [str(one) for one in found], "found": found.total}
                for promise, found in self.promises.items()
            },
            "undecided": self.undecided,
            "figures": self.figures,
        }


def judge(record: Record) -> Judgement:
    """Part by part, and name by name: they have nothing to do with each other, and checkers are quick with short ones."""
    about = record.about
    judged = OF_OTHERS if about["library"] else PROMISES
    promises = {promise: Found() for promise in (*judged, SERVED)}
    promises[CLEAN] = Found(Finding("clean", "", wrong) for wrong in about["wrong"])
    tally = Tally(about["healed"])
    for part in record.parts():
        for mine in apart(part):
            for promise, check in judged.items():
                promises[promise].take(check(mine))
            tally.add(mine)
        promises[SERVED].take(check_liveness(part, about["healed"], about["bound"]))
    struck = Counter(note.what.removeprefix(FAULT) for note in record.notes if note.what.startswith(FAULT))
    killed = sum(note.what == CRASHED for note in record.notes)
    figures = {**tally.figures(), "killed": killed, "faults": dict(struck), "lost": promises[LOST_UPDATE].total}
    return Judgement(promises, figures, _too_little(figures), tally)


def _too_little(figures: dict[str, Any]) -> list[str]:
    why = []
    if figures["updates"] < ENOUGH:
        why.append(f"only {figures['updates']} updates were made: too few to conclude anything")
    if not figures["acquired after healing"]:
        why.append("nobody acquired anything after the faults were over: too short to tell whether waiters are served")
    return why


def apart(history: History) -> Iterator[History]:
    """A history for each name."""
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


class Tally:
    """What is counted, name by name."""

    def __init__(self, healed: float) -> None:
        self._healed = healed
        self._counts: Counter[str] = Counter()
        self._longest = 0.0
        self.waits = array("d")
        self.handoffs = array("d")
        self.refused: list[Operation] = []  # the first of them

    def add(self, mine: History) -> None:
        counts = self._counts
        counts["operations"] += len(mine.operations)
        for one in mine.operations:
            if one.kind == ACQUIRE:
                counts["not acquired"] += one.outcome == FAILED
                if one.outcome == GRANTED:
                    self.waits.append(one.returned - one.invoked)
                    counts["acquired after healing"] += one.returned > self._healed
            elif one.kind in (READ, WRITE):
                counts["updates"] += one.kind == WRITE and one.outcome == DONE
                if one.outcome == STALE:
                    counts["refused"] += 1
                    if len(self.refused) < REFUSALS:
                        self.refused.append(one)
            elif one.kind == CHECK:
                counts["losses told"] += one.outcome == LOST
        found = overlaps(mine)
        counts["overlaps"] += len(found)
        self._longest = max([self._longest, *(one.seconds for one in found)])
        self.handoffs.extend(handoffs(mine))

    def figures(self) -> dict[str, Any]:
        waits, handed = sorted(self.waits), sorted(self.handoffs)
        return {
            "operations": self._counts["operations"],
            "acquired": len(waits),
            **{key: self._counts[key] for key in _COUNTED},
            "longest overlap": round(self._longest, 3),
            "wait p50": round(percentile(waits, 0.5), 4),
            "wait p99": round(percentile(waits, 0.99), 4),
            "wait max": round(waits[-1] if waits else 0.0, 4),
            "handoff p50": round(percentile(handed, 0.5), 4),
            "handoff p99": round(percentile(handed, 0.99), 4),
        }


_COUNTED = ("acquired after healing", "not acquired", "updates", "refused", "losses told", "overlaps")
